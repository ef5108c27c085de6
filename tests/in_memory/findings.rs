//! The failures that fuzzing found, as named cases, and the seeds of fuzzing.

use crate::cases::{FIRST_PACKETS, LATER_PACKETS};
use crate::driver::{self, MemoryDriver};
use crate::{decoder, script};

#[test]
fn a_claimed_length_makes_the_tokio_codec_reserve_little() {
    decoder::check(b"\x03\x03\xA2\xED\xED\xED\x03\0\x01\0");
}

#[test]
fn a_connect_that_is_not_awaited_does_not_settle_the_version_of_the_tokio_codec() {
    decoder::check(b"\x02\x03\x10\x0E\0\x04MQTT\x05\x02\0<\0\0\x01a\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
}

// 5.0 [MQTT-3.1.0-2]
#[test]
fn v5_a_second_connect_of_another_protocol_is_a_protocol_error() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let client = driver.open();
    driver.send(client, b"\x10\x0E\0\x04MQTT\x05\x02\0\x3C\0\0\x01a");
    let connack = driver.links[client].received.len();
    assert!(connack > 0 && driver.is_open(client));
    driver.send(client, b"\x10\x05\0\x01t\x02\x01");
    // DISCONNECT with 0x84 is none that 5.0 [MQTT-3.14.2-1] knows.
    assert!(matches!(driver.links[client].received[connack..], [0xE0, _, 0x82, ..]));
    assert!(!driver.is_open(client));
}

#[test]
fn a_connection_that_lingers_beyond_its_keep_alive_ends() {
    script::run(
        // A PINGREQ with flags, then 400 s.
        b"\0\0\0\x10\x10\x0E\0\x04MQTT\x05\x02\0\x01\0\0\x01a\0\x01\xC1\x54",
    );
}

/// A receiver whose connection dies after the ack of the publisher must have had its chance to get
/// the message.
#[test]
fn a_publisher_is_answered_after_its_messages_were_written_to_their_receivers() {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let [publisher, a, b] = [(); 3].map(|()| driver.open());
    for (link, id) in [(publisher, b"p"), (a, b"a"), (b, b"b")] {
        driver.send(link, &[b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01", &id[..]].concat());
    }
    driver.send(a, b"\x82\x06\0\x01\0\x01a\x01");
    driver.send(b, b"\x82\x06\0\x01\0\x01b\x01");
    driver.writes.clear();
    // QoS 1, to a, then to b, in one read.
    driver.send(publisher, b"\x32\x06\0\x01a\0\x01x\x32\x06\0\x01b\0\x02x");
    assert_eq!(driver.writes, [a, b, publisher]);
}

#[test]
fn every_wire_case_holds_what_the_fuzz_targets_check() {
    for case in FIRST_PACKETS.iter().chain(LATER_PACKETS) {
        for selector in 0..8 {
            for seed in [0, 3] {
                decoder::check(&[&[selector, seed], case.bytes].concat());
            }
        }
    }
}

#[test]
fn every_wire_case_behind_every_connect_holds_what_the_fuzz_targets_check() {
    for first in FIRST_PACKETS {
        for later in LATER_PACKETS {
            for settings in [[0, 0], [1, 0xFF]] {
                let mut steps = settings.to_vec();
                for packet in [first.bytes, later.bytes] {
                    steps.push(0);
                    steps.push(packet.len() as u8);
                    steps.extend(packet);
                }
                script::run(&steps);
            }
        }
    }
}
