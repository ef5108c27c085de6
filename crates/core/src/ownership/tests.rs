//! One machine by hand, input by input.

use super::*;
use crate::time::Instant;
use OwnershipInput as Input;
use OwnershipOutput as Output;

const NODE: CellNode = CellNode { cell: 0, node: 1, nodes: 3, directory: 20, boot: 7 };
const OF_ANOTHER: Claim =
    Claim { node: 0, directory: 10, boot: 6, epoch: 4, lease: Duration::from_millis(4000) };

struct Machine {
    cell: CellOwnership,
    now: u64,
    outputs: Vec<Output>,
}

impl Machine {
    /// A standby at position 10, whose owner is another node.
    fn standby() -> Machine {
        Machine::start(Start { position: Position(10), claim: Some(OF_ANOTHER), ..Start::default() })
    }

    fn start(start: Start) -> Machine {
        let cell = CellOwnership::new(NODE, Timing::default(), start, Instant::from_millis(1000));
        Machine { cell: cell.expect("the default"), now: 1000, outputs: Vec::new() }
    }

    /// An owner at position 11 that serves. Its Claim was sent at 1 s and stored at 1.2 s.
    fn owner() -> Machine {
        let mut machine = Machine::start(Start { position: Position(10), ..Start::default() });
        machine.tell(Input::Last(at(10)));
        machine.now += 200;
        let id = machine.append();
        machine.tell(Input::Reply(id, AppendReply::Stored));
        assert_eq!(machine.tell(Input::Recovered), [Output::Serve]);
        machine
    }

    /// Hands in an input, and returns the outputs without questions for the last position and the
    /// rows.
    fn tell(&mut self, input: Input) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.cell.handle(input, Instant::from_millis(self.now), &mut outputs);
        self.outputs.extend(&outputs);
        outputs.retain(|output| !matches!(output, Output::AskLast | Output::AskRows));
        outputs
    }

    fn tick(&mut self) -> Vec<Output> {
        self.tell(Input::Tick(Progress::Moving))
    }

    /// The number of the last append.
    fn append(&self) -> AppendId {
        let appends = self.outputs.iter().rev().filter_map(|output| match output {
            Output::Append(id, ..) => Some(*id),
            _ => None,
        });
        appends.into_iter().next().expect("an append")
    }

    /// Lets time pass while the leader answers each 250 ms. Returns the time of the first append.
    fn first_append_until(&mut self, end: u64, answer: EngineAnswer) -> Option<u64> {
        while self.now < end {
            self.now += 250;
            let mut outputs = self.tick();
            outputs.extend(self.tell(Input::Last(answer)));
            if outputs.iter().any(|output| matches!(output, Output::Append(..))) {
                return Some(self.now);
            }
        }
        None
    }
}

fn at(position: u64) -> EngineAnswer {
    EngineAnswer { last: Position(position), reported: Position(position), rows_read: Instant::NEVER }
}

fn is_claim(output: &Output) -> bool {
    matches!(output, Output::Append(_, _, AppendKind::Claim(_)))
}

#[test]
fn a_standby_claims_after_its_suspicion_and_its_rank() {
    let mut machine = Machine::standby();
    assert_eq!(machine.first_append_until(20_000, at(10)), Some(1000 + 6000 + 500));
    let claim = Claim { node: 1, directory: 20, boot: 7, epoch: 5, lease: Duration::from_secs(4) };
    let expected = Output::Append(AppendId(1), Position(11), AppendKind::Claim(claim));
    assert!(machine.outputs.contains(&expected));
}

#[test]
fn a_longer_lease_in_the_claim_makes_a_longer_suspicion() {
    let claim = Claim { lease: Duration::from_secs(8), ..OF_ANOTHER };
    let mut machine =
        Machine::start(Start { position: Position(10), claim: Some(claim), ..Start::default() });
    assert_eq!(machine.first_append_until(20_000, at(10)), Some(1000 + 12_000 + 500));
}

#[test]
fn a_standby_does_not_claim_over_what_it_lacks() {
    // The log has more, or another node has.
    for (last, reported) in [(11, 10), (10, 11)] {
        let mut machine = Machine::standby();
        let answer =
            EngineAnswer { last: Position(last), reported: Position(reported), rows_read: Instant::NEVER };
        assert_eq!(machine.first_append_until(29_000, answer), None);
    }
    // It has seen a frame and not applied it.
    let mut machine = Machine::standby();
    machine.tell(Input::Frame(Position(11), SeenKind::Other));
    assert_eq!(machine.first_append_until(20_000, at(11)), None);
    assert!(machine.tell(Input::Applied(Position(11))).iter().any(is_claim));
    // It may not.
    let mut machine = Machine::standby();
    machine.tell(Input::Fitness(Fitness::Unfit));
    assert_eq!(machine.first_append_until(20_000, at(10)), None);
}

