//! What an owner has: a lease, and at most one append under way.

use super::undecided::UndecidedAppend;
use super::{AppendKind, Progress, Timing};
use crate::time::Instant;

/// The time of one owner, from its Claim to its end.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) pending: Option<UndecidedAppend>,
    /// The end of the lease that the stored appends give.
    lease_until: Instant,
    /// The time when the last stored append was first sent.
    stored_sent: Instant,
    /// The time of the first promise that no later append covers.
    promised: Option<Instant>,
    group_waits: bool,
    /// The time before which no beat leaves, after the engine refused one.
    rest_until: Instant,
    reach: Reach,
}

/// The clients of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// They are connected.
    Open,
    /// They were disconnected, because no append was stored for too long.
    Isolated,
}

/// A change of [`Reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachChange {
    Isolate,
    Rejoin,
}

impl Tenure {
    /// Begins with a Claim that the log holds.
    pub(super) fn begin(claim: UndecidedAppend, timing: &Timing) -> Tenure {
        let sent = claim.first_sent;
        Tenure {
            pending: None,
            lease_until: sent + timing.lease,
            stored_sent: sent,
            promised: None,
            group_waits: false,
            rest_until: Instant::ZERO,
            reach: Reach::Open,
        }
    }

    pub(super) fn lease_until(&self) -> Instant {
        self.lease_until
    }

    /// The pending append is stored: the lease counts from its first attempt, because a standby may
    /// have seen the frame from then on.
    pub(super) fn stored(&mut self, append: UndecidedAppend, timing: &Timing) -> Option<ReachChange> {
        self.pending = None;
        self.stored_sent = append.first_sent;
        self.lease_until = append.first_sent + timing.lease;
        let was = std::mem::replace(&mut self.reach, Reach::Open);
        (was == Reach::Isolated).then_some(ReachChange::Rejoin)
    }

    /// The pending beat was refused for certain, because the log is full.
    pub(super) fn beat_refused(&mut self, rest_until: Instant) {
        self.pending = None;
        self.rest_until = rest_until;
    }

    /// The pending group was refused for certain, because the log has no room for it. It may have
    /// room for a beat, without which a standby takes over.
    pub(super) fn group_refused(&mut self) {
        self.pending = None;
    }

    /// A promise leaves by the lease alone.
    pub(super) fn promised(&mut self, now: Instant) {
        self.promised.get_or_insert(now);
    }

    pub(super) fn group_waits(&mut self) {
        self.group_waits = true;
    }

    pub(super) fn has_group(&self) -> bool {
        self.group_waits
    }

    /// Returns the next frame, if one is due and nothing is under way.
    pub(super) fn due(&self, now: Instant, progress: Progress, timing: &Timing) -> Option<AppendKind> {
        if self.pending.is_some() {
            return None;
        }
        if self.group_waits {
            return Some(AppendKind::Group);
        }
        let is_due = now.since(self.stored_sent) >= timing.beat
            || self.promised.is_some_and(|promised| now.since(promised) >= timing.early_beat);
        // A beat says that the owner works. Without it a standby takes over from one that hangs.
        (is_due && now >= self.rest_until && progress == Progress::Moving).then_some(AppendKind::Beat)
    }

    /// Notes an append that leaves now. It covers every promise before it.
    pub(super) fn sends(&mut self, append: UndecidedAppend) {
        if append.kind == AppendKind::Group {
            self.group_waits = false;
        }
        self.promised = None;
        self.pending = Some(append);
    }

    /// Returns the change of an owner that has had no stored append for too long.
    pub(super) fn isolation(&mut self, now: Instant, timing: &Timing) -> Option<ReachChange> {
        let is_new = self.reach == Reach::Open && now.since(self.stored_sent) >= timing.isolation;
        is_new.then(|| {
            self.reach = Reach::Isolated;
            ReachChange::Isolate
        })
    }
}
