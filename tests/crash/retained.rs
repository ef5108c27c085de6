//! Checks the retained messages after a restart.

use crate::link::{Came, Link};
use crate::publisher::Publisher;
use crate::support::client::subscribe_packet;
use crate::support::{Connect, PATIENCE, Packet, V5, now};
use crate::trial::{Class, Stamp, Trial};
use std::collections::BTreeMap;

/// While nobody publishes: each topic's retained message is the last one that was answered, or one
/// sent after it.
pub fn check(trial: &Trial, publishers: &[Publisher]) {
    let found = found(trial);
    for publisher in publishers {
        for (series, fates) in publisher.fates.iter().filter(|(s, _)| s.class == Class::Retained) {
            let answered = fates.iter().rposition(|f| f.acknowledged.is_some());
            let lawful = answered.unwrap_or(0)..fates.len();
            let stamp = |number| Stamp { series: *series, number };
            let is_lawful = match found.get(&series.topic()) {
                Some(found) => found.series == *series && lawful.contains(&found.number),
                None => answered.is_none() || lawful.clone().any(|number| stamp(number).erases()),
            };
            if !is_lawful {
                let found = found.get(&series.topic()).map(Stamp::to_string);
                trial.violated(format!("{} retains {found:?}, not one of {lawful:?}", series.topic()));
            }
        }
    }
}

fn found(trial: &Trial) -> BTreeMap<String, Stamp> {
    let mut found = BTreeMap::new();
    let mut link = Link::open(trial.address(), V5).expect("the broker is there");
    link.put(&Connect::new(V5, "retained").encode());
    link.put(&subscribe_packet(V5, 1, &[], &[(&Class::Retained.filter(), 0)]));
    let deadline = now() + PATIENCE;
    while now() < deadline {
        match link.next() {
            Came::Packet(Packet::Granted(_)) => link.put(&[0xC0, 0]),
            Came::Packet(Packet::Publish(publish)) => {
                let stamp = Stamp::of(&publish.topic, &publish.payload).expect("a message of ours");
                found.insert(publish.topic, stamp);
            }
            Came::Packet(Packet::Pingresp) => return found,
            Came::Packet(_) | Came::Nothing => {}
            Came::End => panic!("the broker closed the connection"),
        }
    }
    panic!("the broker does not answer");
}