#[test]
fn a_claim_waits_for_rows_that_are_younger_than_the_silence_and_asks_for_them() {
    let answer = |rows_read| EngineAnswer { rows_read: Instant::from_millis(rows_read), ..at(10) };
    // The first answer that shows the log unmoved comes at 1.25 s.
    let mut machine = Machine::standby();
    assert_eq!(machine.first_append_until(7250, answer(1200)), None);
    assert!(!machine.outputs.contains(&Output::AskRows), "before only the rows are missing");
    assert_eq!(machine.first_append_until(7750, answer(1249)), None);
    assert_eq!(machine.first_append_until(8500, answer(1249)), None);
    let asked = machine.outputs.iter().filter(|output| **output == Output::AskRows).count();
    assert_eq!(asked, 1, "once in the time in which an answer comes");
    assert_eq!(machine.first_append_until(20_000, answer(1250)), Some(8750));
    // Who needs no silence needs the rows all the same: an alarm may be in them.
    let mut machine = Machine::start(Start { position: Position(10), ..Start::default() });
    assert_eq!(machine.first_append_until(20_000, answer(0)), None);
    assert!(machine.tell(Input::Last(answer(1))).iter().any(is_claim));
}

#[test]
fn an_engine_that_comes_back_gets_its_quiet_time() {
    let mut machine = Machine::standby();
    machine.now = 15_000;
    machine.tell(Input::LastUnknown);
    assert_eq!(machine.first_append_until(30_000, at(10)), Some(15_250 + 1500));
    // A standby that stood still has no answers in a row.
    let mut machine = Machine::standby();
    assert_eq!(machine.first_append_until(4_000, at(10)), None);
    machine.now = 15_000;
    assert_eq!(machine.first_append_until(30_000, at(10)), Some(15_250 + 1500));
}

#[test]
fn a_release_is_followed_by_a_claim_at_once() {
    let mut machine = Machine::standby();
    machine.tell(Input::Frame(Position(11), SeenKind::Release));
    assert_eq!(machine.outputs.pop(), Some(Output::AskLast), "without a wait");
    machine.tell(Input::Applied(Position(11)));
    assert!(machine.tell(Input::Last(at(11))).iter().any(is_claim));
}

#[test]
fn a_directory_that_crashed_claims_its_cell_at_once_three_times() {
    let own = Claim { node: 1, directory: 20, boot: 7, ..OF_ANOTHER };
    let claims = |claim, crashes| {
        let start = Start { position: Position(10), claim: Some(claim), crashes, ..Start::default() };
        Machine::start(start).tell(Input::Last(at(10))).iter().any(is_claim)
    };
    assert_eq!([1, 3, 4].map(|crashes| claims(own, crashes)), [true, true, false]);
    assert!(!claims(Claim { boot: 8, ..own }, 1), "a copy of the disk");
    assert!(!claims(Claim { node: 0, ..own }, 1), "a copy of the directory, as another node of this machine");
}

#[test]
fn who_came_second_follows() {
    let mut machine = Machine::start(Start::default());
    assert!(machine.tell(Input::Last(at(0))).iter().any(is_claim), "an empty log has no owner");
    let id = machine.append();
    let outputs = machine.tell(Input::Reply(id, AppendReply::WrongLast));
    assert_eq!(outputs, [Output::ReadNext(id, Position(1))]);
    assert_eq!(machine.tell(Input::Next(id, NextFrame::Another)), [Output::Follow]);
    assert_eq!(machine.cell.role(), Role::Following);
    assert_eq!(machine.tick(), [], "the last answer is too old for another Claim");
    machine.tell(Input::Frame(Position(1), SeenKind::Claim(Claim { epoch: 1, ..OF_ANOTHER })));
    assert_eq!((machine.cell.epoch(), machine.cell.position()), (1, Position(1)));
}

#[test]
fn an_undecided_frame_is_looked_for_and_sent_again_for_ever() {
    let mut machine = Machine::owner();
    machine.tell(Input::GroupReady);
    let id = machine.append();
    for reply in [AppendReply::TimedOut, AppendReply::WrongLast, AppendReply::Full, AppendReply::TimedOut] {
        assert_eq!(machine.tell(Input::Reply(id, reply)), [Output::ReadNext(id, Position(12))]);
        assert_eq!(machine.tell(Input::Reply(id, reply)), [], "it is being read");
        machine.tell(Input::Next(id, NextFrame::Nothing));
        assert_eq!(machine.tell(Input::GroupReady), [], "no second frame before the first is decided");
        machine.now += 150;
        assert_eq!(machine.cell.wake_at(), Instant::from_millis(machine.now));
        assert_eq!(machine.tick(), [Output::Resend(id)]);
    }
    assert_eq!(machine.cell.undecided_since(), Some(Instant::from_millis(1200)));
    let outputs = machine.tell(Input::Next(id, NextFrame::Ours));
    let [Output::GroupStored(stored), Output::Append(next, Position(13), AppendKind::Group)] = outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert!(stored == id && next != id);
    assert_eq!(machine.tell(Input::Reply(id, AppendReply::Stored)), [], "a late answer");
}

