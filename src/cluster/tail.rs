//! The end of the log of a cell that a node has, and the next frame behind it. Knows no engine, no
//! clock and no file.

use crate::ownership::{ChainBreak, ChainEnd, ChainLink, Claim, Position};
use crate::store::frame::cluster::{FrameKind, GroupBody, check_sign, put_sign};
use crate::store::frame::{Checked, Digest, FrameError, Head};
use crate::store::replicated::NextGroup;
use crate::store::sqlite::Mark;
use crate::store::sqlite::owner::OwnerMark;
use crate::store::wall::Heartbeat;
use bytes::Bytes;
use std::time::Duration;

/// Why a frame does not go into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// It does not continue the log that the node has.
    #[error("{0}")]
    Broken(#[from] ChainBreak),
    /// It is no frame that this program can read.
    #[error("{0}")]
    Unreadable(#[from] FrameError),
}

impl Unfit {
    /// Returns true if frames were lost or changed: a person has to decide what is true.
    pub(super) fn shows_a_change(&self) -> bool {
        matches!(
            self,
            Unfit::Broken(ChainBreak::AnotherPredecessor(_) | ChainBreak::AnotherEpoch { .. })
                | Unfit::Unreadable(FrameError::Digest | FrameError::Incomplete)
        )
    }
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    /// The identifier of the cluster's log.
    log: u64,
    cell: u16,
    /// The last frame, and the last Claim up to it.
    mark: Mark,
}

/// A frame that the node itself has made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub bytes: Bytes,
    pub digest: Digest,
    pub head: Head,
    kind: FrameKind,
}

impl Tail {
    /// Begins at the last frame that a database has.
    pub(super) fn new(log: u64, cell: u16, mark: Mark) -> Tail {
        Tail { log, cell, mark }
    }

    /// Returns the end of a log before a frame, as that frame says: for who checks a log from the
    /// middle on.
    pub(super) fn before(log: u64, cell: u16, position: u64, bytes: &[u8]) -> Tail {
        let mut mark = Mark { position: position - 1, ..Mark::default() };
        if let Ok(((_, head, _), kind)) = check_sign(bytes) {
            mark.digest = head.predecessor;
            let epoch = if let FrameKind::Claim(_) = kind { head.epoch - 1 } else { head.epoch };
            let claim = Claim { node: 0, directory: 0, boot: 0, epoch, lease: Duration::ZERO };
            mark.owner = Some(OwnerMark { claim, is_released: false });
        }
        Tail::new(log, cell, mark)
    }

    /// Returns the mark of the last frame.
    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    fn epoch(&self) -> u64 {
        self.mark.owner.map_or(0, |owner| owner.claim.epoch)
    }

    /// Checks that some bytes are the next frame of the log, at this position of the engine.
    pub(super) fn check<'a>(
        &self,
        position: u64,
        bytes: &'a [u8],
    ) -> Result<(Checked<'a>, FrameKind), Unfit> {
        let (checked, kind) = check_sign(bytes)?;
        let head = checked.1;
        let end = ChainEnd {
            log: self.log,
            cell: self.cell,
            epoch: self.epoch(),
            position: Position(self.mark.position),
            digest: number_of(self.mark.digest),
        };
        let link = ChainLink {
            log: head.log,
            cell: head.cell,
            epoch: head.epoch,
            position: Position(head.position),
            predecessor: number_of(head.predecessor),
            kind: kind.seen(),
        };
        end.check(&link)?;
        if position != head.position {
            let (found, next) = (Position(head.position), Position(position));
            return Err(ChainBreak::AnotherPosition { found, next }.into());
        }
        Ok((checked, kind))
    }

    /// Goes on behind a frame that was checked or made.
    pub(super) fn advance(&mut self, head: &Head, digest: Digest, kind: FrameKind) {
        self.mark = self.mark.behind(head, digest);
        match kind {
            FrameKind::Claim(claim) => self.mark.owner = Some(OwnerMark { claim, is_released: false }),
            FrameKind::Release => {
                self.mark.owner = self.mark.owner.map(|owner| OwnerMark { is_released: true, ..owner });
            }
            FrameKind::Group | FrameKind::Fragment | FrameKind::Beat => {}
        }
    }

    /// Goes on behind a frame that the node has made, and that the log has.
    pub(super) fn advance_made(&mut self, made: &Made) {
        self.advance(&made.head, made.digest, made.kind);
    }

    /// Makes the next frame: a Claim, a Beat or a Release.
    pub(super) fn make_sign(&self, kind: FrameKind, moment: Heartbeat) -> Made {
        let epoch = match kind {
            FrameKind::Claim(claim) => claim.epoch,
            _ => self.epoch(),
        };
        let head = Head { epoch, ..self.head(moment, self.mark.next_number) };
        let mut bytes = Vec::new();
        let digest = put_sign(&mut bytes, &head, kind);
        Made { bytes: bytes.into(), digest, head, kind }
    }

    /// Makes the next frame: a piece of a group, of at most this many bytes.
    pub(super) fn make_piece(&self, group: &NextGroup, number: usize, piece: usize) -> Made {
        let NextGroup { body, next_number, moment } = group;
        let head = self.head(*moment, *next_number);
        let mut bytes = Vec::with_capacity(body.len().min(piece) + 128);
        let digest = GroupBody::put_piece(body, &mut bytes, &head, number, piece);
        let is_last = number + 1 == body.pieces(piece);
        let kind = if is_last { FrameKind::Group } else { FrameKind::Fragment };
        Made { bytes: bytes.into(), digest, head, kind }
    }

    fn head(&self, moment: Heartbeat, next_number: u64) -> Head {
        Head {
            cell: self.cell,
            epoch: self.epoch(),
            log: self.log,
            position: self.mark.position + 1,
            moment,
            next_number: next_number.max(self.mark.next_number),
            // What the engine has reported is safe, so nothing before the frame can be missing.
            synced: self.mark.position,
            predecessor: self.mark.digest,
        }
    }
}

fn number_of(digest: Digest) -> u128 {
    let [low, high] = digest.halves();
    u128::from(low) | u128::from(high) << 64
}
