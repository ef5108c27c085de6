//! The rates of bridges and sinks and the figures of their sessions, which change without their
//! tasks.

use super::reports::{FarDirectory, FarFacts, FarReport, SessionFigures};
use crate::broker::observer::Observer;
use crate::broker::question::ShardAnswer;
use crate::clock;
use crate::operators::query::{Part, Query, QueryAnswer};
use crate::time::Instant;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The time between two looks. A look costs a shard one question for 256 sessions at most, of 2 us
/// for each of them.
const PACE: Duration = Duration::from_secs(2);

/// The time and the counts of the last look, by name.
type Before = HashMap<Arc<str>, (Instant, [u64; 2])>;

/// Looks at the sessions of all bridges and sinks, every [`PACE`].
pub(super) async fn look_again_and_again(observer: Observer) {
    let (mut bridges, mut sinks) = (Before::new(), Before::new());
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        bridges = look_at_all(&observer, observer.bridges(), &bridges).await;
        sinks = look_at_all(&observer, observer.sinks(), &sinks).await;
    }
}

async fn look_at_all<F: FarFacts>(
    observer: &Observer,
    directory: &FarDirectory<F>,
    before: &Before,
) -> Before {
    let reports = directory.reports();
    let mut after = Before::new();
    let mut shards = vec![HashMap::new(); observer.shards()];
    for report in &reports {
        let client_id = report.change(|facts| {
            set_rates(facts, clock::now(), before, &mut after);
            facts.client_id()
        });
        if let Some(shard) = shards.get_mut(observer.shard_of(&client_id)) {
            shard.insert(client_id.into_boxed_str(), report);
        }
    }
    for (shard, reports) in shards.into_iter().enumerate() {
        look(observer, shard, reports).await;
    }
    after
}

fn set_rates<F: FarFacts>(facts: &mut F, now: Instant, before: &Before, after: &mut Before) {
    let counts = facts.passed();
    if let Some((at, earlier)) = before.get(facts.name()) {
        // A far side that was removed and added again counts from 0.
        let ([first, second], [first_before, second_before]) = (counts, *earlier);
        let rate = |count: u64, before: u64| per_second(count.saturating_sub(before), now.since(*at));
        facts.set_rates([rate(first, first_before), rate(second, second_before)]);
    }
    after.insert(Arc::clone(facts.name()), (now, counts));
}

#[expect(clippy::cast_precision_loss, reason = "people read three digits")]
fn per_second(messages: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { messages as f64 / time.as_secs_f64() }
}

/// Notes the sessions of the far sides of one shard. Without an answer their figures stay as they
/// are.
async fn look<F: FarFacts>(
    observer: &Observer,
    shard: usize,
    mut reports: HashMap<Box<str>, &Arc<FarReport<F>>>,
) {
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
                report.change(|facts| facts.session().figures = Some(SessionFigures { row, stall }));
            }
        }
        next = behind;
    }
    for report in reports.into_values() {
        report.change(|facts| facts.session().figures = None);
    }
}
