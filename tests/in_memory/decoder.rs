//! Properties of the decoder that hold for any bytes, through every way into it.
//!
//! An input is one byte that says which decoder, one that settles how the stream is split, and the
//! stream.

use homing::mqtt::codec::{DecodeError, Decoded, decode, decode_connect, encode};
use homing::mqtt::packet::{Packet, ProtocolVersion};

/// Bytes that decoding may allocate for each byte it was given, and besides. The worst is a list of
/// the shortest User Properties, 5 bytes on the wire and 32 as a value, in a `Vec` that doubles as
/// it grows.
const ALLOCATED_PER_BYTE: usize = 64;
const ALLOCATED_BESIDES: usize = 4 * 1024;

/// The end of a stream.
#[derive(Debug, PartialEq)]
pub enum End {
    /// Within a packet, or behind the last one.
    Incomplete,
    Error(DecodeError),
}

/// The decoder that an input asks for.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// `None`: the first packet has to be CONNECT and settles it.
    pub version: Option<ProtocolVersion>,
    pub max_packet_size: u32,
}

impl Entry {
    pub fn of(selector: u8) -> Entry {
        let version = match selector & 3 {
            0 => None,
            1 => Some(ProtocolVersion::V3_1),
            2 => Some(ProtocolVersion::V3_1_1),
            _ => Some(ProtocolVersion::V5),
        };
        Entry { version, max_packet_size: if selector & 4 == 0 { 268_435_460 } else { 40 } }
    }

    /// Decodes the packet at the front of `bytes`, on a connection whose CONNECT named `version`.
    fn decode(self, bytes: &[u8], version: Option<ProtocolVersion>) -> Result<Decoded<'_>, DecodeError> {
        match version {
            None => decode_connect(bytes, self.max_packet_size),
            Some(version) => decode(bytes, version, self.max_packet_size),
        }
    }
}

/// Panics where the decoder does not hold what it must.
pub fn check(input: &[u8]) {
    let [selector, seed, stream @ ..] = input else { return };
    let entry = Entry::of(*selector);
    let whole = packets(entry, stream);
    let split = split_packets(entry, pieces(stream, u64::from(*seed)), stream.len());
    assert_eq!(split, whole, "{entry:?}, seed {seed}, {stream:02X?}");
}

/// The packets of a stream, each as its bytes, by [`decode`] on the whole of it.
pub fn packets(entry: Entry, stream: &[u8]) -> (Vec<Vec<u8>>, End) {
    let mut version = entry.version;
    let mut out = Vec::new();
    let mut rest = stream;
    loop {
        let mut decoded = Ok(Decoded::Incomplete { needed: 0 });
        let allocated = allocated(|| {
            decoded = entry.decode(rest, version);
        });
        assert!(
            allocated <= (rest.len() * ALLOCATED_PER_BYTE + ALLOCATED_BESIDES) as u64,
            "{allocated} bytes allocated for {rest:02X?}"
        );
        match decoded {
            Ok(Decoded::Incomplete { needed }) => {
                assert!(needed > rest.len() && needed <= entry.max_packet_size as usize, "{needed}");
                return (out, End::Incomplete);
            }
            Err(error) => return (out, End::Error(error)),
            Ok(Decoded::Packet { packet, length }) => {
                assert!((2..=rest.len()).contains(&length), "{length} of {}", rest.len());
                if let Packet::Connect(connect) = &packet
                    && version.is_none()
                {
                    version = Some(connect.version);
                }
                check_encoding(&packet, version.unwrap_or(ProtocolVersion::V5));
                let (bytes, behind) = rest.split_at(length);
                out.push(bytes.to_vec());
                rest = behind;
            }
        }
    }
}

/// Asserts that the encoding of a decoded packet decodes to the same packet.
fn check_encoding(packet: &Packet<'_>, version: ProtocolVersion) {
    let mut bytes = Vec::new();
    encode(packet, version, &mut bytes).expect("what was decoded fits the protocol");
    let again = decode(&bytes, version, u32::MAX);
    assert_eq!(again, Ok(Decoded::Packet { packet: packet.clone(), length: bytes.len() }));
}

/// The same from a buffer that grows by one piece after the other, as a connection reads.
pub fn split_packets<'a>(
    entry: Entry,
    pieces: impl Iterator<Item = &'a [u8]>,
    length: usize,
) -> (Vec<Vec<u8>>, End) {
    let mut version = entry.version;
    let mut buffer = Vec::with_capacity(length);
    let mut start = 0;
    let mut out = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let rest = buffer.get(start..).expect("no packet is longer than the bytes");
            match entry.decode(rest, version) {
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return (out, End::Error(error)),
                Ok(Decoded::Packet { packet, length }) => {
                    if let (Packet::Connect(connect), None) = (&packet, version) {
                        version = Some(connect.version);
                    }
                    out.push(rest[..length].to_vec());
                    start += length;
                }
            }
        }
    }
    (out, End::Incomplete)
}

/// Splits a stream: byte by byte for seed 0, else into pieces of up to `seed % 256 + 1` bytes.
pub fn pieces(stream: &[u8], seed: u64) -> impl Iterator<Item = &[u8]> {
    let most = 1 + seed % 256;
    let mut state = seed;
    let mut rest = stream;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = (1 + (state >> 33) % most) as usize;
        let (piece, behind) = rest.split_at(length.min(rest.len()));
        rest = behind;
        Some(piece)
    })
}

/// Bytes that this thread allocates within `work`.
pub fn allocated(work: impl FnOnce()) -> u64 {
    let counter = tikv_jemalloc_ctl::thread::allocatedp::read().expect("jemalloc has statistics");
    let before = counter.get();
    work();
    counter.get() - before
}
