//! Frames of a client: what passes, and the close code of what does not.

use super::*;

const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// Returns a masked frame with this first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let (mut header, len) = header(0, payload.len());
    header[0] = first;
    header[1] |= MASKED;
    let mut bytes = header[..len].to_vec();
    bytes.extend_from_slice(&MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Opens `wire` in chunks of `chunk` bytes; returns the payload and the replies.
fn open(ws: &mut Ws, wire: &[u8], chunk: usize) -> Result<(Vec<u8>, Vec<u8>), FrameError> {
    let (mut plain, mut out) = (Vec::new(), Vec::new());
    for part in wire.chunks(chunk) {
        let mut part = part.to_vec();
        let kept = ws.open(&mut part, &mut out)?;
        plain.extend_from_slice(&part[..kept]);
    }
    Ok((plain, out))
}

#[test]
fn payload_passes_in_any_chunks() {
    let long = vec![7; 70_000];
    let wire = [
        frame(FIN | BINARY, b"one"),
        frame(BINARY, b"tw"),
        frame(FIN | PING, b"hello"),
        frame(CONTINUATION, b""),
        frame(FIN | PONG, b"skipped"),
        frame(FIN | CONTINUATION, b"o"),
        frame(FIN | BINARY, &[9; 300]),
        frame(FIN | BINARY, &long),
    ]
    .concat();
    let expected = [&b"onetwo"[..], &[9; 300], &long].concat();
    for chunk in [1, 2, 3, 5, 7, 13, 64, 1000, usize::MAX] {
        let (plain, out) = open(&mut Ws::new(), &wire, chunk).unwrap();
        assert!(plain == expected, "chunks of {chunk}");
        assert_eq!(out, b"\x8A\x05hello");
    }
}

#[test]
fn only_the_newest_of_several_pings_gets_a_pong() {
    let wire = [frame(FIN | PING, b"1"), frame(FIN | PING, b"2"), frame(FIN | PING, b"3")].concat();
    assert_eq!(open(&mut Ws::new(), &wire, usize::MAX).unwrap().1, b"\x8A\x013");
}

#[test]
fn forbidden_frames_are_refused_by_code_as_soon_as_they_can_be_seen() {
    let masked = |first: u8, len: u8| vec![first, MASKED | len];
    let with_len = |len: u64| [&[FIN | BINARY, MASKED | 127][..], &len.to_be_bytes(), &MASK].concat();
    let cases: [(Vec<u8>, FrameError); 19] = [
        (vec![FIN | BINARY, 5], UNMASKED),
        (masked(FIN | 0x40 | BINARY, 5), RESERVED_BIT),
        (masked(FIN | 0x20 | BINARY, 5), RESERVED_BIT),
        (masked(FIN | 0x10 | BINARY, 5), RESERVED_BIT),
        (masked(FIN | TEXT, 5), NOT_BINARY),
        (masked(FIN | 0x3, 5), UNKNOWN_OPCODE),
        (masked(FIN | 0x7, 5), UNKNOWN_OPCODE),
        (masked(FIN | 0xB, 5), UNKNOWN_OPCODE),
        (masked(FIN | 0xF, 5), UNKNOWN_OPCODE),
        (masked(FIN | PING, 126), LONG_CONTROL),
        (masked(FIN | CLOSE, 127), LONG_CONTROL),
        (masked(PING, 5), FRAGMENTED_CONTROL),
        (masked(FIN | CONTINUATION, 5), NO_START),
        ([frame(BINARY, b"a"), masked(FIN | BINARY, 5)].concat(), UNFINISHED),
        (with_len(1 << 63), TOO_BIG),
        (with_len(u64::MAX), TOO_BIG),
        (with_len(0xFFFF), NOT_SHORTEST),
        (frame(FIN | CLOSE, b"x"), INVALID_CLOSE),
        (frame(FIN | CLOSE, b"\x03\xE8\xFF"), NOT_UTF8),
    ];
    for (wire, expected) in cases {
        for chunk in [1, usize::MAX] {
            let mut ws = Ws::new();
            assert_eq!(open(&mut ws, &wire, chunk).unwrap_err(), expected);
            assert!(ws.is_closed());
            // The state sends nothing more after its close frame.
            let mut out = Vec::new();
            ws.close(&mut out);
            assert!(out.is_empty());
        }
        let (mut out, [high, low]) = (Vec::new(), expected.code().to_be_bytes());
        Ws::new().open(&mut wire.clone(), &mut out).unwrap_err();
        assert_eq!(out, [FIN | CLOSE, 2, high, low]);
    }
}

#[test]
fn a_frame_of_almost_2_63_bytes_streams_through() {
    let mut ws = Ws::new();
    let header = [&[FIN | BINARY, MASKED | 127][..], &((1_u64 << 63) - 1).to_be_bytes(), &[0; 4]].concat();
    open(&mut ws, &header, usize::MAX).unwrap();
    for _ in 0..100 {
        assert_eq!(open(&mut ws, &[42; 1000], usize::MAX).unwrap().0, [42; 1000]);
    }
    assert!(size_of::<Ws>() <= 24, "{}", size_of::<Ws>());
}

#[test]
fn a_close_frame_is_echoed_and_ends_the_stream() {
    for (sent, reply) in [
        (&b"\x03\xE8bye"[..], &b"\x88\x02\x03\xE8"[..]),
        (b"", b"\x88\x00"),
        (b"\x0F\xA0", b"\x88\x02\x0F\xA0"),
    ] {
        let mut ws = Ws::new();
        let wire = [frame(FIN | BINARY, b"last"), frame(FIN | CLOSE, sent), frame(FIN | TEXT, b"x")].concat();
        let (plain, out) = open(&mut ws, &wire, usize::MAX).unwrap();
        assert_eq!((plain.as_slice(), out.as_slice()), (&b"last"[..], reply));
        assert!(ws.is_closed());
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000_u16] {
        let wire = frame(FIN | CLOSE, &code.to_be_bytes());
        assert_eq!(open(&mut Ws::new(), &wire, 3).unwrap_err(), INVALID_CLOSE);
    }
}

#[test]
fn a_sealed_header_has_the_shortest_length() {
    for (len, expected) in [
        (0, &[0x82, 0][..]),
        (125, &[0x82, 125]),
        (126, &[0x82, 126, 0, 126]),
        (0xFFFF, &[0x82, 126, 0xFF, 0xFF]),
        (0x1_0000, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let (header, header_len) = Ws::header(len);
        assert_eq!(&header[..header_len], expected);
    }
}
