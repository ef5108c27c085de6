//! Compares promised with received messages, once all queues are drained.

use crate::publisher::Fate;
use crate::subscriber::{Interval, Subscriber};
use crate::trial::{Class, Series, Stamp, Trial};
use std::collections::BTreeMap;

/// The messages that were sent, by series. Messages of one series have an order.
pub type Sent<'a> = BTreeMap<Series, &'a [Fate]>;

pub fn record_violations(trial: &Trial, sent: &Sent<'_>, subscribers: &[Subscriber]) {
    let (mut promised, mut came) = (0, 0);
    for subscriber in subscribers {
        in_order(trial, sent, subscriber);
        let all = sent.iter().filter(|(s, _)| s.class != Class::Retained);
        for (series, fates) in all.filter(|(s, _)| subscriber.classes().contains(&s.class)) {
            for (number, fate) in fates.iter().enumerate() {
                let stamp = Stamp { series: *series, number };
                promised += u64::from(missed(trial, subscriber, stamp, fate));
                came += arrived(trial, subscriber, stamp, fate);
            }
        }
    }
    let count: usize = sent.values().map(|fates| fates.len()).sum();
    println!("{count} messages were published, {promised} deliveries promised, {came} came");
}

/// Returns true if the message was promised to the session. Records a violation if it did not come.
fn missed(trial: &Trial, subscriber: &Subscriber, stamp: Stamp, fate: &Fate) -> bool {
    let log = &subscriber.log;
    let Some(acknowledged) = fate.acknowledged else { return false };
    let Series { class, .. } = stamp.series;
    let covering = log.intervals(class).iter().find(|i| {
        i.incarnation == log.incarnation
            && i.granted.is_some_and(|granted| granted < fate.sent)
            && i.leaving.is_none_or(|leaving| leaving > acknowledged)
    });
    let Some(interval) = covering else { return false };
    if !log.arrivals.contains(&(stamp, log.incarnation)) {
        let (name, round) = (subscriber.name(), fate.round);
        trial.violated(format!(
            "{name}: {stamp}, acknowledged in round {round}, is lost; {fate:?}, {interval:?}"
        ));
    }
    true
}

/// In how many of the client's sessions the message came; each must have had a subscription at some
/// moment of it.
fn arrived(trial: &Trial, subscriber: &Subscriber, stamp: Stamp, fate: &Fate) -> u64 {
    let log = &subscriber.log;
    let mut count = 0;
    for (_, incarnation) in log.arrivals.range((stamp, 0)..=(stamp, u64::MAX)) {
        count += 1;
        let lawful = log.intervals(stamp.series.class).iter().any(|i| {
            i.incarnation == *incarnation
                && fate.acknowledged.is_none_or(|at| at > i.asked)
                && i.left.is_none_or(|left| left > fate.sent)
        });
        if !lawful {
            let intervals = log.intervals(stamp.series.class);
            let name = subscriber.name();
            trial
                .violated(format!("{name}: {stamp} came, to nobody's subscription; {fate:?}, {intervals:?}"));
        }
    }
    count
}

/// Records a violation for each message that first came after a later one of its series.
///
/// One case is lawful: the message was first sent before the subscription was known to be in force.
/// Then the later message may have met the subscription, and the earlier only when it was sent
/// again.
fn in_order(trial: &Trial, sent: &Sent<'_>, subscriber: &Subscriber) {
    for (stamp, latest) in &subscriber.log.disorders {
        let fates = sent.get(&stamp.series).copied().unwrap_or_default();
        let (Some(fate), Some(later)) = (fates.get(stamp.number), fates.get(*latest)) else { continue };
        let intervals = subscriber.log.intervals(stamp.series.class);
        let met = |i: &Interval| {
            i.granted.is_some_and(|granted| granted < fate.sent)
                && i.leaving.is_none_or(|leaving| fate.acknowledged.is_some_and(|at| at < leaving))
        };
        if intervals.iter().any(met) {
            let name = subscriber.name();
            trial.violated(format!(
                "{name}: {stamp} came first after #{latest}; {fate:?}, {later:?}, {intervals:?}"
            ));
        }
    }
}
