//! Objectives, and the deliveries that keep or miss them.

use super::*;

fn objective(topic: &str, client_id: Option<&str>, ms: u64) -> Objective {
    Objective {
        name: topic.into(),
        topic: topic.into(),
        client_id: client_id.and_then(|glob| glob.parse().ok()),
        within: Duration::from_millis(ms),
        target: 0.99,
    }
}

fn objectives(list: Vec<Objective>) -> Objectives {
    Objectives::new(&list.into())
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn counts(of: &Objectives, place: usize) -> ObjectiveCounts {
    of.counts().nth(place).map(|(_, counts)| counts).unwrap_or_default()
}

fn begin(of: &mut Objectives, ms: u64, topic: &str, client: &str, state: ReceiverState) -> DeliveryMark {
    let (of_topic, of_client) = (of.of_topic(topic), of.of_client(client));
    of.begin(at(ms), of_topic, of_client, state)
}

fn connected(of: &mut Objectives, ms: u64, topic: &str, client: &str) -> DeliveryMark {
    begin(of, ms, topic, client, ReceiverState::Connected)
}

#[test]
fn without_objectives_nothing_is_marked_and_nothing_is_kept() {
    let mut none = objectives(Vec::new());
    assert_eq!(connected(&mut none, 5, "a", "c"), DeliveryMark::NONE);
    assert_eq!(none.counts().count(), 0);
    assert_eq!((size_of::<Objectives>(), size_of::<DeliveryMark>()), (24, 6));
}

#[test]
fn a_mark_with_the_time_of_a_queued_delivery_alone_counts_for_no_objective() {
    let mut one = objectives(vec![objective("a", None, 1_000)]);
    let mark = DeliveryMark::queued(at(70_000));
    assert_eq!((mark.is_none(), mark.is_counted(), mark.began()), (false, false, at(70_000)));
    one.acknowledged(at(70_001), mark);
    one.dropped(mark);
    one.passed_on(mark);
    assert_eq!(counts(&one, 0), ObjectiveCounts::default());
}

#[test]
fn the_first_objective_that_matches_topic_and_client_counts_a_delivery() {
    let list = vec![
        objective("alarms/#", Some("siren-*"), 1_000),
        objective("alarms/+/fire", None, 1_000),
        objective("#", None, 1_000),
    ];
    let mut three = objectives(list);
    let wanted = [("alarms/1/fire", "siren-1", 0), ("alarms/1/fire", "lamp", 1), ("other", "siren-1", 2)];
    for (topic, client, place) in wanted {
        let mark = connected(&mut three, 10, topic, client);
        assert_eq!(counts(&three, place).open, 1, "{topic} {client}");
        three.acknowledged(at(20), mark);
        assert_eq!(counts(&three, place), ObjectiveCounts { in_time: 1, ..Default::default() });
    }
    assert!(connected(&mut three, 10, "$SYS/x", "lamp").is_none());
}

#[test]
fn an_acknowledgement_is_in_time_to_the_millisecond() {
    let mut one = objectives(vec![objective("#", None, 5_000)]);
    let (first, second) = (connected(&mut one, 1_000, "a", "c"), connected(&mut one, 1_000, "a", "c"));
    one.acknowledged(at(6_000), first);
    one.acknowledged(at(6_001), second);
    assert_eq!(counts(&one, 0), ObjectiveCounts { in_time: 1, late: 1, ..Default::default() });
}

#[test]
fn a_silent_client_is_late_without_any_call_for_its_delivery() {
    let mut one = objectives(vec![objective("#", None, 5_000)]);
    let mark = connected(&mut one, 1_000, "a", "c");
    one.advance(at(6_000));
    assert_eq!(counts(&one, 0).open, 1);
    one.advance(at(6_000 + 81));
    assert_eq!(counts(&one, 0), ObjectiveCounts { late: 1, ..Default::default() });
    one.acknowledged(at(9_000), mark);
    one.dropped(mark);
    assert_eq!(counts(&one, 0), ObjectiveCounts { late: 1, ..Default::default() });
}

#[test]
fn a_receiver_that_is_away_is_excluded_and_a_message_that_moves_on_counts_nowhere() {
    let mut one = objectives(vec![objective("#", None, 5_000)]);
    assert!(begin(&mut one, 1, "a", "c", ReceiverState::Away).is_none());
    let mark = connected(&mut one, 2, "a", "c");
    one.passed_on(mark);
    assert_eq!(counts(&one, 0), ObjectiveCounts { excluded: 1, ..Default::default() });
}

#[test]
fn the_counts_of_shards_add_up_and_the_budget_follows_from_them() {
    let list: Arc<[Objective]> = vec![objective("#", None, 5_000)].into();
    let (mut here, mut there) = (Objectives::new(&list), Objectives::new(&list));
    for n in 0..199 {
        let mark = connected(&mut here, n, "a", "c");
        here.acknowledged(at(n), mark);
    }
    let mark = connected(&mut there, 3, "a", "c");
    there.dropped(mark);
    connected(&mut there, 4, "a", "c");
    let mut total = Objectives::default();
    total.add(&here);
    total.add(&there);
    let sum = counts(&total, 0);
    assert_eq!(sum, ObjectiveCounts { in_time: 199, dropped: 1, open: 1, ..Default::default() });
    assert_eq!(sum.share_in_time(), Some(0.995));
    assert!(sum.budget_left(0.99).is_some_and(|left| (left - 0.5).abs() < 1e-9));
    assert_eq!((sum.budget_left(1.0), ObjectiveCounts::default().budget_left(0.9)), (None, None));
}

#[test]
fn an_objective_that_stays_over_a_reload_keeps_its_counts_and_its_open_deliveries() {
    let mut some = objectives(vec![objective("a", None, 5_000), objective("b", None, 5_000)]);
    let (a, b) = (connected(&mut some, 1_000, "a", "c"), connected(&mut some, 1_000, "b", "c"));
    // The same name and time, at another place of the list and with another filter and target.
    let stays = Objective { topic: "b/+".into(), target: 0.5, ..objective("b", None, 5_000) };
    some.replace(&vec![objective("new", None, 1_000), stays.clone()].into());
    assert_eq!(
        some.counts().map(|(one, counts)| (&*one.topic, counts.open)).collect::<Vec<_>>(),
        [("new", 0), ("b/+", 1)]
    );
    some.acknowledged(at(1_500), b);
    assert_eq!(counts(&some, 1), ObjectiveCounts { in_time: 1, ..Default::default() });
    // "new" has the ring of "a", whose delivery is none of it.
    for end in [Objectives::dropped, Objectives::passed_on] {
        end(&mut some, a);
    }
    some.acknowledged(at(1_500), a);
    assert_eq!(counts(&some, 0), ObjectiveCounts::default());
    let mark = connected(&mut some, 1_000, "new", "c");
    some.acknowledged(at(1_600), mark);
    assert_eq!(counts(&some, 0), ObjectiveCounts { in_time: 1, ..Default::default() });
    // With another time an objective begins anew.
    some.replace(&vec![Objective { within: Duration::from_secs(9), ..stays }].into());
    assert_eq!((counts(&some, 0), some.counts().count()), (ObjectiveCounts::default(), 1));
}

#[test]
fn marks_of_objectives_that_went_with_the_whole_list_count_nowhere() {
    let mut some = objectives(vec![objective("a", None, 5_000)]);
    let mark = connected(&mut some, 1_000, "a", "c");
    some.replace(&Vec::new().into());
    assert!(some.are_none());
    some.acknowledged(at(1_000), mark);
    some.replace(&vec![objective("a", None, 5_000)].into());
    some.acknowledged(at(1_000), mark);
    some.dropped(mark);
    assert_eq!(counts(&some, 0), ObjectiveCounts::default());
    let mark = connected(&mut some, 1_000, "a", "c");
    some.acknowledged(at(1_000), mark);
    assert_eq!(counts(&some, 0), ObjectiveCounts { in_time: 1, ..Default::default() });
}

#[test]
fn what_a_session_knows_of_another_list_is_known_to_be_old() {
    let mut some = objectives(vec![objective("#", Some("siren-*"), 5_000)]);
    let siren = some.of_client("siren-1");
    assert!(some.are_known(siren) && !some.are_known(ClientObjectives::default()));
    some.replace(&vec![objective("#", Some("siren-*"), 5_000)].into());
    assert!(some.are_known(siren), "the list is the same");
    some.replace(&vec![objective("#", Some("lamp-*"), 5_000)].into());
    assert!(!some.are_known(siren));
}

#[test]
fn sixteen_objectives_replace_sixteen_others_and_half_of_them_come_back() {
    let list = |from: usize| (from..from + MOST).map(|n| objective(&n.to_string(), None, 5_000)).collect();
    let mut some = objectives(list(0));
    let marks: Vec<_> = (0..16).map(|n| connected(&mut some, 10, &n.to_string(), "c")).collect();
    some.replace(&list(8).into());
    marks.iter().for_each(|mark| some.acknowledged(at(20), *mark));
    let in_time: Vec<u64> = some.counts().map(|(_, counts)| counts.in_time).collect();
    assert_eq!(in_time, [[1; 8], [0; 8]].concat());
    let mark = connected(&mut some, 30, "20", "c");
    some.acknowledged(at(30), mark);
    let places: Vec<u64> = some.counts().map(|(_, counts)| counts.in_time).collect();
    assert_eq!((places.iter().sum::<u64>(), places[12]), (9, 1));
}

#[test]
fn shards_that_are_at_different_lists_add_the_objectives_that_both_have() {
    let (mut here, mut there) =
        (objectives(vec![objective("a", None, 5)]), objectives(vec![objective("a", None, 5)]));
    there.replace(&vec![objective("b", None, 5), objective("a", None, 5)].into());
    for shard in [&mut here, &mut there] {
        for topic in ["a", "b"] {
            let mark = connected(shard, 10, topic, "c");
            shard.acknowledged(at(10), mark);
        }
    }
    here.add(&there);
    assert_eq!(here.counts().map(|(_, counts)| counts.in_time).collect::<Vec<_>>(), [2]);
}

/// A random number generator of the test.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// The model keeps each delivery, and decides it by its own times alone.
#[test]
fn counts_equal_a_model_over_ten_thousand_random_deliveries() {
    for (round, within) in [1, 10, 61, 62, 63, 999, 5_000, 86_400_000].into_iter().enumerate() {
        let mut seed = 0x9E37_79B9_7F4A_7C15 ^ round as u64;
        let mut one = objectives(vec![objective("#", None, within)]);
        let (mut expected, mut open, mut now) = (ObjectiveCounts::default(), Vec::new(), 0);
        for _ in 0..10_000 {
            // Sometimes longer than the whole ring.
            now += next(&mut seed)
                % if next(&mut seed).is_multiple_of(50) { within * 3 } else { within / 40 + 1 };
            match next(&mut seed) % 10 {
                0..5 => open.push((now, connected(&mut one, now, "a", "c"))),
                5 => {
                    begin(&mut one, now, "a", "c", ReceiverState::Away);
                    expected.excluded += 1;
                }
                what if !open.is_empty() => {
                    let (began, mark) = {
                        // Mostly one of the last, so that many are in time.
                        let back = next(&mut seed) as usize % open.len().min(6);
                        open.remove(open.len() - 1 - back)
                    };
                    let is_over = now - began > within;
                    one.advance(at(now));
                    match what {
                        6..9 => one.acknowledged(at(now), mark),
                        _ => one.dropped(mark),
                    }
                    match what {
                        _ if is_over => expected.late += 1,
                        6..9 => expected.in_time += 1,
                        _ => expected.dropped += 1,
                    }
                }
                _ => {}
            }
            // The ring is behind by the width of a place at most.
            let width = within.div_ceil(62);
            let surely = open.iter().filter(|(began, _)| now > began + within + width).count() as u64;
            let perhaps = open.iter().filter(|(began, _)| now > began + within).count() as u64;
            one.advance(at(now));
            let now_late = counts(&one, 0).late;
            assert!((expected.late + surely..=expected.late + perhaps).contains(&now_late), "{within}");
        }
        one.advance(at(now + 3 * within + 2));
        expected.late += open.len() as u64;
        assert_eq!(counts(&one, 0), expected, "within {within} ms");
        assert!(expected.late > 100 && expected.in_time > 100 && expected.dropped > 10, "{expected:?}");
    }
}
