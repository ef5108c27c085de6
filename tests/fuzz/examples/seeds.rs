//! Writes the wire cases as seeds: `cargo run --example seeds` in this folder, before the first run
//! of a target.

use std::fs;
use std::path::Path;

#[path = "../../../crates/core/src/mqtt/codec/cases.rs"]
#[expect(dead_code, reason = "seeds are bytes; what is expected of them the tests say")]
mod cases;

use cases::{FIRST_PACKETS, LATER_PACKETS};

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let (decoder, session) = (corpus.join("decoder"), corpus.join("session"));
    fs::create_dir_all(&decoder)?;
    fs::create_dir_all(&session)?;
    for case in FIRST_PACKETS {
        fs::write(decoder.join(format!("first_{}", case.name)), [&[0, 3][..], case.bytes].concat())?;
        fs::write(session.join(format!("first_{}", case.name)), script(&[case.bytes]))?;
    }
    for case in LATER_PACKETS {
        let selector = case.level - 2;
        let name = format!("later_{}_{}", case.level, case.name);
        fs::write(decoder.join(&name), [&[selector, 3][..], case.bytes].concat())?;
        let connect =
            FIRST_PACKETS.iter().find(|first| first.level == case.level).map_or(&[][..], |c| c.bytes);
        fs::write(session.join(&name), script(&[connect, case.bytes]))?;
    }
    Ok(())
}

/// A script in which the first client sends these packets: see `tests/in_memory/script.rs`.
fn script(packets: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for packet in packets {
        for piece in packet.chunks(255) {
            out.extend([0, piece.len() as u8]);
            out.extend(piece);
        }
    }
    out
}
