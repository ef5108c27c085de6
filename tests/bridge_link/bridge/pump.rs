//! The bytes of an established connection.

use super::{Pump, Stage};
use crate::world::World;
use homing::bridge::link::{LinkEnd, LinkNews};
use homing::time::Instant;

impl World {
    /// Passes bytes as long as there are any.
    pub fn pump(&mut self) {
        let mut pump = match std::mem::replace(&mut self.bridge.stage, Stage::Down) {
            Stage::Linked(pump) => pump,
            other => {
                self.bridge.stage = other;
                return;
            }
        };
        let enough = self.plan.enough;
        loop {
            let mut was_read = 0;
            if pump.out.here.len() < enough {
                pump.from_there.append(&mut pump.unread_there);
            }
            if pump.out.there.len() < enough {
                was_read = pump.unread_here.len();
                pump.from_here.append(&mut pump.unread_here);
            }
            let before = (pump.from_there.len(), pump.from_here.len());
            let came = std::mem::replace(&mut pump.seen, before.0) != before.0;
            if let Err(end) = pump.handle(self.instant(), came) {
                return self.link_ends(*pump, &end);
            }
            self.tell(&mut pump);
            let moved = before != (pump.from_there.len(), pump.from_here.len());
            let wrote = self.write(&mut pump);
            let (socket, line) = (pump.socket, pump.line);
            let is_over = pump.is_over_there && pump.unread_there.is_empty()
                || pump.is_over_here && pump.unread_here.is_empty();
            if is_over {
                let _ = pump.handle(self.instant(), false);
                self.finish(*pump, None);
                return self.wait("closed");
            }
            if was_read > 0 {
                // The shard may write at once; that comes as an event of its own.
                self.has_read(socket, was_read);
            }
            debug_assert!(line < self.lines.len());
            if !moved && !wrote && was_read == 0 {
                break;
            }
        }
        let deadline = pump.link.deadline();
        self.bridge.stage = Stage::Linked(pump);
        if !deadline.is_never() {
            self.arm(deadline.as_millis().max(self.now + 1));
        }
    }

    fn write(&mut self, pump: &mut Pump) -> bool {
        let here = std::mem::take(&mut pump.out.here);
        if !here.is_empty() {
            self.send_up(pump.socket, &here);
        }
        let room = self.plan.socket.saturating_sub(self.lines[pump.line].unread);
        let there: Vec<u8> = pump.out.there.drain(..room.min(pump.out.there.len())).collect();
        if !there.is_empty() {
            self.send_to_far(pump.line, &there);
            pump.link.wrote(self.instant(), there.len());
        }
        !here.is_empty() || !there.is_empty()
    }

    fn tell(&mut self, pump: &mut Pump) {
        for news in pump.link.take_news() {
            match news {
                LinkNews::Established => self.bridge.backoff.reset(),
                LinkNews::FilterRefusedThere(..) => self.oracle.totals.filters_refused += 1,
                LinkNews::FilterRefusedHere(filter, reason) => panic!("{filter} is refused here: {reason}"),
            }
        }
    }

    fn link_ends(&mut self, pump: Pump, end: &LinkEnd) {
        match end {
            LinkEnd::Unanswered => self.oracle.totals.unanswered += 1,
            LinkEnd::Unacknowledged => self.oracle.totals.unacknowledged += 1,
            LinkEnd::Freed => {
                self.finish(pump, Some(end));
                return self.is_freed();
            }
            other => panic!("the link ends: {other}"),
        }
        self.finish(pump, Some(end));
        self.wait(&end.to_string());
    }

    /// Says the last words to both sides.
    pub(super) fn finish(&mut self, mut pump: Pump, end: Option<&LinkEnd>) {
        pump.link.end(end, &mut pump.out);
        self.send_up(pump.socket, &pump.out.here);
        self.send_up(pump.socket, &[]);
        self.send_to_far(pump.line, &pump.out.there);
        self.send_to_far(pump.line, &[]);
        self.lines[pump.line].down_is_open = false;
    }
}

impl Pump {
    fn handle(&mut self, now: Instant, came: bool) -> Result<(), LinkEnd> {
        let used = self.link.take_from_there(now, &self.from_there, &mut self.out)?;
        self.from_there.drain(..used);
        self.seen = self.from_there.len();
        if came && used == 0 {
            self.link.moved(now);
        }
        let used = self.link.take_from_here(now, &self.from_here, &mut self.out)?;
        self.from_here.drain(..used);
        if self.link.deadline() <= now {
            self.link.expired(now, &mut self.out)?;
        }
        Ok(())
    }
}
