//! The overview: present rates, waits, objectives and deadlines.

use crate::api::{Administered, SMALL_STORE, json_of};
use crate::live::{Live, bearer};
use crate::pages::{get, log_in};
use crate::support::{Connect, RawClient, Version, until};

#[test]
fn the_overview_has_rates_waits_and_deadlines_for_readers_and_programs() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    // The first samples show the counts before the messages.
    let recent = |broker: &Administered| {
        let (_, answer) = broker.ask("GET", "/api/v1/overview", &broker.viewer);
        json_of(&answer)["recent"].clone()
    };
    until("a rate", || recent(&broker)["received_per_second"].is_number().then_some(()));
    let some = until("a rate above zero, and a wait", || {
        broker.publish("pumps/7", &["on"], 1);
        let publish = pump.expect_publish();
        pump.complete(&publish);
        let recent = recent(&broker);
        let is_above = |field: &str| recent[field].as_f64().is_some_and(|value| value > 0.0);
        ["received_per_second", "sent_per_second", "ack_p99"].into_iter().all(is_above).then_some(recent)
    });
    assert!(some["commit_p99"].is_null(), "there is no store: {some}");
    let (status, page) = get(&broker, "/", &log_in(&broker, &broker.viewer));
    assert_eq!(status, 200, "{page}");
    for part in [
        r#"data-figure="rate_in""#,
        r#"data-figure="due""#,
        r#"data-figure="up""#,
        "acknowledgements that came",
        "No objective is set.",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("commit_p99") && !page.contains(r#"id="store""#), "{page}");
    let (mut live, _) = Live::open(&broker, "/api/v1/events?streams=overview", &bearer(&broker.viewer));
    let (_, event) = live.event("overview");
    assert!(event["values"]["rate_in"].as_str().is_some_and(|rate| rate.ends_with("/s")), "{event}");
}

#[test]
fn a_chart_has_its_scale_its_times_and_a_title_with_each_value() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    // The first point is there when its six seconds are over.
    let page = until("a point of the last hour", || {
        let (_, page) = get(&broker, "/", &cookie);
        page.contains("highest 0 at ").then_some(page)
    });
    for part in [
        r#"aria-label="connections: now 0, highest 0 at "#,
        r#"<span>1/s</span><span>0</span>"#,
        "<span>1 h ago</span><span>30 min ago</span><span>now</span>",
        "CPU (of one core)",
        "The same in numbers",
        r#"<a href="/?charts=day#charts">Last day</a>"#,
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (status, day) = get(&broker, "/?charts=day", &cookie);
    assert!(status == 200 && day.contains("<span>24 h ago</span>"), "{day}");
    assert!(day.contains("connections: now -, no figure yet"), "no minute is over: {day}");
    assert_eq!(get(&broker, "/?charts=week", &cookie).0, 400);
}

#[test]
fn what_is_queued_is_seen_on_the_overview_in_the_interface_and_by_ctl() {
    let mut broker = Administered::start_with(&[]);
    let mut gateway = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "gateway"));
    gateway.subscribe(&[("plant/#", 1)]);
    gateway.disconnect();
    broker.await_away("gateway");
    broker.publish("plant/1", &["12345", "12345", "12345"], 1);
    let overview = until("the sum of the queues", || {
        let overview = json_of(&broker.ask("GET", "/api/v1/overview", &broker.viewer).1);
        (overview["queued"]["messages"] == 3 && overview["longest_queues"][0]["messages"] == 3)
            .then_some(overview)
    });
    let longest = &overview["longest_queues"][0];
    assert!(longest["client_id"] == "gateway" && longest["connected"] == false, "{overview:#}");
    for oldest in [&overview["queued"]["oldest"], &longest["oldest"]] {
        assert!(oldest.as_u64().is_some_and(|secs| secs < 60), "{overview:#}");
    }
    let size = overview["queued"]["bytes"].as_u64().expect("bytes");
    assert!(size > 15 && longest["bytes"] == size, "{overview:#}");
    for field in ["bytes", "room"] {
        assert!(overview["store"][field].as_u64().is_some_and(|bytes| bytes > 0), "{overview:#}");
    }
    let (_, page) = get(&broker, "/", &log_in(&broker, &broker.viewer));
    for part in [
        r#"<b data-figure="queued">3</b> queued"#,
        r#"<span data-figure="queued_messages">3</span>"#,
        r#"<a href="/clients/gateway">gateway</a></td><td class="number" data-label="queued">3</td>"#,
        "room for",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (code, text) = broker.ctl(&["status"]);
    assert!(code == Some(0) && text.contains("queued"), "{text}");
    // Nobody knows how old a message from before the start is, but it is older than the process.
    broker.kill_and_start(&[]);
    let cookie = log_in(&broker, &broker.viewer);
    until("the age of a recovered message", || {
        get(&broker, "/", &cookie).1.contains(", the oldest for over ").then_some(())
    });
    until("the age of the oldest message of a queue, which the store knows", || {
        let overview = json_of(&broker.ask("GET", "/api/v1/overview", &broker.viewer).1);
        overview["longest_queues"][0]["oldest"].as_u64().filter(|secs| *secs < 60)
    });
}

