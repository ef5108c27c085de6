//! The slow deliveries of one shard, for operators: those that took more than a second.
//!
//! A delivery lasts until its PUBACK, or its PUBREC at QoS 2, because the client owns the message
//! from then on. A delivery begins when a connected receiver gets its message, at once or into its
//! queue. Deliveries to a receiver that was away begin with their first transmission. So do
//! deliveries without a mark, such as those that only the store had.
//!
//! A delivery that is acknowledged quickly costs two comparisons ([`AckedDelivery::is_usual`]). A
//! slow one costs a search in a table. The rows of a receiver and a topic are one, and the table is
//! bounded.

use crate::mqtt::excerpt::Excerpt;
use crate::mqtt::keyed::Keyed;
use crate::mqtt::message::Message;
use crate::mqtt::topic::first_chars;
use crate::session::objectives::DeliveryMark;
use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

/// A delivery that takes longer is slow, in milliseconds.
const SLOW_MS: u64 = 1_000;

/// Rows that an operator sees, and that are left when the table is full.
pub const KEPT: usize = 1_000;

/// Rows at most. One pass over a full table makes room for 500 further rows.
const MOST: usize = 1_500;

/// Rows without a slow delivery for this long are forgotten, and a row that is this old begins
/// anew with its next slow delivery.
const FORGOTTEN: Duration = Duration::from_hours(1);

/// Characters of a topic and of a client identifier that are kept. Longer ones with the same
/// beginning and the same length share a row.
const TEXT: usize = 128;

/// A delivery whose PUBACK or PUBREC has come.
#[derive(Clone, Copy, Debug)]
pub struct AckedDelivery<'a> {
    /// The Client Identifier of the receiver.
    pub receiver: &'a str,
    /// The message. Its topic is read only if the delivery is slow.
    pub message: &'a Message,
    /// The time of the first transmission.
    pub first_sent: Instant,
    /// The mark with the time at which the delivery began, if it has one.
    pub mark: DeliveryMark,
}

impl AckedDelivery<'_> {
    /// Returns true for a delivery that neither is slow, nor counts for an objective, nor is
    /// traced: one without a mark that was acknowledged so many milliseconds after its first
    /// transmission.
    #[inline]
    pub fn is_usual(mark: DeliveryMark, took_ms: u64) -> bool {
        mark.is_none() && took_ms <= SLOW_MS
    }

    /// Returns the duration of the delivery in milliseconds.
    fn took_ms(&self, now: Instant) -> u64 {
        let began = if self.mark.is_none() { self.first_sent } else { self.mark.began() };
        now.millis_since(began.min(self.first_sent))
    }
}

/// The slow deliveries of one topic to one receiver. The deliveries are less than two hours old: a
/// row begins anew once an hour, and is removed after an hour without a slow delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowDelivery {
    /// The Client Identifier of the receiver.
    pub receiver: Excerpt,
    /// The Topic Name.
    pub topic: Excerpt,
    /// The duration of the slowest delivery since the row began.
    pub longest: Duration,
    /// The number of slow deliveries since the row began.
    pub deliveries: u64,
    /// The time of the acknowledgement that came last.
    pub last: Instant,
    /// The time at which the row began, or began anew.
    began: Instant,
}

/// The slow deliveries of one shard. Not charged: 0.6 MiB at most for texts in ASCII.
#[derive(Debug, Default)]
pub struct SlowDeliveries {
    /// By the hash of receiver and topic: a row has its texts once.
    rows: HashMap<u64, SlowDelivery, Keyed>,
}

/// A copy has no rows, so that the copy of a shard's counters for metrics stays small.
impl Clone for SlowDeliveries {
    fn clone(&self) -> SlowDeliveries {
        SlowDeliveries::default()
    }
}

impl SlowDeliveries {
    /// Notes a delivery that was acknowledged, if it was slow.
    pub fn acknowledged(&mut self, now: Instant, delivery: &AckedDelivery<'_>) {
        let took_ms = delivery.took_ms(now);
        if took_ms <= SLOW_MS {
            return;
        }
        let took = Duration::from_millis(took_ms);
        let (receiver, topic) = (delivery.receiver, delivery.message.topic());
        let key = Keyed.hash_one((cut(receiver), receiver.len(), cut(topic), topic.len()));
        if let Some(row) = self.rows.get_mut(&key) {
            row.count(now, took);
            return;
        }
        if self.rows.len() >= MOST {
            self.make_room(now);
        }
        let (receiver, topic) = (Excerpt::of(receiver, TEXT), Excerpt::of(topic, TEXT));
        let row = SlowDelivery { receiver, topic, longest: took, deliveries: 1, last: now, began: now };
        self.rows.insert(key, row);
    }

