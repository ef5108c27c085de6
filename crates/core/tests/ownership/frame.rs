//! Frames as the simulations write them: what ownership and the oracle need, as numbers, and the
//! content of a group, which only its occupant reads.

use bytes::Bytes;
use homing_core::persistence::ownership::{AppendKind, ChainLink, Claim, Position, SeenKind};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub cell: u64,
    pub epoch: u64,
    /// The process that wrote it.
    pub writer: u64,
    /// The digest of the frame before.
    pub predecessor: u64,
    pub kind: AppendKind,
    pub content: Bytes,
}

impl Frame {
    pub fn bytes(&self) -> Bytes {
        let (kind, claim) = match self.kind {
            AppendKind::Claim(claim) => (1, Some(claim)),
            AppendKind::Group => (2, None),
            AppendKind::Beat => (3, None),
            AppendKind::Release => (4, None),
        };
        let mut numbers = vec![self.cell, self.epoch, self.writer, self.predecessor, kind];
        if let Some(Claim { node, directory, boot, epoch, lease }) = claim {
            numbers.extend([u64::from(node), directory, boot, epoch, lease.as_millis() as u64]);
        }
        let mut bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend(&self.content);
        bytes.into()
    }

    pub fn read(bytes: &Bytes) -> Frame {
        let mut rest = bytes.clone();
        let mut next = || u64::from_le_bytes(rest.split_to(8)[..].try_into().expect("8 bytes"));
        let [cell, epoch, writer, predecessor] = [next(), next(), next(), next()];
        let kind = match next() {
            1 => AppendKind::Claim(Claim {
                node: next() as u16,
                directory: next(),
                boot: next(),
                epoch: next(),
                lease: Duration::from_millis(next()),
            }),
            2 => AppendKind::Group,
            3 => AppendKind::Beat,
            _ => AppendKind::Release,
        };
        Frame { cell, epoch, writer, predecessor, kind, content: rest }
    }

    /// Returns what it says about its place in a log.
    pub fn link(&self, log: u64, position: Position) -> ChainLink {
        let (cell, predecessor) = (self.cell as u16, u128::from(self.predecessor));
        ChainLink { log, cell, epoch: self.epoch, position, predecessor, kind: self.seen() }
    }

    pub fn seen(&self) -> SeenKind {
        SeenKind::from(self.kind)
    }
}

/// The digest of a frame.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