#[test]
fn the_store_and_its_copy_are_seen_on_the_overview_in_the_interface_and_by_ctl() {
    let copy = tempfile::tempdir().expect("a directory");
    let folder = copy.path().display().to_string();
    let ship_to = format!("store.ship_to={folder}");
    let broker = Administered::start_with(&[&SMALL_STORE[..], &["--set", &ship_to]].concat());
    let mut gateway = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "gateway"));
    gateway.subscribe(&[("plant/#", 1)]);
    gateway.disconnect();
    broker.await_away("gateway");
    let ask = || json_of(&broker.ask("GET", "/api/v1/overview", &broker.viewer).1);
    // The first sample has the counts before it, so only later messages are those of the last minute.
    until("the times of the last minute", || {
        broker.publish("plant/1", &["on"], 1);
        let recent = &ask()["recent"];
        (recent["sync_p99"].is_number() && recent["apply_p99"].is_number()).then_some(())
    });
    let overview = until("a copy with everything", || {
        let overview = ask();
        let (store, copy) = (&overview["store"], &overview["store"]["copy"]);
        (copy["position"] == store["position"] && copy["lag"] == 0.0).then_some(overview)
    });
    let store = &overview["store"];
    for field in ["position", "log_bytes", "sync_p99", "apply_p99", "commit_p99"] {
        assert!(store[field].as_f64().is_some_and(|value| value > 0.0), "{field}: {store:#}");
    }
    let mib = |mib: u64| mib << 20;
    assert_eq!([&store["size_limit"], &store["unapplied_limit"]], [mib(64), mib(8)], "{store:#}");
    assert!(store["log_limit"].as_u64().is_some_and(|limit| limit > mib(12)), "{store:#}");
    let copy = &store["copy"];
    assert!(copy["folder"] == folder && copy["given_up"] == 0 && copy["begins_again"] == false, "{copy:#}");
    let (_, page) = get(&broker, "/", &log_in(&broker, &broker.viewer));
    for part in [
        r##"<a href="#store">store</a>"##,
        r#"<section id="store" aria-label="Store">"#,
        " of 64.0 MiB (store.size_limit), room for ",
        "position ",
        "99 % of the last minute below ",
        r#"<span data-figure="store_unapplied">"#,
        &format!(r#"<span data-figure="store_copy">{folder}: position "#),
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (code, text) = broker.ctl(&["status"]);
    let has = |beginning: &str| text.lines().any(|line| line.starts_with(beginning));
    let copied = format!("copy         {folder}: position ");
    assert!(code == Some(0) && has("log          position ") && has(&copied), "{text}");
    let (mut live, _) = Live::open(&broker, "/api/v1/events?streams=overview", &bearer(&broker.viewer));
    let (_, event) = live.event("overview");
    assert!(event["values"]["store_log"].as_str().is_some_and(|log| log.starts_with("position ")), "{event}");
    let checks = json_of(&broker.ask("GET", "/api/v1/doctor", &broker.viewer).1);
    for name in ["sync", "store log", "copy"] {
        let mut all = checks["checks"].as_array().expect("checks").iter();
        assert!(all.any(|check| check["name"] == name), "{name}: {checks:#}");
    }
}
