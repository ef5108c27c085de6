//! The task that takes the moments of the broker into the timeline, and asks for the clients that
//! have an overdue message.

use super::Timeline;
use crate::admin::failed::Failed;
use crate::admin::queries::sessions::oldest_unacknowledged;
use crate::admin::state::AdminState;
use crate::broker::events::moments::{MomentKind, TimelineMoment, WAITING};
use crate::clock;
use actix_web::web::Data;
use std::time::Duration;

/// The time between two rounds of questions.
const PACE: Duration = Duration::from_secs(1);

/// The time for which moments gather before they are taken in. While the task does not wait for
/// them, a shard that offers one wakes nobody: when 200 clients returned at once, the wake-ups cost
/// a third of the CPU time of their return.
const GATHER: Duration = Duration::from_millis(100);

/// Takes the moments of the broker in, until the broker stops.
pub(crate) async fn collect(state: Data<AdminState>) {
    let observer = state.started_observer().await;
    let Some(mut moments) = observer.statistics().moments.listen(WAITING) else { return };
    let mut gathered = Vec::new();
    let mut next_round = clock::now() + PACE;
    loop {
        let timeline = &state.timeline;
        let is_anyone_overdue = !timeline.ring().overdue.is_empty();
        let wait = next_round.since(clock::now());
        tokio::select! {
            taken = moments.recv_many(&mut gathered, WAITING) => {
                if taken == 0 {
                    return;
                }
                let now = clock::now();
                gathered.drain(..).for_each(|moment| timeline.take(now, moment));
                tokio::time::sleep(GATHER).await;
            }
            () = tokio::time::sleep(wait), if is_anyone_overdue => {
                next_round = clock::now() + PACE;
                ask(&state, timeline).await;
            }
        }
    }
}

/// Asks for some clients with an overdue message, and notes those that have acknowledged it.
async fn ask(state: &AdminState, timeline: &Timeline) {
    let asked = timeline.ring().next_to_ask();
    for (client_id, since) in asked {
        let oldest = match oldest_unacknowledged(state, &client_id).await {
            Ok(oldest) => oldest,
            // The session has ended. None of its messages can be acknowledged any more.
            Err(Failed::NoSuchClient) => {
                timeline.ring().overdue.remove(&client_id);
                continue;
            }
            Err(_) => return,
        };
        let now = clock::now();
        // The message is older than its first moment.
        if oldest.is_none_or(|age| age < now.since(since)) {
            let moment = TimelineMoment {
                unix_ms: clock::unix_millis(),
                client_id,
                kind: MomentKind::Acknowledged,
                is_overdue: false,
                text: "nothing overdue is left".into(),
            };
            timeline.take(now, moment);
        }
    }
}