#[test]
fn a_group_is_refused_only_if_its_one_attempt_was() {
    let mut machine = Machine::owner();
    machine.tell(Input::GroupReady);
    let id = machine.append();
    assert_eq!(machine.tell(Input::Reply(id, AppendReply::Full)), [Output::GroupFull(id)]);
    assert_eq!(machine.cell.undecided_since(), None);
}

#[test]
fn a_full_log_is_tried_after_a_pause() {
    let mut machine = Machine::owner();
    machine.now += 1000;
    assert_eq!(machine.tick().len(), 1, "a beat");
    let id = machine.append();
    assert_eq!(machine.tell(Input::Reply(id, AppendReply::Full)), []);
    assert_eq!(machine.tick(), []);
    machine.now += 150;
    assert!(matches!(machine.tick()[..], [Output::Append(_, Position(12), AppendKind::Beat)]));
}

#[test]
fn an_owner_whose_groups_do_not_fit_keeps_its_lease_by_beats() {
    let mut machine = Machine::owner();
    let end = machine.now + 20_000;
    while machine.now < end {
        // The driver tries the group again after each pause.
        machine.tell(Input::GroupReady);
        let group = machine.append();
        let outputs = machine.tell(Input::Reply(group, AppendReply::Full));
        assert_eq!(outputs[0], Output::GroupFull(group));
        if let Some(Output::Append(beat, _, AppendKind::Beat)) = outputs.get(1) {
            machine.tell(Input::Reply(*beat, AppendReply::Stored));
        }
        machine.now += 150;
        assert!(machine.cell.lease_until() > Instant::from_millis(machine.now), "at {} ms", machine.now);
    }
}

#[test]
fn the_lease_counts_from_the_first_attempt() {
    let mut machine = Machine::owner();
    assert_eq!(machine.cell.lease_until(), Instant::from_millis(1000 + 4000));
    machine.now = 2000;
    machine.tick();
    let id = machine.append();
    machine.now = 5500;
    machine.tell(Input::Reply(id, AppendReply::TimedOut));
    assert!(machine.cell.lease_until() <= Instant::from_millis(5500));
    machine.tell(Input::Next(id, NextFrame::Ours));
    assert_eq!(machine.cell.lease_until(), Instant::from_millis(2000 + 4000));
}

#[test]
fn a_beat_covers_promises_early_and_says_that_the_owner_works() {
    let mut machine = Machine::owner();
    machine.tell(Input::Promised);
    machine.now += 249;
    assert_eq!(machine.tick(), []);
    machine.now += 1;
    assert_eq!(machine.tell(Input::Tick(Progress::Stuck)), []);
    assert!(matches!(machine.tick()[..], [Output::Append(_, Position(12), AppendKind::Beat)]));
}

#[test]
fn an_owner_that_hangs_appends_no_groups_either_until_it_works_again() {
    let mut machine = Machine::owner();
    machine.tell(Input::Tick(Progress::Stuck));
    assert_eq!(machine.tell(Input::GroupReady), []);
    machine.now += 3000;
    assert_eq!(machine.tell(Input::Tick(Progress::Stuck)), []);
    assert!(matches!(machine.tick()[..], [Output::Append(_, Position(12), AppendKind::Group)]));
}

#[test]
fn an_owner_whose_place_is_taken_ends() {
    let mut machine = Machine::owner();
    machine.tell(Input::GroupReady);
    let id = machine.append();
    machine.tell(Input::Reply(id, AppendReply::WrongLast));
    let outputs = machine.tell(Input::Next(id, NextFrame::Another));
    assert_eq!(outputs, [Output::StopAcknowledging, Output::Exit(EXIT_LOST)]);
    assert!(machine.cell.lease_until() <= Instant::from_millis(machine.now));
}

#[test]
fn a_drained_owner_ends_its_lease_before_its_release() {
    let mut machine = Machine::owner();
    assert_eq!(machine.tell(Input::Drain), [Output::Flush]);
    assert_eq!(machine.cell.lease_until(), Instant::ZERO);
    machine.tell(Input::GroupReady);
    let group = machine.append();
    assert_eq!(machine.tell(Input::Flushed), [], "the group is under way");
    let outputs = machine.tell(Input::Reply(group, AppendReply::Stored));
    let release = machine.append();
    let expected = [Output::GroupStored(group), Output::Append(release, Position(13), AppendKind::Release)];
    assert_eq!(outputs, expected);
    assert_eq!(machine.tell(Input::Reply(release, AppendReply::Stored)), [Output::Exit(0)]);
}

