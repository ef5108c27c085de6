//! Tests of `inbound`.

use super::*;

fn id(n: u16) -> PacketId {
    PacketId::new(n).unwrap_or_else(|| unreachable!())
}

/// Reports a message, and returns the token of its acknowledgement, if that has to wait.
fn wait(r: &mut Receiver, packet_id: PacketId, qos: QoS, outcome: Outcome, gates: u32) -> AckToken {
    let token = r.next_token();
    r.report(packet_id, qos, outcome, gates, None);
    token
}

#[test]
fn what_waits_and_what_is_known_is_on_the_account() {
    let balanced = |r: &Receiver| {
        let Recounted { in_use, charged } = r.recount();
        assert_eq!(in_use, charged);
        in_use
    };
    let mut r = Receiver::default();
    assert_eq!(balanced(&r), 0);
    for n in 1..=1000 {
        r.admit(id(n));
        wait(&mut r, id(n), QoS::ExactlyOnce, Outcome::Taken, 1);
        balanced(&r);
    }
    assert!(balanced(&r) >= 1000 * size_of::<Pending>() + 8192);
    r.end_connection();
    assert!(balanced(&r) > 8192, "they are carried over");
    for n in 1..=1000 {
        r.answer(AckToken(n - 1), Outcome::Taken);
        r.release(id(n as u16));
    }
    assert!(r.next_due().is_none());
    assert!(balanced(&r) < 1024);
}

// 5.0 [MQTT-4.3.3-10]
#[test]
fn repeated_publish_is_known_until_its_pubrel() {
    let mut r = Receiver::default();
    for n in 1..=1000 {
        assert_eq!(r.admit(id(n)), Admission::New);
        assert_eq!(
            r.report(id(n), QoS::ExactlyOnce, Outcome::Taken, 0, None).map(|d| d.packet_id),
            Some(id(n))
        );
        assert_eq!(r.admit(id(n)), Admission::Repeated);
    }
    assert_eq!(r.unfinished(), 1000);
    for n in 1..=1000 {
        assert!(r.release(id(n)));
        assert!(!r.release(id(n)));
    }
    assert_eq!(r.unfinished(), 0);
    assert_eq!(r.admit(id(7)), Admission::New);
}

#[test]
fn acknowledgements_leave_in_order_each_when_its_gates_have_answered() {
    let mut r = Receiver::default();
    let first = wait(&mut r, id(1), QoS::AtLeastOnce, Outcome::Unmatched, 2);
    let second = wait(&mut r, id(2), QoS::AtLeastOnce, Outcome::Unmatched, 1);
    assert_eq!(r.report(id(3), QoS::AtLeastOnce, Outcome::Unmatched, 0, None), None);
    r.answer(second, Outcome::Refused);
    assert_eq!(r.next_due(), None);
    r.answer(first, Outcome::Unmatched);
    assert_eq!(r.next_due(), None);
    r.answer(first, Outcome::Taken);
    let due: Vec<_> = std::iter::from_fn(|| r.next_due()).map(|d| d.reason).collect();
    assert_eq!(due, [ReasonCode::SUCCESS, ReasonCode::QUOTA_EXCEEDED, ReasonCode::NO_MATCHING_SUBSCRIBERS]);
}

#[test]
fn late_answers_after_the_connection_meet_nothing() {
    let mut r = Receiver::default();
    let stale = wait(&mut r, id(1), QoS::AtLeastOnce, Outcome::Taken, 1);
    r.end_connection();
    let token = wait(&mut r, id(1), QoS::AtLeastOnce, Outcome::Taken, 1);
    r.answer(stale, Outcome::Taken);
    assert_eq!(r.next_due(), None);
    r.answer(token, Outcome::Taken);
    assert!(r.next_due().is_some());
}

#[test]
fn qos_2_repeated_on_the_next_connection_waits_for_the_same_gates() {
    let mut r = Receiver::default();
    assert_eq!(r.admit(id(1)), Admission::New);
    let token = wait(&mut r, id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1);
    r.end_connection();
    assert_eq!((r.unfinished(), r.unanswered()), (0, 0));
    // What comes meanwhile is not kept waiting by it.
    assert!(r.report(id(9), QoS::AtLeastOnce, Outcome::Taken, 0, None).is_some());
    assert_eq!(r.admit(id(1)), Admission::Pending);
    r.answer(token, Outcome::Refused);
    assert_eq!(r.next_due().map(|d| d.reason), Some(ReasonCode::QUOTA_EXCEEDED));
    assert_eq!(r.admit(id(1)), Admission::New);
}

