//! A stream says the same however it is split, through the tokio codec and through a shard; and no
//! bytes make either allocate more than bytes can need.

use crate::cases::{Expected, FIRST_PACKETS, LATER_PACKETS};
use crate::decoder::{self, Entry, allocated, pieces, split_packets};
use crate::driver::{self, LinkId, MemoryDriver};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Packets of one version, CONNECT first and mostly legal, some with a byte changed.
fn streams() -> impl Strategy<Value = Vec<u8>> {
    select(vec![3_u8, 4, 5]).prop_flat_map(|level| {
        let (first, later): (Vec<_>, Vec<_>) = (
            FIRST_PACKETS
                .iter()
                .filter(|c| c.level == level && legal(&c.expected))
                .map(|c| c.bytes)
                .collect(),
            // Every version has what 3.1.1 has.
            LATER_PACKETS
                .iter()
                .filter(|c| (c.level == level || level == 3 && c.level == 4) && legal(&c.expected))
                .filter(|c| from_a_client(c.bytes))
                .map(|c| c.bytes)
                .collect(),
        );
        let changed = (any::<Index>(), any::<u8>(), 0..4_u8);
        (select(first), vec(select(later), 0..12), changed).prop_map(|(first, later, (at, byte, odds))| {
            let mut stream = [first, &later.concat()].concat();
            if odds == 0 {
                let at = at.index(stream.len());
                stream[at] = byte;
            }
            stream
        })
    })
}

fn legal(expected: &Expected) -> bool {
    matches!(expected, Expected::Packet(_) | Expected::Tolerated(_))
}

/// Neither what only a server sends nor AUTH, behind which nothing more is read; DISCONNECT seldom
/// enough.
fn from_a_client(bytes: &[u8]) -> bool {
    matches!(bytes.first().map(|first| first >> 4), Some(3..=8 | 10 | 12))
}

proptest! {
    #[test]
    fn a_growing_buffer_gives_the_same_packets_however_a_stream_is_split(
        stream in streams(),
        selector in 0..4_u8,
        seed in any::<u64>(),
    ) {
        let entry = Entry::of(selector);
        let split = split_packets(entry, pieces(&stream, seed), stream.len());
        prop_assert_eq!(split, decoder::packets(entry, &stream));
    }

    #[test]
    fn a_shard_does_the_same_however_a_stream_is_split(stream in streams(), seed in any::<u64>()) {
        let whole = what_follows(std::iter::once(&stream[..]));
        prop_assert_eq!(what_follows(pieces(&stream, seed)), whole.clone());
        prop_assert_eq!(what_follows(pieces(&stream, 0)), whole);
    }

    #[test]
    fn arbitrary_bytes_never_make_the_decoder_allocate_much(
        selector in 0..8_u8,
        seed in any::<u8>(),
        bytes in vec(any::<u8>(), 0..2_000),
    ) {
        decoder::check(&[&[selector, seed], &bytes[..]].concat());
    }
}

/// Returns the bytes for the client, if it is still connected, and the bytes for a subscriber of
/// `#`.
fn what_follows<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool, Vec<u8>) {
    let mut driver = MemoryDriver::new(&driver::settings(), 1);
    let observer = observer(&mut driver);
    let client = driver.open();
    for piece in pieces {
        driver.send(client, piece);
    }
    let connected = driver.is_open(client);
    (driver.links[client].received.clone(), connected, driver.links[observer].received.clone())
}

fn observer(driver: &mut MemoryDriver) -> LinkId {
    let link = driver.open();
    driver.send(link, b"\x10\x0F\0\x04MQTT\x04\x02\0\0\0\x03obs");
    driver.send(link, b"\x82\x06\0\x01\0\x01#\x02");
    assert_eq!(driver.links[link].received, b"\x20\x02\0\0\x90\x03\0\x01\x02");
    link
}

#[test]
fn streams_get_somewhere() {
    let (written, connected, observed) = what_follows(std::iter::once(
        &b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01a\x32\x07\0\x01t\x12\x34hi\xC0\0"[..],
    ));
    assert_eq!(written, b"\x20\x02\0\0\x40\x02\x12\x34\xD0\0");
    assert!(connected);
    assert_eq!(observed[9..], *b"\x32\x07\0\x01t\0\x01hi");
}

#[test]
fn the_longest_lists_stay_within_what_a_byte_may_allocate() {
    let user_properties = b"\x26\0\0\0\0".repeat(4_000);
    let mut publish = b"\x30\xA4\x9C\x01\0\x01t\xA0\x9C\x01".to_vec();
    publish.extend(&user_properties);
    let mut subscribe = b"\x82\xE2\xD4\x03\0\x01".to_vec();
    subscribe.extend(b"\0\0\0".repeat(20_000));
    let mut unsuback = b"\xB0\xA3\x9C\x01\0\x01\0".to_vec();
    unsuback.extend([0; 20_000]);
    for packet in [publish, subscribe, unsuback] {
        for selector in 0..4 {
            decoder::check(&[&[selector, 200], &packet[..]].concat());
        }
    }
}

#[test]
fn a_claimed_length_makes_a_shard_keep_only_what_came() {
    let mut settings = driver::settings();
    settings.session.connect.packet_size = u32::MAX;
    let mut driver = MemoryDriver::new(&settings, 1);
    let client = driver.open();
    driver.send(client, b"\x10\x0D\0\x04MQTT\x04\x02\0\x3C\0\x01a");
    let claim = b"\x30\xFF\xFF\xFF\x7F\0\x01t";
    let bytes_allocated = allocated(|| driver.send(client, claim));
    assert!(bytes_allocated < 16 * 1024, "{bytes_allocated}");
    assert_eq!(driver.shards[0].usage().partial_bytes, claim.len());
}