#[test]
fn a_drained_claimant_releases_what_it_cannot_take_back() {
    let mut machine = Machine::start(Start::default());
    machine.tell(Input::Last(at(0)));
    let claim = machine.append();
    assert_eq!(machine.tell(Input::Drain), []);
    assert_eq!(machine.tell(Input::Reply(claim, AppendReply::Stored)), [Output::Flush]);
    assert!(matches!(
        machine.tell(Input::Flushed)[..],
        [Output::Append(_, Position(2), AppendKind::Release)]
    ));
    let mut machine = Machine::standby();
    assert_eq!(machine.tell(Input::Drain), [Output::Exit(0)]);
}

#[test]
fn an_isolated_owner_disconnects_once_and_comes_back() {
    let mut machine = Machine::owner();
    machine.now = 2000;
    machine.tick();
    let id = machine.append();
    machine.now = 10_999;
    assert_eq!(machine.tick(), []);
    machine.now = 11_000;
    assert_eq!(machine.tick(), [Output::Isolate]);
    assert_eq!(machine.tick(), []);
    let outputs = machine.tell(Input::Reply(id, AppendReply::Stored));
    assert_eq!(outputs[0], Output::Rejoin);
}

#[test]
fn frames_that_are_gone_raise_an_alarm_after_30_seconds() {
    let mut machine = Machine::standby();
    assert_eq!(machine.first_append_until(31_000, at(9)), None);
    machine.tell(Input::LastUnknown);
    machine.now = 31_300;
    let expected = [Output::StopAcknowledging, Output::WriteAlarm(Alarm::LostFrames)];
    assert_eq!(machine.tell(Input::Last(at(9))), expected);
    // One whole answer ends it.
    let mut machine = Machine::standby();
    machine.tell(Input::Last(at(9)));
    machine.now = 20_000;
    machine.tell(Input::Last(at(10)));
    machine.now = 32_000;
    machine.tell(Input::Last(at(9)));
    assert_eq!(machine.cell.role(), Role::Following);
}

#[test]
fn an_alarm_ends_every_role_and_nothing_follows() {
    for (mut machine, input) in [
        (Machine::standby(), Input::Broken(ChainBreak::AnotherPredecessor(Position(10)))),
        (Machine::owner(), Input::AlarmRead),
    ] {
        assert_eq!(machine.tell(input)[0], Output::StopAcknowledging);
        assert_eq!(machine.cell.role(), Role::Alarmed);
        assert_eq!(machine.first_append_until(30_000, at(10)), None);
        assert_eq!(machine.tell(Input::AlarmRead), []);
    }
}

#[test]
fn a_foreign_log_ends_the_node_and_alarms_nobody() {
    let mut machine = Machine::standby();
    let broken = ChainBreak::AnotherLog { found: 1, own: 2 };
    let expected = [Output::StopAcknowledging, Output::Exit(EXIT_REFUSED)];
    assert_eq!(machine.tell(Input::Broken(broken)), expected);
    assert_eq!(machine.tell(Input::Broken(broken)), []);
}

/// A disk that hangs while a new owner reads its store keeps the cell for a bounded time.
#[test]
fn a_recovery_that_does_nothing_sends_no_beats_until_it_goes_on() {
    let mut machine = Machine::start(Start { position: Position(10), ..Start::default() });
    machine.tell(Input::Last(at(10)));
    let id = machine.append();
    assert_eq!(machine.tell(Input::Reply(id, AppendReply::Stored)), [Output::Recover(1)]);
    let mut beats = |done: u64, until: u64| {
        let mut beats = 0;
        while machine.now < until {
            machine.now += 250;
            if !machine.tell(Input::Tick(Progress::Recovered(done))).is_empty() {
                let id = machine.append();
                machine.tell(Input::Reply(id, AppendReply::Stored));
                beats += 1;
            }
        }
        beats
    };
    assert_eq!(beats(1, 11_000), 10);
    // Nothing was done after 1.25 s.
    assert_eq!(beats(1, 30_000), 0);
    assert_eq!(beats(2, 35_000), 5);
}

#[test]
fn cells_have_their_first_rank_on_different_nodes() {
    let rank = |cell, node| CellNode { cell, node, ..NODE }.rank();
    assert_eq!(
        [0, 1, 2].map(|cell| [0, 1, 2].map(|node| rank(cell, node))),
        [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    );
}
