//! SIGTERM to a node in each of its states.

use crate::fleet::Fleet;
use crate::proxy::Passage;
use crate::servers::Servers;
use crate::support::now;
use homing::cluster::engine::Engine;
use homing::cluster::row::{CLUSTER, ClusterRow, alarm_key};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Bound of an end, on a busy machine: 14 s for a broker whose store hangs, and 9 s for the lease, the
/// last frame and the last row. The process exits with 1 after 25 s.
const ENDS: Duration = Duration::from_secs(30);

/// The file of rules that both nodes have. A node that becomes the owner hangs at a FIFO in its place.
struct Rules(PathBuf);

impl Rules {
    fn are_a_file(&self) {
        let _ = fs::remove_file(&self.0);
        fs::write(&self.0, "topic readwrite #\n").expect("a file");
    }

    fn hang(&self) {
        fs::remove_file(&self.0).expect("it is there");
        let made = Command::new("mkfifo").arg(&self.0).status().expect("it runs");
        assert!(made.success());
    }
}

/// Starts a node, and waits for a line of it.
fn begin(fleet: &mut Fleet, node: usize, line: &str) {
    fleet.begin(node);
    says(fleet, node, line);
}

fn says(fleet: &mut Fleet, node: usize, line: &str) {
    let process = fleet.nodes[node].process.as_mut().expect("it runs");
    assert!(process.line(line).is_some(), "it does not say {line}: {:#?}", process.end());
}

/// Ends a node, which must end in order.
fn ends(fleet: &mut Fleet, node: usize, state: &str) {
    let begun = now();
    fleet.stop(node);
    println!("a node that is {state} ends after {:?}", begun.elapsed());
    assert!(begun.elapsed() < ENDS, "{state}");
}

/// Ends the owner, so that the other node claims the cell, and hangs while it recovers.
fn takes_over_and_hangs(fleet: &mut Fleet, rules: &Rules) {
    begin(fleet, 1, "event=cluster.joined");
    fleet.await_that("a node that stands by", |fleet| fleet.ask(0, &["status"]).1.contains(" following "));
    rules.hang();
    ends(fleet, 0, "serving");
    says(fleet, 1, "event=cluster.owner");
}

fn raise_alarm(engine: &dyn Engine) {
    let row = engine.row(CLUSTER).expect("an answer").expect("a cluster");
    let log = ClusterRow::read(&row.value).expect("JSON").log;
    engine.swap_row(&alarm_key(log), 0, "a test".into()).expect("an answer").expect("the first");
}

#[test]
fn a_node_ends_in_order_in_each_of_its_states() {
    let servers = Servers::start_at_once();
    let rules = Rules(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("endings-{}", std::process::id())));
    rules.are_a_file();
    let mut fleet = Fleet::new(&servers, "endings", &["a", "b"], &format!("[acl]\nfile = {:?}", rules.0));
    assert_eq!(fleet.ask(0, &["init"]).0, 0);
    let pass = |fleet: &Fleet, passage| fleet.doors.iter().for_each(|door| door.set(passage));

    pass(&fleet, Passage::Closed);
    begin(&mut fleet, 0, "event=cluster.engine_away");
    ends(&mut fleet, 0, "joining while the engine is away");
    pass(&fleet, Passage::Open);

    begin(&mut fleet, 0, "event=cluster.serves");
    begin(&mut fleet, 1, "event=cluster.joined");
    ends(&mut fleet, 1, "standing by");
    pass(&fleet, Passage::Hole);
    says(&mut fleet, 0, "event=cluster.isolated");
    ends(&mut fleet, 0, "isolated");
    pass(&fleet, Passage::Open);

    begin(&mut fleet, 0, "event=cluster.serves");
    takes_over_and_hangs(&mut fleet, &rules);
    ends(&mut fleet, 1, "recovering");
    rules.are_a_file();

    // It has stored its Release, so nobody waits for it.
    begin(&mut fleet, 0, "event=cluster.serves");
    takes_over_and_hangs(&mut fleet, &rules);
    raise_alarm(&*servers.node("endings").engine);
    says(&mut fleet, 1, "event=cluster.alarm");
    ends(&mut fleet, 1, "alarmed while it recovers");
    rules.are_a_file();

    begin(&mut fleet, 0, "event=cluster.alarm");
    ends(&mut fleet, 0, "alarmed");
    let _ = fs::remove_file(&rules.0);
}
