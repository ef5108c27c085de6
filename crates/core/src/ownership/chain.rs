//! Whether a frame continues the log that a node has. A frame that does not is not applied.

use super::{Position, SeenKind};

/// The end of the log that a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEnd {
    /// The identifier of the cluster's log.
    pub log: u64,
    /// The number of the cell.
    pub cell: u16,
    /// The epoch of the last Claim.
    pub epoch: u64,
    /// The last position.
    pub position: Position,
    /// The digest of the frame there.
    pub digest: u128,
}

/// What a frame says about its place, beside its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainLink {
    /// The identifier of the log that it is of.
    pub log: u64,
    /// The number of its cell.
    pub cell: u16,
    /// Its epoch. A Claim is the first frame of its own.
    pub epoch: u64,
    /// Its position.
    pub position: Position,
    /// The digest of the frame before.
    pub predecessor: u128,
    /// Its kind.
    pub kind: SeenKind,
}

/// The reason why a frame does not continue a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainBreak {
    /// The stream is that of another cluster.
    #[error("it is of log {found:016x}, and this node is of log {own:016x}")]
    AnotherLog {
        /// The log of the frame.
        found: u64,
        /// The log of the node.
        own: u64,
    },
    /// The stream is that of another cell.
    #[error("it is of cell {found}, and the stream is that of cell {own}")]
    AnotherCell {
        /// The cell of the frame.
        found: u16,
        /// The cell of the node.
        own: u16,
    },
    /// The frame says another position than the engine does, or is not the next one.
    #[error("it is frame {} of its log, and frame {} is next", .found.0, .next.0)]
    AnotherPosition {
        /// The position of the frame.
        found: Position,
        /// The next position.
        next: Position,
    },
    /// The frame before is not the one that this node has.
    #[error("the frame before it is not the one that this node has at position {}", .0.0)]
    AnotherPredecessor(Position),
    /// The epoch is not the present one, or a Claim's is not the next one.
    #[error("it is of epoch {found}, and epoch {expected} is due")]
    AnotherEpoch {
        /// The epoch of the frame.
        found: u64,
        /// The only right one.
        expected: u64,
    },
}

/// What a node does that meets a [`ChainBreak`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// It ends: it was told to read what is not its log. The others go on.
    Stop,
    /// It writes an alarm: frames were changed or lost.
    Alarm,
}

impl ChainBreak {
    /// Returns what a node does.
    pub fn consequence(&self) -> Consequence {
        match self {
            ChainBreak::AnotherLog { .. } | ChainBreak::AnotherCell { .. } => Consequence::Stop,
            ChainBreak::AnotherPosition { .. }
            | ChainBreak::AnotherPredecessor(_)
            | ChainBreak::AnotherEpoch { .. } => Consequence::Alarm,
        }
    }
}

impl ChainEnd {
    /// Checks that a frame is the next one.
    ///
    /// # Errors
    /// It is not. The first reason counts: a frame of another log has nothing else that fits.
    pub fn check(&self, link: &ChainLink) -> Result<(), ChainBreak> {
        let next = self.position.next();
        let expected = match link.kind {
            SeenKind::Claim(claim) if claim.epoch != link.epoch => claim.epoch,
            SeenKind::Claim(_) => self.epoch + 1,
            SeenKind::Release | SeenKind::Other => self.epoch,
        };
        if link.log != self.log {
            Err(ChainBreak::AnotherLog { found: link.log, own: self.log })
        } else if link.cell != self.cell {
            Err(ChainBreak::AnotherCell { found: link.cell, own: self.cell })
        } else if link.position != next {
            Err(ChainBreak::AnotherPosition { found: link.position, next })
        } else if link.predecessor != self.digest {
            Err(ChainBreak::AnotherPredecessor(self.position))
        } else if link.epoch != expected {
            Err(ChainBreak::AnotherEpoch { found: link.epoch, expected })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Claim;
    use super::*;
    use std::time::Duration;

    const END: ChainEnd = ChainEnd { log: 9, cell: 2, epoch: 4, position: Position(10), digest: 77 };
    const NEXT: ChainLink = ChainLink {
        log: 9,
        cell: 2,
        epoch: 4,
        position: Position(11),
        predecessor: 77,
        kind: SeenKind::Other,
    };

    fn claim(epoch: u64) -> SeenKind {
        SeenKind::Claim(Claim { node: 0, directory: 1, boot: 1, epoch, lease: Duration::from_secs(4) })
    }

    #[test]
    fn the_next_frame_continues_the_log() {
        assert_eq!(END.check(&NEXT), Ok(()));
        assert_eq!(END.check(&ChainLink { kind: SeenKind::Release, ..NEXT }), Ok(()));
        assert_eq!(END.check(&ChainLink { kind: claim(5), epoch: 5, ..NEXT }), Ok(()));
    }

    #[test]
    fn any_other_frame_is_refused_with_its_reason() {
        let cases = [
            (ChainLink { log: 8, ..NEXT }, Consequence::Stop, "it is of log 0000000000000008, and"),
            (
                ChainLink { cell: 0, ..NEXT },
                Consequence::Stop,
                "it is of cell 0, and the stream is that of cell 2",
            ),
            (
                ChainLink { position: Position(12), ..NEXT },
                Consequence::Alarm,
                "it is frame 12 of its log, and frame 11",
            ),
            (
                ChainLink { position: Position(10), ..NEXT },
                Consequence::Alarm,
                "it is frame 10 of its log, and frame 11",
            ),
            (ChainLink { predecessor: 78, ..NEXT }, Consequence::Alarm, "the frame before it is not the one"),
            (ChainLink { epoch: 3, ..NEXT }, Consequence::Alarm, "it is of epoch 3, and epoch 4 is due"),
            (ChainLink { epoch: 5, ..NEXT }, Consequence::Alarm, "it is of epoch 5, and epoch 4 is due"),
            (
                ChainLink { kind: claim(4), ..NEXT },
                Consequence::Alarm,
                "it is of epoch 4, and epoch 5 is due",
            ),
            (
                ChainLink { kind: claim(6), epoch: 6, ..NEXT },
                Consequence::Alarm,
                "it is of epoch 6, and epoch 5 is due",
            ),
            (
                ChainLink { kind: claim(5), epoch: 4, ..NEXT },
                Consequence::Alarm,
                "it is of epoch 4, and epoch 5 is due",
            ),
        ];
        for (link, consequence, text) in cases {
            let broken = END.check(&link).expect_err("it is refused");
            assert_eq!(broken.consequence(), consequence, "{broken}");
            assert!(broken.to_string().starts_with(text), "{broken}");
        }
    }
}