// 5.0 [MQTT-4.3.3-8]
#[test]
fn each_copy_that_comes_while_the_first_waits_gets_a_pubrec_of_its_own() {
    let mut r = Receiver::default();
    assert_eq!(r.admit(id(1)), Admission::New);
    let token = wait(&mut r, id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1);
    for _ in 0..300 {
        assert_eq!(r.admit(id(1)), Admission::Pending);
    }
    r.end_connection();
    // Copies on a connection that is gone are not answered on the next.
    for _ in 0..3 {
        assert_eq!(r.admit(id(1)), Admission::Pending);
    }
    assert_eq!(r.next_due(), None);
    r.answer(token, Outcome::Taken);
    assert_eq!(r.next_due().map(|due| due.again), Some(2));
    assert_eq!(r.admit(id(1)), Admission::Repeated);
}

#[test]
fn a_refusal_is_said_once_for_it_frees_the_identifier() {
    let mut r = Receiver::default();
    assert_eq!(r.admit(id(1)), Admission::New);
    let token = wait(&mut r, id(1), QoS::ExactlyOnce, Outcome::Unmatched, 1);
    assert_eq!(r.admit(id(1)), Admission::Pending);
    r.answer(token, Outcome::Refused);
    assert_eq!(r.next_due().map(|due| due.again), Some(0));
    assert_eq!(r.admit(id(1)), Admission::New);
}

#[test]
fn silent_acknowledgements_keep_later_ones_waiting_neither_before_nor_after_their_gates_answer() {
    let mut r = Receiver::default();
    let old = wait(&mut r, id(1), QoS::AtLeastOnce, Outcome::Taken, 1);
    r.end_connection();
    let new = wait(&mut r, id(2), QoS::AtLeastOnce, Outcome::Taken, 1);
    r.answer(new, Outcome::Taken);
    assert_eq!(r.next_due().map(|d| d.packet_id), Some(id(2)));
    assert_eq!(r.next_due(), None);
    r.answer(old, Outcome::Taken);
    assert_eq!(r.next_due(), None);
    assert!(r.pending.as_ref().is_none_or(|row| row.pending.is_empty()));
}

// 5.0 [MQTT-4.3.3-9]
#[test]
fn refused_qos_2_identifier_denotes_a_new_message() {
    let mut r = Receiver::default();
    assert_eq!(r.admit(id(5)), Admission::New);
    let due = r.report(id(5), QoS::ExactlyOnce, Outcome::Refused, 0, None);
    assert_eq!(due.map(|d| d.reason), Some(ReasonCode::QUOTA_EXCEEDED));
    assert_eq!(r.admit(id(5)), Admission::New);
}

/// The acknowledgements that a row counts, counted one by one.
fn counted(r: &Receiver) -> (usize, usize) {
    let current =
        || r.pending.iter().flat_map(|row| &row.pending).filter(|p| p.ack_state == AckState::Current);
    let at_least_once = current().filter(|p| p.qos == QoS::AtLeastOnce).count();
    (current().count(), at_least_once + r.exactly_once.as_ref().map_or(0, |ids| ids.len()))
}

#[test]
fn the_numbers_of_unanswered_and_unfinished_messages_are_those_of_the_row() {
    let (mut r, mut state, mut tokens) = (Receiver::default(), 7_u64, Vec::new());
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..20_000 {
        match random(12) {
            0..4 => {
                let (number, gates) = (id(random(40) as u16 + 1), random(2) as u32);
                let qos = if random(2) == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
                if qos == QoS::AtLeastOnce || r.admit(number) == Admission::New {
                    tokens.push(wait(&mut r, number, qos, Outcome::Taken, gates));
                }
            }
            4..9 if !tokens.is_empty() => {
                let token = tokens.swap_remove(random(tokens.len() as u64) as usize);
                r.answer(token, Outcome::Taken);
            }
            9 if random(20) == 0 => r.end_connection(),
            10 => {
                r.release(id(random(40) as u16 + 1));
            }
            _ => _ = r.next_due(),
        }
        assert_eq!((r.unanswered(), r.unfinished()), counted(&r));
    }
}
