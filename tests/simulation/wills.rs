//! When wills go out, as the standard has it.

use crate::crash::Survival;
use crate::oracle::Oracle;
use homing::events::client_events::DisconnectCause;
use homing::mqtt::packet::ReasonCode;

/// The will of each client's session, while it is not settled whether it goes out.
pub struct Wills {
    live: Vec<Option<Will>>,
    /// Those that do not go out, and since when that is settled.
    dropped: Vec<(usize, u64)>,
}

struct Will {
    message: usize,
    /// Milliseconds.
    delay: u64,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its connection lasts.
    Armed,
    /// Another connection of its client ended its own: that one's CONNECT settles it.
    TakenOver { wait: u64 },
    /// It goes out then, or at the end of the session.
    Due(u64),
    /// The same after a crash: the broker counts from when it begins again, not from when it
    /// listens.
    Again { from: u64, until: u64 },
    /// A crash was about when it was due: it goes out in time, and may be revoked by who comes back
    /// before.
    Vague,
}

impl Wills {
    pub fn new(clients: usize) -> Wills {
        Wills { live: (0..clients).map(|_| None).collect(), dropped: Vec::new() }
    }
}

impl Oracle {
    /// A connection began that has this will, if any, of a delay in seconds. `late`: how long the
    /// broker may take to bring an earlier one out.
    // 5.0 [MQTT-3.1.2-8], [MQTT-3.1.3-9]
    pub fn will_begins(
        &mut self,
        now: u64,
        client: usize,
        will: Option<(usize, u32)>,
        resumed: bool,
        late: u64,
    ) {
        if let Some(Will { message, fate, .. }) = self.wills.live[client].take() {
            match fate {
                // The end of the session ends the delay; one that expired while the broker was down
                // ended at its return.
                Fate::Due(due) | Fate::Again { until: due, .. } if !resumed => {
                    let from = self.messages[message].first_sent.min(due).min(now);
                    self.publish_will(message, from, due.min(now) + late);
                }
                Fate::Due(due) | Fate::Again { from: due, .. } if due > now => {
                    self.revoke_will(message);
                    self.wills.dropped.push((message, now));
                }
                Fate::TakenOver { wait } if resumed && wait > 0 => self.wills.dropped.push((message, now)),
                Fate::TakenOver { .. } => self.publish_will(message, now, now + late),
                Fate::Vague | Fate::Again { .. } => {
                    let message = &mut self.messages[message];
                    message.acknowledged = message.acknowledged.filter(|at| *at <= now);
                }
                Fate::Due(_) | Fate::Armed => {}
            }
        }
        self.wills.live[client] =
            will.map(|(message, delay)| Will { message, delay: u64::from(delay) * 1_000, fate: Fate::Armed });
    }

    /// The connection ended, after its DISCONNECT changed the session's expiry.
    // 3.1.1 [MQTT-3.1.2-8], [MQTT-3.1.2-10]; 5.0 [MQTT-3.1.2-8], [MQTT-3.1.2-10], [MQTT-3.14.4-3]
    pub fn will_parts(&mut self, now: u64, client: usize, why: &DisconnectCause, expiry: u64, late: u64) {
        let Some(will) = self.wills.live[client].as_mut() else { return };
        let (message, wait) = (will.message, will.delay.min(expiry));
        match why {
            DisconnectCause::Client(ReasonCode::NORMAL_DISCONNECTION) => {
                self.wills.live[client] = None;
                self.wills.dropped.push((message, now));
            }
            DisconnectCause::TakenOver => will.fate = Fate::TakenOver { wait },
            _ => {
                will.fate = Fate::Due(now + wait);
                self.publish_will(message, now + wait, now + wait + late);
            }
        }
    }

    /// The broker crashed: it forgot those that had not gone out, or brings them out when it is
    /// back at `back_at`.
    pub fn wills_crash(&mut self, now: u64, back_at: u64, late: u64, survival: Survival) {
        // What is on its way to other shards, or not committed, may be dropped.
        let settled = now - if survival == Survival::Nothing { 0 } else { late.min(now) };
        for message in self.messages.iter_mut().filter(|m| m.is_will) {
            message.acknowledged = message.acknowledged.filter(|at| *at <= settled);
        }
        // Nothing promised that they would not: that a will is dropped is committed later, and much
        // later while the store takes no record.
        for (message, at) in std::mem::take(&mut self.wills.dropped) {
            if survival == Survival::Committed && (at + late >= now || self.was_short(at, now)) {
                let message = &mut self.messages[message];
                message.first_sent = message.first_sent.min(now);
            }
        }
        for at in 0..self.wills.live.len() {
            let Some(Will { message, delay, fate }) = self.wills.live[at].take() else { continue };
            if survival == Survival::Nothing {
                match fate {
                    Fate::Due(due) if due > now => self.revoke_will(message),
                    _ => {}
                }
                continue;
            }
            let stored = self.live[at].as_ref().filter(|l| l.told && !l.doubtful).map(|l| l.stored_expiry.0);
            let first_sent = self.messages[message].first_sent.min(now);
            let (until, fate) = match (fate, stored) {
                _ if self.messages[message].acknowledged.is_some() => continue,
                // 5.0 [MQTT-3.1.2-8]
                (Fate::Armed, Some(expiry)) => {
                    let until = back_at + delay.min(expiry);
                    (until, Fate::Again { from: until.saturating_sub(late), until })
                }
                (Fate::Due(due) | Fate::Again { until: due, .. }, Some(_)) => {
                    (due.max(back_at) + delay, Fate::Vague)
                }
                (Fate::Vague, Some(_)) => (back_at + delay, Fate::Vague),
                _ => {
                    self.messages[message].first_sent = first_sent;
                    continue;
                }
            };
            self.publish_will(message, first_sent, until + late + self.unmeasured);
            self.wills.live[at] = Some(Will { message, delay, fate });
        }
    }

    fn publish_will(&mut self, message: usize, from: u64, until: u64) {
        let message = &mut self.messages[message];
        (message.first_sent, message.acknowledged, message.sends) = (from, Some(until), 1);
    }

    fn revoke_will(&mut self, message: usize) {
        let message = &mut self.messages[message];
        (message.first_sent, message.acknowledged, message.sends) = (u64::MAX, None, 0);
    }
}