    /// Forgets old rows, and all but the [`KEPT`] worst of the others.
    fn make_room(&mut self, now: Instant) {
        self.rows.retain(|_, row| !row.is_old(now));
        if self.rows.len() > KEPT {
            let mut times: Vec<Duration> = self.rows.values().map(|row| row.longest).collect();
            let (_, least, _) = times.select_nth_unstable_by_key(KEPT - 1, |longest| Reverse(*longest));
            let least = *least;
            // Of rows that are equally bad, any may stay.
            let mut equal = KEPT - self.rows.values().filter(|row| row.longest > least).count();
            self.rows.retain(|_, row| {
                let is_last = row.longest == least && equal > 0;
                equal -= usize::from(is_last);
                row.longest > least || is_last
            });
        }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the rows of a topic and a receiver with a slow delivery in the last hour, the
    /// slowest first, at most `most`. Costs a pass over the rows.
    pub fn find(
        &self,
        now: Instant,
        topic: Option<&str>,
        receiver: Option<&str>,
        most: usize,
    ) -> Vec<SlowDelivery> {
        let (topic, receiver) = (topic.map(cut), receiver.map(cut));
        let fits = |row: &&SlowDelivery| {
            !row.is_old(now)
                && topic.is_none_or(|topic| row.topic.beginning() == topic)
                && receiver.is_none_or(|receiver| row.receiver.beginning() == receiver)
        };
        let mut found: Vec<&SlowDelivery> = self.rows.values().filter(fits).collect();
        found.sort_unstable_by_key(|row| (Reverse(row.longest), Reverse(row.last)));
        found.into_iter().take(most.min(KEPT)).cloned().collect()
    }
}

impl SlowDelivery {
    /// Counts one more delivery. A row that is an hour old begins anew with it, so that a delivery
    /// of days ago does not stay the slowest.
    fn count(&mut self, now: Instant, took: Duration) {
        if now.since(self.began) >= FORGOTTEN {
            (self.longest, self.deliveries, self.began) = (took, 0, now);
        }
        self.longest = self.longest.max(took);
        self.deliveries += 1;
        self.last = now;
    }

