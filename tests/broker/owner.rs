//! The door for the driver that owns a cell of a cluster: listeners that open and close, and
//! promises that leave by a lease or an append.

use crate::support::faulty_store::{Call, Fault, Faults, Faulty};
use crate::support::launch::start_broker_on;
use crate::support::memory_store::Memory;
use crate::support::{Connect, Kind, Message, PATIENCE, RawClient, Version, Will};
use homing::broker::Broker;
use homing::broker::owner_door::OwnerDoor;
use homing::config::{Config, ServiceUrl, Sink};
use homing::store::Store;
use homing::time::Instant;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// The broker of an owner, with one thread and a store in memory, and its address.
fn owner() -> (Broker, OwnerDoor, SocketAddr) {
    owner_on(Box::new(Memory::default()), |_| {})
}

fn owner_on(store: Box<dyn Store>, configure: impl Fn(&mut Config)) -> (Broker, OwnerDoor, SocketAddr) {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = free.local_addr().expect("its address");
    drop(free);
    let mut config = Config::default();
    config.runtime.threads = 1;
    config.network.listen = vec![address];
    configure(&mut config);
    let broker = Broker::start_as_owner(config, store).expect("the broker starts");
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

/// A sink whose queue may be longer than others, and whose service is away.
fn with_a_long_queue(config: &mut Config) {
    config.store.queue_messages = 2;
    // Only the first message leaves the queue.
    config.limits.in_flight = 1;
    config.sinks = vec![Sink {
        name: Some("s".to_owned()),
        url: ServiceUrl::parse("http://127.0.0.1:1/in"),
        filters: Some(vec!["t".to_owned()]),
        queue_messages: Some(10),
        ..Sink::default()
    }];
}

#[test]
fn a_new_owner_has_the_bounds_of_a_queue_before_the_first_message_comes() {
    let (memory, faults) = (Memory::default(), Faults::default());
    let message = Message::new("t", "x").qos(1);
    let broker = start_broker_on(&memory, with_a_long_queue);
    let mut client = broker.connect(&Connect::new(Version::V5, "client"));
    (0..5).for_each(|_| assert_eq!(client.deliver(&message), 0));
    drop(broker);
    // Nothing is committed, so that the sink is not answered before the client is.
    faults.plan(Call::Commit, 0, Fault::Stopped);
    let store = Faulty::new(Box::new(Memory::from_image(memory.image())), faults.clone());
    let (_broker, door, address) = owner_on(Box::new(store), with_a_long_queue);
    door.lease().set_until(Instant::NEVER);
    wait(door.let_in()).expect("the port is free");
    let mut client = RawClient::connect(address, &Connect::new(Version::V5, "client"));
    let id = client.publish(&message);
    client.settle();
    assert!(faults.wait_until_stopped(PATIENCE), "no commit comes");
    faults.release();
    assert_eq!(client.expect_ack(Kind::Puback, id).code, 0);
}
