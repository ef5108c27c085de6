//! The list of clients: its order over all threads, its filters and its numbers; and the facts of one
//! client.

use crate::api::{Administered, json_of};
use crate::pages::{get, log_in};
use crate::support::{Connect, Message, RawClient, Version};
use serde_json::Value;

/// Leaves sessions with this many queued messages each. The sessions are on all threads.
fn away(broker: &Administered, sessions: &[(&str, usize)]) {
    for (name, _) in sessions {
        let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, name));
        client.subscribe(&[(name, 1)]);
        client.disconnect();
    }
    let mut publisher = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "zz-publisher"));
    for (name, messages) in sessions {
        (0..*messages).for_each(|_| assert_eq!(publisher.deliver(&Message::new(*name, "on").qos(1)), 0));
    }
    publisher.disconnect();
}

fn names(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["client_id"].as_str()).collect()
}

#[test]
fn clients_come_in_one_order_over_all_threads_and_pages_with_their_number() {
    let broker = Administered::start_with(&["--ephemeral"]);
    let sessions: Vec<(String, usize)> = (0..25).map(|n| (format!("dev-{n:02}"), n % 4)).collect();
    let listed: Vec<(&str, usize)> = sessions.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    away(&broker, &listed);
    let pages = broker.pages("/api/v1/clients?sort=client_id&limit=10&prefix=dev-", "clients");
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let all: Vec<&str> = sessions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names(&pages.concat()), all);
    let mut by_queue = listed.clone();
    by_queue.sort_by_key(|(name, count)| (usize::MAX - count, *name));
    let by_queue: Vec<&str> = by_queue.into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names(&broker.pages("/api/v1/clients?sort=queued&limit=7&prefix=dev-", "clients").concat()),
        by_queue
    );
    let (_, answer) = broker.ask("GET", "/api/v1/clients?sort=queued&limit=7&prefix=dev-", &broker.viewer);
    let first = json_of(&answer);
    assert_eq!(
        (&first["total"], &first["before"], &first["complete"]),
        (&25.into(), &0.into(), &true.into())
    );
    let next = first["next"].as_str().expect("a next page");
    let path = format!("/api/v1/clients?sort=queued&limit=7&prefix=dev-&cursor={next}");
    assert_eq!(json_of(&broker.ask("GET", &path, &broker.viewer).1)["before"], 7);
    // The cursor of another order is refused, and an unknown order says the right ones.
    let foreign = format!("/api/v1/clients?sort=client_id&limit=7&prefix=dev-&cursor={next}");
    assert_eq!(broker.ask("GET", &foreign, &broker.viewer).0, 400);
    let (status, answer) = broker.ask("GET", "/api/v1/clients?sort=name", &broker.viewer);
    assert!(status == 400 && answer.contains("client_id, oldest_unacked, queued"), "{answer}");
    let (status, answer) = broker.ask("GET", "/api/v1/clients?limit=x", &broker.viewer);
    assert!(status == 400 && answer.contains(r#"limit is \"x\", and must be a whole number"#), "{answer}");
    let (code, text) = broker.ctl(&["clients", "--prefix", "dev-", "--sort", "queued", "--limit", "2"]);
    assert!(code == Some(0) && text.contains("2 of 25; raise --limit"), "{text}");
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients?prefix=dev-&sort=queued", &cookie);
    assert!(page.contains("1-25 of 25 that fit the filter"), "{page}");
    assert!(
        page.contains(r#"aria-sort="descending"><a href="/clients?prefix=dev-&#38;sort=queued""#),
        "{page}"
    );
    let links = page.split(r#"href="/clients/dev-"#).skip(1).filter_map(|rest| rest.split('"').next());
    assert_eq!(links.map(|id| format!("dev-{id}")).collect::<Vec<_>>(), by_queue);
}

#[test]
fn each_client_has_its_messages_and_bytes_in_and_out_and_the_list_is_sorted_by_them() {
    let broker = Administered::start_with(&["--ephemeral"]);
    let connect = |name| RawClient::connect(broker.mqtt, &Connect::new(Version::V5, name));
    let (mut receiver, mut one, mut three) = (connect("receiver"), connect("one"), connect("three"));
    receiver.subscribe(&[("t", 1)]);
    // The PUBACK waits until the message was written to the receiver.
    assert_eq!(one.deliver(&Message::new("t", "on").qos(1)), 0);
    (0..3).for_each(|_| assert_eq!(three.deliver(&Message::new("t", "on").qos(1)), 0));
    let by = |order: &str| broker.pages(&format!("/api/v1/clients?sort={order}&limit=2"), "clients").concat();
    let rows = by("received_messages");
    let field = |row: &Value, name: &str| row[name].as_u64().expect("a number");
    let counts = |row: &Value| [field(row, "received_messages"), field(row, "sent_messages")];
    assert_eq!(rows.iter().map(counts).collect::<Vec<_>>(), [[3, 0], [1, 0], [0, 4]]);
    let bytes = |at: usize| field(&rows[at], "received_bytes");
    // The CONNECTs differ in the name, 2 bytes. A PUBLISH has a fixed header of 2 bytes, the topic
    // with 3, a Packet Identifier with 2, properties with 1, and 2 bytes of payload.
    assert_eq!(bytes(0) - bytes(1), 2 + 2 * 10);
    assert_eq!(names(&rows), ["three", "one", "receiver"]);
    assert_eq!(names(&by("received_bytes"))[0], "three");
    assert_eq!(names(&by("sent_messages")), ["receiver", "one", "three"]);
    assert_eq!(names(&by("sent_bytes"))[0], "receiver");
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients/three", &cookie);
    assert!(page.contains("messages in") && page.contains("messages out"), "{page}");
}

#[test]
fn a_filter_that_only_sockets_answer_counts_what_it_admits() {
    let broker = Administered::start();
    away(&broker, &[("gone", 0)]);
    let _stuck = broker.stuck_client("pump");
    let _idle = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "idle"));
    let listed = |query: &str| {
        let (status, answer) = broker.ask("GET", &format!("/api/v1/clients?{query}"), &broker.viewer);
        assert_eq!(status, 200, "{answer}");
        let body = json_of(&answer);
        let mut rows = body["clients"].as_array().cloned().unwrap_or_default();
        rows.retain(|row| row["client_id"] != "publisher");
        (names(&rows).join(" "), body["total"].clone())
    };
    for sort in ["", "&sort=client_id"] {
        assert_eq!(listed(&format!("cause=application{sort}")).0, "pump");
        assert_eq!(listed(&format!("cause=network{sort}")).0, "");
        assert_eq!(listed(&format!("address=127.0.0.1&version=3.1.1{sort}")).0, "idle");
        assert_eq!(listed(&format!("address=127.0.0.0/8&prefix=pump{sort}")).0, "pump");
        assert_eq!(listed(&format!("address=10.0.0.0/8{sort}")).0, "");
    }
    assert_eq!(listed("cause=application&sort=queued").1, 1);
    let (status, answer) = broker.ask("GET", "/api/v1/clients?address=here", &broker.viewer);
    assert!(status == 400 && answer.contains("an IP address or a network"), "{answer}");
}

#[test]
fn a_client_says_since_when_and_how_it_is_connected_and_what_it_has_subscribed_to() {
    let broker = Administered::start();
    let connect = Connect::persistent(Version::V5, "pump").keep_alive(90).clean(false);
    let mut pump = RawClient::connect(broker.mqtt, &connect);
    pump.subscribe(&[("pumps/#", 1), ("$share/g/lamps/+", 2)]);
    let one = || json_of(&broker.ask("GET", "/api/v1/clients/pump", &broker.viewer).1);
    let row = one();
    assert_eq!((&row["keep_alive"], &row["clean_start"]), (&90.into(), &false.into()));
    assert!(
        row["connected_for"].as_f64().is_some_and(|secs| secs < 60.0) && row["away_for"].is_null(),
        "{row}"
    );
    assert!(row["last_packet_ago"].is_number() && row["sent_bytes"].as_u64() > Some(0), "{row}");
    let messages = ["received_messages", "sent_messages"].map(|name| row[name].as_u64());
    assert_eq!(messages, [Some(0); 2]);
    let own: Vec<_> = row["subscriptions"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|own| (own["filter"].as_str(), own["qos"].as_u64()))
        .collect();
    assert_eq!(own, [(Some("$share/g/lamps/+"), Some(2)), (Some("pumps/#"), Some(1))]);
    let (_, text) = broker.ctl(&["client", "pump"]);
    assert!(text.contains("Keep Alive       1 min 30 s") && text.contains("connected since"), "{text}");
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients/pump", &cookie);
    for fact in ["connected since", "last packet", "listener", "Clean Start", "1 min 30 s"] {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    pump.vanish();
    broker.await_away("pump");
    let row = one();
    assert!(row["away_for"].as_f64().is_some_and(|secs| secs < 60.0) && row["keep_alive"].is_null(), "{row}");
}
