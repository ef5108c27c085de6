//! A client comes back while the broker still has unread bytes of its older connection: what the
//! client said there counts.

use crate::client::{connect, encoded, enter, publish, subscribe, take, take_packets, will};
use crate::driver::{self, LinkId, MemoryDriver};
use homing::mqtt::packet::{
    Acknowledgement, Connect, ConnectProperties, Disconnect, Packet, ProtocolVersion, Publish, QoS,
    ReasonCode,
};

const V5: ProtocolVersion = ProtocolVersion::V5;

/// The CONNECT of a client whose session outlives its connection.
fn lasting(clean_start: bool) -> Connect<'static> {
    let properties = ConnectProperties { session_expiry: Some(100), ..Default::default() };
    Connect { clean_start, properties, ..connect("device") }
}

/// Sends `count` messages to the client, and returns the acknowledgements that they need.
fn unacknowledged(driver: &mut MemoryDriver, device: LinkId, count: u16) -> Vec<u8> {
    subscribe(driver, device, &["t"], QoS::AtLeastOnce);
    let publisher = enter(driver, connect("publisher"));
    for id in 1..=count {
        publish(driver, publisher, "t", QoS::AtLeastOnce, id);
    }
    let mut acknowledgements = Vec::new();
    take_packets(driver, device, V5, |packet| {
        if let Packet::Publish(Publish { packet_id: Some(id), .. }) = packet {
            acknowledgements.extend(encoded(&Packet::Puback(Acknowledgement::success(id)), V5));
        }
    });
    acknowledgements
}

#[test]
fn acknowledgements_that_were_sent_before_the_return_are_read_before_the_take_over() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let older = enter(&mut driver, lasting(true));
    let acknowledgements = unacknowledged(&mut driver, older, 20);
    assert_eq!(acknowledgements.len(), 20 * 4);
    driver.arrive(older, &acknowledgements);
    let newer = enter(&mut driver, lasting(false));
    assert!(driver.is_open(newer) && !driver.is_open(older));
    assert_eq!(take(&mut driver, newer, false), [""; 0], "nothing that was acknowledged comes again");
}

#[test]
fn a_disconnect_that_was_sent_before_the_return_ends_the_older_connection() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let watcher = enter(&mut driver, connect("watcher"));
    subscribe(&mut driver, watcher, &["gone"], QoS::AtMostOnce);
    let with_will = Connect { will: Some(will("gone", b"x", 0)), ..lasting(true) };
    let older = enter(&mut driver, with_will);
    let goodbye = Disconnect::new(ReasonCode::NORMAL_DISCONNECTION);
    driver.arrive(older, &encoded(&Packet::Disconnect(goodbye), V5));
    let newer = enter(&mut driver, lasting(false));
    assert!(driver.is_open(newer));
    assert_eq!(take(&mut driver, watcher, false), [""; 0], "the client has said goodbye: no will");
}

#[test]
fn an_older_connection_that_is_never_empty_delays_the_return_once() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let older = enter(&mut driver, lasting(true));
    unacknowledged(&mut driver, older, 20);
    // The front of a packet whose rest never comes.
    driver.arrive(older, &[0x30, 0xFF, 0xFF, 0x7F]);
    let newer = enter(&mut driver, lasting(false));
    assert!(driver.is_open(newer) && !driver.is_open(older));
    assert_eq!(take(&mut driver, newer, false).len(), 20, "what was not acknowledged comes again");
}
