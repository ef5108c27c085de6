//! Every rule for an acknowledgement that does not come, in every version: a table of clients that
//! withhold them by plan, all at once on one broker, each held to what its plan makes lawful and to
//! the times.
//!
//! Times are bounded from both sides by what can be known outside: nothing may come earlier than
//! its spacing after what it follows was *sent* to the broker, nor later than the spacing, one
//! expiry tick and a tolerance after that *arrived*.

use crate::scripted::{Message as Seen, Plan, Scripted};
use crate::support::launch::{TestBroker, start_broker};
use crate::support::{
    Connect, Kind, Message, PATIENCE, Packet, Property, RawClient, V5, V31, V311, Version, now,
};
use homing::config::Config;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(300);
/// The spacings of resends in 3.1 and 3.1.1: they double up to their cap.
const SPACINGS: [Duration; 4] =
    [INTERVAL, Duration::from_millis(600), Duration::from_millis(600), Duration::from_millis(600)];
const ATTEMPTS: usize = 3;
const ACK_TIMEOUT: Duration = Duration::from_secs(1);
const BUCKET: Duration = Duration::from_millis(100);
/// Lateness that a busy machine may add.
const TOLERANCE: Duration = Duration::from_millis(700);
/// The broker counts whole milliseconds.
const GRANULARITY: Duration = Duration::from_millis(5);
/// Past the end of the attempts, and of two ack timeouts.
const LIVE: Duration = Duration::from_millis(3400);
const MESSAGES: usize = 3;

