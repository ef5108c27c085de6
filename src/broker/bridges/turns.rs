//! Looks at many far sides within a bounded time, for `homing doctor`.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

/// The time for one far side, if its own timeout is longer.
pub(in crate::broker) const PATIENCE: Duration = Duration::from_secs(10);

/// The time for all of them.
const WHOLE: Duration = Duration::from_secs(60);

/// Far sides that are looked at at one time.
const AT_ONCE: usize = 64;

/// Looks at each far side, and returns them in their order, each with the result. Blocks for a
/// minute at most; `None` for those whose turn has not come by then.
///
/// # Errors
/// The system refuses a thread or a socket for the looks.
pub(in crate::broker) fn look_in_turns<P: Clone + 'static, T: 'static, L: Future<Output = T> + 'static>(
    places: impl Iterator<Item = P>,
    look: impl Fn(P) -> L,
) -> io::Result<Vec<(P, Option<T>)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (tasks, turns) = (LocalSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let looks: Vec<_> = places
        .map(|place| {
            let (turns, look) = (Arc::clone(&turns), look(place.clone()));
            let in_turn = async move {
                let _turn = turns.acquire().await;
                look.await
            };
            let task = tasks.spawn_local(async move { tokio::time::timeout(WHOLE, in_turn).await });
            (place, task)
        })
        .collect();
    let all = async {
        let mut found = Vec::new();
        for (place, look) in looks {
            found.push((place, look.await.ok().and_then(Result::ok)));
        }
        found
    };
    let found = tasks.block_on(&runtime, all);
    // A name server that does not answer must not hold up the end of the command.
    runtime.shutdown_background();
    Ok(found)
}
