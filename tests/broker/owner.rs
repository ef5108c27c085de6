//! The door for the driver that owns a cell of a cluster: listeners that open and close, and
//! promises that leave by a lease or an append.

use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, RawClient, Version, Will};
use homing::broker::Broker;
use homing::broker::owner_door::OwnerDoor;
use homing::config::Config;
use homing::time::Instant;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// The broker of an owner, with one thread and a store in memory, and its address.
fn owner() -> (Broker, OwnerDoor, SocketAddr) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let mut config = Config::default();
    config.runtime.threads = 1;
    config.network.listen = vec![address];
    let broker = Broker::start_as_owner(config, Box::new(Memory::default())).expect("the broker starts");
    let door = broker.owner_door().expect("it runs");
    (broker, door, address)
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn clients_of_an_owner_are_let_in_and_shut_out() {
    let (_broker, door, address) = owner();
    assert!(TcpStream::connect(address).is_err(), "it listens before it serves");
    for round in 0..2 {
        wait(door.let_in()).expect("the port is free");
        let mut watcher = RawClient::connect(address, &Connect::persistent(Version::V5, "watcher"));
        assert_eq!(watcher.session_present(), round > 0);
        watcher.settle();
        watcher.subscribe(&[("will", 1)]);
        let will = Will::new("will", "gone").qos(1);
        let mut client = RawClient::connect(address, &Connect::new(Version::V5, "client").will(will));
        wait(door.shut_out());
        client.expect_disconnected(0x8B);
        watcher.expect_disconnected(0x8B);
        assert!(TcpStream::connect(address).is_err(), "it listens after clients were shut out");
    }
}

#[test]
fn an_owner_promises_by_appends_and_by_its_lease() {
    let (_broker, door, address) = owner();
    wait(door.let_in()).expect("the port is free");
    let mut client = RawClient::connect(address, &Connect::new(Version::V311, "client"));
    let message = Message::new("nobody", "x").qos(1);
    let id = client.publish(&message);
    client.expect_ack(Kind::Puback, id);
    assert!(!door.lease().take_used(), "it has none");
    door.lease().set_until(Instant::NEVER);
    let id = client.publish(&message);
    client.expect_ack(Kind::Puback, id);
    assert!(door.lease().take_used());
}
