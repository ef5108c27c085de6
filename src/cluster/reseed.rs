//! `homing cluster reseed`: the way out of an alarm. The database of this node becomes the base of a
//! new log (`base`), and the alarm, which is about the old log, counts no more. Nodes that
//! run see the new row and end with 75, so that the service manager starts them again. Their next start
//! sets their database aside, and fetches the base.

use super::base::{self, Base};
use super::commands::{CommandError, Report, row_of_cluster};
use super::engine::Engine;
use super::observed::{ObservedRows, observe};
use super::row::{ClusterRow, SeenRow, alarm_key};
use crate::config::Cluster;
use crate::store::log::new_id;
use crate::store::sqlite::base::{directory_of, mark_of};
use crate::store::sqlite::directory::{database_in, is_locked};
use crate::time::Instant;
use crate::time::duration::format;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Earlier logs that the row of the cluster names at most.
const PREVIOUS: usize = 100;

/// The roles of a node that does not know of the alarm.
const AT_WORK: [&str; 5] = ["following", "claiming", "recovering", "holding", "releasing"];

/// The alarm of a cluster, and the log that it is about.
struct Alarmed {
    revision: u64,
    cluster: ClusterRow,
    /// The log of this node's database.
    log: u64,
    text: String,
    nodes: Vec<SeenRow>,
    /// The moment of the look at them.
    now: Instant,
}

/// Makes the store of this node the base of the cluster, after an alarm. `data` is its data directory.
/// Without the confirmation that it asks for, it says what would be lost and changes nothing.
///
/// # Errors
/// There is no alarm, the directory is of another cluster, a node does not show the alarm, the
/// confirmation is missing or another one, or the engine does not do it.
pub fn reseed(
    engine: &dyn Engine,
    settings: &Cluster,
    data: &Path,
    confirm: Option<&str>,
) -> Result<Report, CommandError> {
    if row_of_cluster(engine, settings)?.1.begins.is_some() {
        base::finish(engine)?;
        let text =
            "an earlier command did not end, and is done now: `homing cluster status` shows the cluster";
        return Ok(Report { text: text.to_owned(), is_good: true });
    }
    let alarmed = find_alarm(engine, settings, data)?;
    let base = Base::of_node(engine, data, alarmed.log)?;
    refuse_behind(&alarmed, settings, data, base.mark.position)?;
    let wanted = format!("{}-{}", settings.node, base.mark.position);
    if confirm != Some(wanted.as_str()) {
        let text = describe(engine, settings, data, &alarmed, base.mark.position)?;
        let other = confirm.map_or(String::new(), |other| format!("--confirm {other} is not about this: "));
        return Err(CommandError::Refused(format!(
            "{text}nothing is done yet: {other}repeat the command with --confirm {wanted}"
        )));
    }
    let Alarmed { revision, cluster, log, .. } = alarmed;
    let mut previous = cluster.previous.clone();
    previous.extend([cluster.log, log].into_iter().filter(|log| !cluster.previous.contains(log)));
    previous.dedup();
    previous.drain(..previous.len().saturating_sub(PREVIOUS));
    let position = base.mark.position;
    base.put(engine, revision, ClusterRow { log: new_id(), previous, ..cluster })?;
    // The next node that starts would do it, too.
    base::finish(engine)?;
    let text = format!(
        "the cluster {:?} goes on with the store of {} as of frame {position}. Nodes that run end with 75, and follow \
         after their next start; start those that do not run",
        settings.name, settings.node
    );
    Ok(Report { text, is_good: true })
}

/// Returns the alarm, if there is one, this node is of the cluster, and all other nodes know it.
fn find_alarm(engine: &dyn Engine, settings: &Cluster, data: &Path) -> Result<Alarmed, CommandError> {
    let refuse = |why: String| Err(CommandError::Refused(why));
    let (revision, cluster) = row_of_cluster(engine, settings)?;
    let database = database_in(data);
    if settings.place().is_none() || !database.exists() {
        return refuse(format!(
            "{} is not the store of a node: type the command on the machine of a node, with its configuration",
            data.display()
        ));
    }
    let log = mark_of(&database)?.0.id.unwrap_or(0);
    if cluster.previous.contains(&log) {
        return refuse(format!(
            "{} is of the log before the last `homing cluster reseed`: start this node, and it follows",
            data.display()
        ));
    }
    let observed = observe(engine)?;
    let alarm = |log: u64| observed.value(&alarm_key(log));
    let Some(text) = alarm(log).or_else(|| alarm(cluster.log)) else {
        return refuse(format!("the cluster {:?} has no alarm: there is nothing to mend", settings.name));
    };
    if directory_of(&database)? == 0 || log != cluster.log && alarm(log).is_none() {
        return refuse(format!("{} is not of the cluster {:?}", data.display(), settings.name));
    }
    let text = String::from_utf8_lossy(text).into_owned();
    let ObservedRows { nodes, now, .. } = observed;
    let is_at_work = |seen: &&SeenRow| !seen.is_silent(now) && AT_WORK.contains(&&*seen.row.role);
    if let Some(SeenRow { row, .. }) = nodes.iter().find(is_at_work) {
        return refuse(format!(
            "the node {} is {} and does not show the alarm yet: wait some seconds, or stop it",
            row.node, row.role
        ));
    }
    Ok(Alarmed { revision, cluster, log, text, nodes, now })
}

/// Refuses the database of a process that has more in its memory.
fn refuse_behind(
    alarmed: &Alarmed,
    settings: &Cluster,
    data: &Path,
    position: u64,
) -> Result<(), CommandError> {
    let own = alarmed.nodes.iter().map(|seen| &seen.row).find(|row| row.node == settings.node);
    match own.filter(|own| own.position > position && is_locked(data)) {
        Some(own) => Err(CommandError::Refused(format!(
            "the process of this node has read frame {}, and its store has {position}: stop it (systemctl stop homing), \
             so that it writes the rest, and type the command again",
            own.position
        ))),
        None => Ok(()),
    }
}

/// Returns what the cluster would go on with, and what would be lost.
fn describe(
    engine: &dyn Engine,
    settings: &Cluster,
    data: &Path,
    alarmed: &Alarmed,
    position: u64,
) -> Result<String, CommandError> {
    let mut text = format!("the cluster {:?} has the alarm: {}\n", settings.name, alarmed.text);
    let lost = |last: u64| match last.saturating_sub(position) {
        0 => String::new(),
        count => format!(": {count} frames more than the base, which are lost"),
    };
    let mut line = |name: &str, rest: &str| {
        let _ = writeln!(text, "{name:<9} {rest}");
    };
    let (node, store) = (&settings.node, data.display());
    line("base", &format!("the store of the node {node} in {store}, as of frame {position}"));
    for seen in alarmed.nodes.iter().filter(|seen| seen.row.node != *node) {
        let (row, age) = (&seen.row, format(Duration::from_secs(seen.seen_ago(alarmed.now).as_secs())));
        line(
            &format!("node {}", row.node),
            &format!("frame {}, {age} ago{}", row.position, lost(row.position)),
        );
    }
    let unseen =
        settings.nodes.iter().filter(|name| !alarmed.nodes.iter().any(|seen| seen.row.node == **name));
    unseen.for_each(|name| line(&format!("node {name}"), "never seen"));
    let bounds = engine.bounds()?;
    line(
        "log",
        &format!("frames {} to {}, all of which are removed{}", bounds.first, bounds.last, lost(bounds.last)),
    );
    Ok(text)
}