    fn is_old(&self, now: Instant) -> bool {
        now.since(self.last) >= FORGOTTEN
    }
}

/// Returns true if rows with the beginning of this text may be of another one, too.
pub fn may_be_cut(text: &str) -> bool {
    text.chars().nth(TEXT - 1).is_some()
}

fn cut(text: &str) -> &str {
    first_chars(text, TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::QoS;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Acknowledges at this time a message that was sent at the start.
    fn acknowledge(slow: &mut SlowDeliveries, ms: u64, receiver: &str, topic: &str) {
        let message = &Message::sample(topic, QoS::AtLeastOnce, b"");
        let (first_sent, mark) = (at(0), DeliveryMark::NONE);
        slow.acknowledged(at(ms), &AckedDelivery { receiver, message, first_sent, mark });
    }

    #[test]
    fn a_delivery_of_a_second_is_not_slow_and_a_longer_one_is() {
        let mut slow = SlowDeliveries::default();
        acknowledge(&mut slow, 1_000, "pump", "a");
        assert!(slow.find(at(1_000), None, None, KEPT).is_empty());
        acknowledge(&mut slow, 1_001, "pump", "a");
        assert_eq!(slow.find(at(1_001), None, None, KEPT).len(), 1);
    }

    #[test]
    fn a_long_topic_is_cut_with_its_length_and_shares_no_row_with_one_of_another_length() {
        let mut slow = SlowDeliveries::default();
        let topics = [200, 300].map(|characters| "t".repeat(characters));
        for topic in &topics {
            acknowledge(&mut slow, 2_000, "pump", topic);
        }
        let mut shown: Vec<String> = slow
            .find(at(2_000), Some(&topics[0]), None, KEPT)
            .iter()
            .map(|row| row.topic.to_string())
            .collect();
        shown.sort_unstable();
        assert_eq!(shown, [200, 300].map(|bytes| format!("{}... ({bytes} bytes)", "t".repeat(TEXT))));
    }

    #[test]
    fn the_wait_in_the_queue_of_a_connected_receiver_counts() {
        let mut slow = SlowDeliveries::default();
        let message = &Message::sample("a", QoS::AtLeastOnce, b"");
        let (first_sent, mark) = (at(5_000), DeliveryMark::queued(at(3_000)));
        slow.acknowledged(at(5_001), &AckedDelivery { receiver: "pump", message, first_sent, mark });
        assert_eq!(slow.find(at(5_001), None, None, 1)[0].longest, Duration::from_millis(2_001));
    }

    #[test]
    fn the_deliveries_of_a_topic_to_a_receiver_are_one_row_and_the_slowest_row_comes_first() {
        let mut slow = SlowDeliveries::default();
        for (ms, receiver, topic) in
            [(2_000, "pump", "a"), (9_000, "lamp", "a"), (3_000, "pump", "a"), (4_000, "pump", "b")]
        {
            acknowledge(&mut slow, ms, receiver, topic);
        }
        let shown = |rows: Vec<SlowDelivery>| {
            let row = |row: &SlowDelivery| format!("{}:{}:{}", row.receiver, row.topic, row.deliveries);
            rows.iter().map(row).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(slow.find(at(9_000), None, None, KEPT)), "lamp:a:1 pump:b:1 pump:a:2");
        assert_eq!(shown(slow.find(at(9_000), Some("a"), Some("pump"), KEPT)), "pump:a:2");
        assert_eq!(shown(slow.find(at(9_000), Some("a"), None, 1)), "lamp:a:1");
        assert!(slow.clone().find(at(9_000), None, None, KEPT).is_empty());
    }

    #[test]
    fn a_full_table_keeps_its_slowest_rows_and_never_grows_beyond_its_bound() {
        let mut slow = SlowDeliveries::default();
        for n in 0..10 * MOST as u64 {
            acknowledge(&mut slow, 1_001 + n * 7_919 % 15_000, "pump", &n.to_string());
            assert!(slow.rows.len() <= MOST);
        }
        let now = at(17_000);
        let found = slow.find(now, None, None, usize::MAX);
        let worst: Vec<u128> = (0..KEPT as u128).map(|n| 1_001 + 14_999 - n).collect();
        assert_eq!(found.iter().map(|row| row.longest.as_millis()).collect::<Vec<_>>(), worst);
        slow.make_room(now);
        assert_eq!(slow.rows.len(), KEPT);
    }

    #[test]
    fn rows_that_are_equally_slow_do_not_fill_the_table() {
        let mut slow = SlowDeliveries::default();
        (0..3 * MOST).for_each(|n| acknowledge(&mut slow, 2_000, "pump", &n.to_string()));
        assert!(slow.rows.len() <= MOST);
        slow.make_room(at(2_000));
        assert_eq!(slow.rows.len(), KEPT);
    }

    #[test]
    fn a_row_begins_anew_with_the_first_slow_delivery_an_hour_after_it_began() {
        let mut slow = SlowDeliveries::default();
        let message = &Message::sample("a", QoS::AtLeastOnce, b"");
        let began = at(60_000);
        let mut acknowledge_after = |now: Instant, took: u64| {
            let (first_sent, mark) = (Instant::from_millis(now.as_millis() - took), DeliveryMark::NONE);
            slow.acknowledged(now, &AckedDelivery { receiver: "pump", message, first_sent, mark });
            let row = slow.find(now, None, None, 1).remove(0);
            (row.longest.as_millis(), row.deliveries)
        };
        assert_eq!(acknowledge_after(began, 50_000), (50_000, 1));
        assert_eq!(acknowledge_after(began + (FORGOTTEN - Duration::from_millis(1)), 2_000), (50_000, 2));
        assert_eq!(acknowledge_after(began + FORGOTTEN, 3_000), (3_000, 1));
        assert_eq!(acknowledge_after(began + FORGOTTEN * 3 / 2, 2_000), (3_000, 2));
    }

    #[test]
    fn a_text_that_fills_its_bound_may_be_the_beginning_of_another() {
        assert!(!may_be_cut(&"\u{e9}".repeat(TEXT - 1)));
        assert!(may_be_cut(&"\u{e9}".repeat(TEXT)) && may_be_cut(&"x".repeat(TEXT + 1)));
    }

    #[test]
    fn a_row_without_a_slow_delivery_for_an_hour_is_forgotten() {
        let mut slow = SlowDeliveries::default();
        acknowledge(&mut slow, 2_000, "pump", "a");
        let later = at(2_000) + FORGOTTEN;
        assert_eq!(slow.find(later - Duration::from_secs(1), None, None, 1).len(), 1);
        assert!(slow.find(later, None, None, 1).is_empty());
        slow.make_room(later);
        assert!(slow.rows.is_empty());
    }
}
