//! The rates of the bridges and the figures of their sessions, which change without the bridges.

use super::status::{BridgeFacts, BridgeRates, BridgeReport, SessionFigures};
use crate::bridge::link::LinkCounts;
use crate::broker::observer::Observer;
use crate::broker::question::ShardAnswer;
use crate::clock;
use crate::operators::query::{Part, Query, QueryAnswer};
use crate::time::Instant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The time between two looks. A look costs a shard one question for 256 bridges at most, of 2 us
/// for each of them.
const PACE: Duration = Duration::from_secs(2);

/// The time and the counts of the last look, by bridge.
type Before = HashMap<Arc<str>, (Instant, LinkCounts)>;

/// Looks at the sessions of all bridges, every [`PACE`].
pub(super) async fn look_again_and_again(observer: Observer) {
    let mut before = Before::new();
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let reports = observer.bridges().reports();
        let mut after = Before::new();
        let mut shards = vec![HashMap::new(); observer.shards()];
        for report in &reports {
            let client_id = report.change(|facts| {
                set_rates(facts, clock::now(), &before, &mut after);
                facts.client_id()
            });
            if let Some(shard) = shards.get_mut(observer.shard_of(&client_id)) {
                shard.insert(client_id.into_boxed_str(), report);
            }
        }
        before = after;
        for (shard, reports) in shards.into_iter().enumerate() {
            look(&observer, shard, reports).await;
        }
    }
}

fn set_rates(facts: &mut BridgeFacts, now: Instant, before: &Before, after: &mut Before) {
    let counts = facts.counts;
    if let Some((at, earlier)) = before.get(&facts.name) {
        // A bridge that was removed and added again counts from 0.
        let rate = |count: fn(&LinkCounts) -> u64| {
            per_second(count(&counts).saturating_sub(count(earlier)), now.since(*at))
        };
        facts.rates =
            BridgeRates { sent: rate(|counts| counts.sent), received: rate(|counts| counts.received) };
    }
    after.insert(Arc::clone(&facts.name), (now, counts));
}

#[expect(clippy::cast_precision_loss, reason = "people read three digits")]
fn per_second(messages: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { messages as f64 / time.as_secs_f64() }
}

/// Notes the sessions of the bridges of one shard. Without an answer their figures stay as they are.
async fn look(observer: &Observer, shard: usize, mut reports: HashMap<Box<str>, &Arc<BridgeReport>>) {
    let clients: Vec<Box<str>> = reports.keys().cloned().collect();
    let mut next = Some(0).filter(|_| !clients.is_empty());
    while let Some(from) = next {
        let query = Query::NamedSessions { clients: clients.clone(), from };
        let Ok(ShardAnswer { answer, sockets }) = observer.ask(shard, query).await else { return };
        let QueryAnswer::Sessions(part) = answer else { return };
        let Part { rows, next: behind } = part;
        for row in rows {
            let stall = sockets.iter().find(|facts| facts.session == row.id).and_then(|facts| facts.stall);
            if let Some(report) = reports.remove(&row.client_id) {
                report.change(|facts| facts.session = Some(SessionFigures { row, stall }));
            }
        }
        next = behind;
    }
    for report in reports.into_values() {
        report.change(|facts| facts.session = None);
    }
}