fn quick(config: &mut Config) {
    config.redelivery.interval = INTERVAL;
    config.redelivery.max_backoff = INTERVAL * 2;
    config.redelivery.jitter = 0.0;
    config.redelivery.attempts = ATTEMPTS as u16;
    config.redelivery.ack_timeout = ACK_TIMEOUT;
    config.expiry.tick = BUCKET;
    config.runtime.threads = 3;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Session {
    Ends,
    Stays,
}

/// One client of the table.
#[derive(Clone, Copy, Debug)]
struct Case {
    version: Version,
    qos: u8,
    session: Session,
    plan: Plan,
}

impl Case {
    fn client_id(&self) -> String {
        format!("{self:?}").replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    }

    fn connect(&self) -> Connect {
        match self.session {
            Session::Ends => Connect::new(self.version, &self.client_id()),
            Session::Stays => Connect::persistent(self.version, &self.client_id()),
        }
    }

    fn is_resent_to(&self) -> bool {
        self.version != V5
    }

    /// Returns true if the plan never finishes the message at this place.
    fn withholds(&self, at: usize) -> bool {
        match self.plan {
            Plan::Never | Plan::NoPubcomp => true,
            Plan::EveryNth(n) => at % n != n - 1,
            Plan::AfterResends(_) => !self.is_resent_to(),
            Plan::Late(_) | Plan::ReadsNothing(_) | Plan::ReadsSlowly { .. } => false,
        }
    }

    fn is_disconnected(&self) -> bool {
        self.session == Session::Stays && self.withholds(0)
    }
}

fn table() -> Vec<Case> {
    let late = Plan::Late(Duration::from_millis(450));
    let mut cases = Vec::new();
    for version in [V31, V311, V5] {
        for qos in [1, 2] {
            for session in [Session::Ends, Session::Stays] {
                for plan in [Plan::Never, Plan::EveryNth(3), late, Plan::AfterResends(2), Plan::NoPubcomp] {
                    cases.push(Case { version, qos, session, plan });
                }
            }
        }
    }
    cases
}

#[test]
fn whatever_is_withheld_the_rules_of_the_version_hold() {
    let broker = start_broker(quick);
    let cases = table();
    assert_eq!(cases.len(), 60);
    std::thread::scope(|scope| {
        for case in &cases {
            let name = case.client_id();
            let run = || live_and_return(&broker, case);
            // The name of the thread names the case that fails.
            std::thread::Builder::new().name(name).spawn_scoped(scope, run).expect("a thread");
        }
    });
}

fn live_and_return(broker: &TestBroker, case: &Case) {
    let topic = format!("t/{}", case.client_id());
    let mut client = broker.connect(&case.connect());
    client.subscribe(&[(&topic, case.qos)]);
    let mut publisher = broker.client(V5, &format!("p-{}", case.client_id()));
    let published = now();
    for n in 0..MESSAGES {
        publisher.deliver(&Message::new(&topic, n.to_string()).qos(case.qos));
    }
    let mut scripted = Scripted::new(client, case.plan);
    scripted.run(now() + LIVE);
    assert_eq!(scripted.messages.len(), MESSAGES);
    for (at, seen) in scripted.messages.iter().enumerate() {
        assert_eq!(seen.first.text(), at.to_string(), "in the order of their publication");
        judge(case, at, seen, published);
    }
    judge_end(case, &scripted, published);
    if scripted.ended.is_some() {
        comes_back(broker, case, &scripted.messages);
    } else {
        assert_alive(case, &mut scripted.client);
    }
}

/// Held to the times: PUBLISH until it was answered, PUBREL from then on.
fn judge(case: &Case, at: usize, seen: &Seen, published: Instant) {
    let (count, answered) = (seen.publishes.len(), seen.answered);
    if let Some(answered) = answered {
        // Resends that crossed the acknowledgement.
        let last = seen.publishes.iter().chain(&seen.releases).max().copied().filter(|_| seen.finished);
        assert!(last.is_none_or(|last| last <= answered + TOLERANCE), "{case:?} {at}: after it was finished");
    }
    if !case.is_resent_to() {
        // 5.0 [MQTT-4.4.0-1]
        assert_eq!((count, seen.releases.len() < 2), (1, true), "{case:?} {at}: resent on a live connection");
        return;
    }
    in_time(case, &seen.publishes, published);
    if let Some(answered) = answered.filter(|_| case.qos == 2) {
        in_time(case, &seen.releases, answered);
    }
    let (all, releases) = (1 + ATTEMPTS, seen.releases.len());
    // The first message ends the connection.
    let enough = |sent: usize| match at {
        0 if case.is_disconnected() => sent == all,
        _ if case.is_disconnected() => sent <= all,
        _ => sent > all,
    };
    let lawful = match case.plan {
        Plan::Never => enough(count),
        Plan::EveryNth(_) if case.withholds(at) => enough(count),
        Plan::NoPubcomp if case.qos == 1 => enough(count),
        Plan::NoPubcomp => count == 1 && enough(releases),
        Plan::EveryNth(_) => count == 1,
        Plan::Late(_) => count >= 2,
        Plan::AfterResends(times) => count == times + 1,
        Plan::ReadsNothing(_) | Plan::ReadsSlowly { .. } => unreachable!("no such case"),
    };
    assert!(lawful, "{case:?} {at}: PUBLISH {count} times, PUBREL {releases} times");
}

/// Each of `arrivals` comes its spacing after the one before; the first was caused at `cause`.
fn in_time(case: &Case, arrivals: &[Instant], cause: Instant) {
    let mut due = Duration::ZERO;
    for (times, pair) in arrivals.windows(2).enumerate() {
        let spacing = SPACINGS[times.min(SPACINGS.len() - 1)];
        due += spacing;
        let (since_cause, since_last) = (pair[1] - cause, pair[1] - pair[0]);
        assert!(
            since_cause + GRANULARITY >= due,
            "{case:?}: resend {times} early: {since_cause:?} of {due:?}"
        );
        let latest = spacing + BUCKET + TOLERANCE;
        assert!(since_last <= latest, "{case:?}: resend {times} late: {since_last:?} of {spacing:?}");
    }
}

/// Asserts that the broker ended the connection if it should, in time and with the right reason.
fn judge_end(case: &Case, scripted: &Scripted, published: Instant) {
    let Some((farewell, at)) = &scripted.ended else {
        assert!(!case.is_disconnected(), "{case:?}: not disconnected");
        return;
    };
    assert!(case.is_disconnected(), "{case:?}: disconnected: {farewell:?}");
    let seen = &scripted.messages[0];
    let releases = case.plan == Plan::NoPubcomp && case.qos == 2;
    let (cause, arrivals) = if releases {
        (seen.answered.expect("PUBREC"), &seen.releases)
    } else {
        (published, &seen.publishes)
    };
    let last = *arrivals.last().expect("it came");
    let (since_cause, since_last) = if case.is_resent_to() {
        (SPACINGS.iter().sum(), SPACINGS[ATTEMPTS])
    } else {
        (ACK_TIMEOUT, ACK_TIMEOUT)
    };
    assert!(*at - cause + GRANULARITY >= since_cause, "{case:?}: disconnected early: {:?}", *at - cause);
    assert!(*at - last <= since_last + BUCKET + TOLERANCE, "{case:?}: disconnected late: {:?}", *at - last);
    match farewell {
        Some(farewell) => {
            let named = format!("packet {} unacknowledged for ", seen.first.id);
            let text = farewell.properties.iter().find_map(|property| match property {
                Property::ReasonString(text) => Some(text),
                _ => None,
            });
            assert!(text.is_some_and(|text| text.starts_with(&named)), "{case:?}: {farewell:?}");
            assert_eq!((farewell.code, case.version), (0x97, V5));
        }
        None => assert_ne!(case.version, V5, "{case:?}: no reason in a DISCONNECT"),
    }
}

/// Everything unfinished is there at the return: in order, with DUP, under its identifier; PUBREL
/// where PUBREC was sent.
// 3.1.1 and 5.0 [MQTT-4.4.0-1]
fn comes_back(broker: &TestBroker, case: &Case, messages: &[Seen]) {
    let mut client = broker.connect(&case.connect());
    let open: Vec<&Seen> = messages.iter().filter(|seen| !seen.finished).collect();
    for seen in &open {
        if seen.answered.is_some() {
            client.expect_ack(Kind::Pubrel, seen.first.id);
        } else {
            let again = client.expect_publish();
            assert!(again.dup, "{case:?}: {again:?}");
            assert_eq!((again.id, again.text()), (seen.first.id, seen.first.text()), "{case:?}");
        }
    }
    for seen in &open {
        match seen.answered {
            Some(_) => client.ack(Kind::Pubcomp, seen.first.id),
            None => client.complete(&seen.first),
        }
    }
    assert_alive(case, &mut client);
}

/// The connection is alive, and in 5.0 nothing has come again; a resend may have crossed the
/// acknowledgement.
fn assert_alive(case: &Case, client: &mut RawClient) {
    client.ping();
    loop {
        match client.receive() {
            Packet::Pingresp => return,
            packet => assert!(case.is_resent_to(), "{case:?}: {packet:?}"),
        }
    }
}

/// On a slow link, a message that the client's kernel has not received is not sent again and does
/// not end the connection.
#[test]
fn what_a_slow_link_has_not_delivered_is_neither_resent_nor_held_against_the_client() {
    let broker = start_broker(|config| {
        quick(config);
        // Time for a busy machine to read the end of a message that has arrived.
        config.redelivery.interval = ACK_TIMEOUT;
        config.redelivery.max_backoff = ACK_TIMEOUT;
    });
    let nothing = Plan::ReadsNothing(ACK_TIMEOUT * 2 + BUCKET);
    let slowly = Plan::ReadsSlowly { bytes: 4 * 1024, every: Duration::from_millis(30) };
    std::thread::scope(|scope| {
        for version in [V31, V311, V5] {
            for plan in [nothing, slowly] {
                let case = Case { version, qos: 1, session: Session::Stays, plan };
                let broker = &broker;
                let run = move || on_a_slow_link(broker, case);
                std::thread::Builder::new()
                    .name(case.client_id())
                    .spawn_scoped(scope, run)
                    .expect("a thread");
            }
        }
    });
}

fn on_a_slow_link(broker: &TestBroker, case: Case) {
    let topic = format!("t/{}", case.client_id());
    let client = broker.open(case.version);
    socket2::SockRef::from(client.stream()).set_recv_buffer_size(8 * 1024).expect("SO_RCVBUF");
    let mut client = client.accepted(&case.connect());
    client.subscribe(&[(&topic, 1)]);
    // No message fits the receive buffer whole: at that pace each takes more than an ack timeout.
    let payload = vec![b'x'; 200_000];
    let mut publisher = broker.client(V5, &format!("p-{}", case.client_id()));
    for _ in 0..2 {
        publisher.deliver(&Message::new(&topic, &payload).qos(1));
    }
    let begun = now();
    let mut scripted = Scripted::new(client, case.plan);
    while scripted.messages.len() < 2 && scripted.ended.is_none() && (now() - begun) < PATIENCE {
        let until = now() + Duration::from_millis(200);
        scripted.run(until);
    }
    assert!(scripted.ended.is_none(), "{case:?}: disconnected: {:?}", scripted.ended);
    assert!((now() - begun) > ACK_TIMEOUT * 2, "{case:?}: the link is not slow: {:?}", (now() - begun));
    let times: Vec<usize> = scripted.messages.iter().map(|seen| seen.publishes.len()).collect();
    assert_eq!(times, [1, 1], "{case:?}: resent before it had arrived");
    // An acknowledged message does not come again.
    let again = scripted.client.drain();
    assert!(again.is_empty(), "{case:?}: {} resends", again.len());
}
