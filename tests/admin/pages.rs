//! The pages for people, as a browser without JavaScript meets them.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::support::{Connect, RawClient, Version, until};

/// Logs in with a token. Returns the cookie.
pub fn log_in(broker: &Administered, token: &str) -> String {
    let (status, answer) = post(broker, "/login", "", &format!("token={token}"));
    assert_eq!(status, 303, "{answer}");
    cookie_of(&answer)
}

/// Returns the cookie of an answer, `name=value`. No script and no other site may have it.
pub fn cookie_of(answer: &str) -> String {
    let (_, rest) = answer.split_once("set-cookie: ").expect("a cookie");
    let cookie = rest.lines().next().expect("a line");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    cookie.split(';').next().expect("the value").to_owned()
}

pub fn post(broker: &Administered, path: &str, cookie: &str, form: &str) -> (u16, String) {
    let headers = format!("{LOCAL}Cookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    request_with_body(broker.admin, "POST", path, &headers, form)
}

pub fn get(broker: &Administered, path: &str, cookie: &str) -> (u16, String) {
    request_with_body(broker.admin, "GET", path, &format!("{LOCAL}Cookie: {cookie}\r\n"), "")
}

/// Returns the hidden text of the forms of a page.
pub fn csrf(page: &str) -> &str {
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).expect("a form");
    rest.split('"').next().expect("the end")
}

#[test]
fn every_page_needs_a_login_and_a_logout_ends_it() {
    let broker = Administered::start();
    for path in ["/", "/clients", "/clients/x"] {
        let (status, answer) = get(&broker, path, "");
        assert!(status == 303 && answer.contains("location: /login"), "{path}: {answer}");
    }
    let (status, answer) = post(&broker, "/login", "", "token=hmg_wrong");
    assert!(status == 200 && answer.contains("not known") && !answer.contains("set-cookie"), "{answer}");
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/", &cookie);
    assert!(status == 200 && page.contains("content-security-policy: default-src 'none'"), "{page}");
    assert_eq!(post(&broker, "/logout", &cookie, &format!("csrf={}", csrf(&page))).0, 303);
    assert_eq!(get(&broker, "/", &cookie).0, 303);
}

#[test]
fn a_stuck_client_is_shown_with_its_cause_and_a_viewer_sees_no_action() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump-7");
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/clients/pump-7", &cookie);
    assert_eq!(status, 200, "{page}");
    for part in ["the client&#39;s host has it", "unacknowledged", "pumps/7/set", "pumps/#"] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("/disconnect"), "{page}");
    let form = format!("csrf={}", csrf(&page));
    assert_eq!(post(&broker, "/clients/pump-7/disconnect", &cookie, &form).0, 403);
    let (_, list) = get(&broker, "/clients?prefix=pump&state=connected&min_unacked_age=", &cookie);
    assert!(list.contains(r#"href="/clients/pump-7""#), "{list}");
}

#[test]
fn the_client_that_waits_longest_is_the_worst_of_many_and_one_that_left_is_none() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "runtime.threads=1"]);
    let deaf = |client_id: &str, filter| {
        let mut client = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, client_id));
        client.subscribe(&[(filter, 1)]);
        client
    };
    let mut gone = deaf("gone", "first");
    let mut many: Vec<RawClient> = (0..100).map(|n| deaf(&format!("pump-{n}"), "second")).collect();
    let mut oldest = deaf("oldest", "first");
    broker.publish("first", &["on"], 1);
    oldest.expect_publish();
    gone.expect_publish();
    gone.vanish();
    broker.publish("second", &["on"], 1);
    many.iter_mut().for_each(|client| drop(client.expect_publish()));
    let cookie = log_in(&broker, &broker.viewer);
    let page = until("stuck clients", || {
        let (_, page) = get(&broker, "/", &cookie);
        page.contains("<b data-figure=\"stuck\">100+</b>").then_some(page)
    });
    assert!(page.contains("20 or more clients have"), "{page}");
    assert!(!page.contains("oldest has not acknowledged packet"), "the table says it: {page}");
    let other = get(&broker, "/topics", &cookie).1;
    assert!(other.contains("oldest has not acknowledged packet"), "{other}");
    assert!(page.contains("href=\"/clients/oldest\"") && !page.contains("href=\"/clients/gone\""), "{page}");
    let body = json_of(&broker.ask("GET", "/api/v1/overview", &broker.viewer).1);
    let problem = &body["problems"][0];
    assert_eq!(problem["kind"], "stuck_clients", "{body:#}");
    assert!(problem["text"].as_str().is_some_and(|text| text.starts_with("oldest has not")), "{body:#}");
}

#[test]
fn an_action_needs_the_text_of_its_login_and_the_end_of_a_session_its_client_id() {
    let broker = Administered::start();
    let mut client = broker.stuck_client("pump-7");
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/clients/pump-7", &cookie);
    let csrf = csrf(&page);
    assert_eq!(post(&broker, "/clients/pump-7/disconnect", &cookie, "csrf=guessed").0, 403);
    assert_eq!(post(&broker, "/clients/pump-7/disconnect", "", &format!("csrf={csrf}")).0, 303);
    client.settle();
    assert_eq!(post(&broker, "/clients/pump-7/end", &cookie, &format!("csrf={csrf}&confirm=pump")).0, 409);
    assert_eq!(post(&broker, "/clients/pump-7/disconnect", &cookie, &format!("csrf={csrf}")).0, 303);
    client.expect_disconnected(0x98);
    assert_eq!(post(&broker, "/clients/pump-7/end", &cookie, &format!("csrf={csrf}&confirm=pump-7")).0, 303);
    assert_eq!(get(&broker, "/clients/pump-7", &cookie).0, 404);
}

#[test]
fn a_client_identifier_never_becomes_markup() {
    let broker = Administered::start();
    let hostile = "<img src=x onerror=alert(1)>\"'&";
    let _client = broker.stuck_client(hostile);
    let cookie = log_in(&broker, &broker.operator);
    let (_, list) = get(&broker, "/clients", &cookie);
    let (_, rest) = list.split_once("href=\"/clients/%").expect("a link to the client");
    let path = format!("/clients/%{}", rest.split('"').next().expect("the end"));
    let (status, page) = get(&broker, &path, &cookie);
    assert_eq!(status, 200, "{page}");
    for text in [list, page] {
        assert!(!text.contains("<img") && text.contains("&lt;img") || text.contains("&#60;img"), "{text}");
    }
}

#[test]
fn the_colours_are_those_of_the_switch_and_it_leads_back_to_its_page_only() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients?state=away", &cookie);
    assert!(!page.contains("data-theme") && page.contains("No client fits the filter"), "{page}");
    let change = |back: &str| {
        let form = format!("csrf={}&theme=dark&back={back}", csrf(&page));
        post(&broker, "/theme", &cookie, &form)
    };
    let (status, answer) = change("%2Fclients%3Fstate%3Daway");
    assert!(status == 303 && answer.contains("location: /clients?state=away"), "{answer}");
    assert!(answer.contains("set-cookie: homing_theme=dark;"), "{answer}");
    let (_, foreign) = change("%2F%2Fexample.com");
    assert!(foreign.contains("location: /\r\n"), "{foreign}");
    let (_, page) = get(&broker, "/", &format!("{cookie}; homing_theme=dark"));
    assert!(page.contains(r#"data-theme="dark""#) && page.contains("Colours: dark"), "{page}");
}

#[test]
fn a_file_of_the_pages_may_be_stored_because_its_path_has_its_hash() {
    let broker = Administered::start();
    let (_, page) = get(&broker, "/login", "");
    assert!(page.contains("cache-control: no-store"), "{page}");
    let (_, rest) = page.split_once(r#"rel="stylesheet" href=""#).expect("a style");
    let path = rest.split('"').next().expect("the end");
    let (status, style) = get(&broker, path, "");
    assert!(status == 200 && style.contains("immutable") && !style.contains("no-store"), "{style}");
    assert_eq!(get(&broker, "/assets/style-0123456789abcdef.css", "").0, 404);
}

#[test]
fn the_audit_is_for_administrators_and_a_broker_without_objectives_says_how_to_set_one() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.operator);
    let (status, page) = get(&broker, "/audit", &cookie);
    assert!(status == 403 && page.contains("needs the scope admin"), "{page}");
    let (status, page) = get(&broker, "/objectives", &cookie);
    assert!(status == 200 && page.contains("Add a [[slo]] table") && !page.contains("/audit"), "{page}");
    assert!(page.contains(r#"href="/slow""#), "{page}");
    let (status, page) = get(&broker, "/slow", &cookie);
    assert!(status == 200 && page.contains("No delivery that has ended took more than a second"), "{page}");
}

#[test]
fn the_page_of_a_message_says_who_gets_it_and_why_it_waits() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump-7");
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/where", &cookie);
    assert!(status == 200 && page.contains("Write a topic"), "{page}");
    let (status, page) = get(&broker, "/where?topic=pumps%2F7%2Fset&receiver=&publisher=", &cookie);
    assert!(status == 200 && page.contains("unacknowledged: packet 1"), "{page}");
    assert!(page.contains(r#"href="/clients/pump-7""#) && page.contains("pumps/#"), "{page}");
}

#[test]
fn an_error_is_a_page_for_people() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/clients/nobody", &cookie);
    assert!(status == 404 && page.contains("there is no session of this client"), "{page}");
    assert!(page.contains("content-type: text/html"), "{page}");
    // The reader can go on from there.
    let has_frame = |page: &str| page.contains(r#"href="/topics""#) && page.contains("Log out");
    assert!(has_frame(&page) && page.contains(r#"href="/clients" aria-current="page""#), "{page}");
    let refused = [
        get(&broker, "/nothing", &cookie),
        get(&broker, "/topics?filter=a%2F%23%2Fb", &cookie),
        get(&broker, "/dead-letters/1-1", &cookie),
        post(&broker, "/clients/nobody/disconnect", &cookie, "no=form"),
        post(&broker, "/clients/nobody/disconnect", &cookie, "csrf=guessed"),
    ];
    for (status, page) in refused {
        assert!((400..500).contains(&status) && has_frame(&page), "{page}");
        assert!(page.contains("cache-control: no-store"), "{page}");
    }
    let (status, page) = get(&broker, "/nothing", "");
    assert!(status == 404 && !has_frame(&page), "{page}");
}

#[test]
fn the_page_of_the_interface_has_every_path_and_every_error() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/api/v1/docs", &cookie);
    assert!(status == 200 && page.contains("Log out") && !page.contains("<script>"), "{page}");
    for (_, path, _) in homing::admin::api_paths() {
        assert!(page.contains(path), "{path}");
    }
    assert!(!page.contains('`') && page.contains("<code>admin.credentials</code>"), "{page}");
    for error in ["/api/problems/resend-forbidden", "/api/problems/busy"] {
        assert!(page.contains(error), "{error}");
    }
    let (status, page) = broker.ask("GET", "/api/v1/docs", &broker.viewer);
    assert!(
        status == 200 && page.contains("/api/v1/clients/{id}/queue") && !page.contains("Log out"),
        "{page}"
    );
}

#[test]
fn the_audit_has_the_words_of_the_interface() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump-7");
    let admin = broker.token("admin");
    for (path, status) in [
        ("/api/v1/clients/pump-7/redeliver?by=resend&note=again", 409),
        ("/api/v1/clients/pump-7/messages/e77/skip", 404),
        ("/api/v1/config/reload?dry_run=true", 200),
        ("/api/v1/config/reload", 200),
        ("/api/v1/clients/pump-7/redeliver", 200),
    ] {
        assert_eq!(broker.ask("POST", path, &admin).0, status, "{path}");
    }
    let (_, answer) = broker.ask("GET", "/api/v1/audit", &admin);
    let body = json_of(&answer);
    let entries: Vec<[&str; 3]> = body["actions"]
        .as_array()
        .expect("entries")
        .iter()
        .map(|entry| ["action", "arguments", "result"].map(|key| entry[key].as_str().expect("text")))
        .collect();
    assert_eq!(
        entries,
        [
            ["redeliver", "by=auto", "disconnected"],
            ["reload", "", "done"],
            ["skip", "mid=e77", "no-such-message"],
            ["redeliver", "by=resend, note=again", "resend-forbidden"],
        ]
    );
    let (_, page) = get(&broker, "/audit", &log_in(&broker, &admin));
    assert!(page.contains("resend forbidden") && page.contains("by=resend, note=again"), "{page}");
    // Each time has its date: 2026-11-24 09:02:11. The fifth is that of the login.
    let is_date = |cell: &str| cell.len() == 19 && cell.bytes().filter(|byte| *byte == b'-').count() == 2;
    let cells = page.split(r#"data-label="time">"#).skip(1).filter_map(|rest| rest.split('<').next());
    assert_eq!(cells.filter(|cell| is_date(cell)).count(), 5, "{page}");
}

#[test]
fn the_wheel_has_every_deadline_once_and_the_page_and_the_command_show_it() {
    let broker = Administered::start();
    let _client = broker.stuck_client("pump-7");
    // The deadline of the message comes to the wheel after the message.
    let wheel = until("a deadline of redelivery", || {
        let (status, answer) = broker.ask("GET", "/api/v1/expiry", &broker.viewer);
        assert_eq!(status, 200, "{answer}");
        let wheel = json_of(&answer);
        (wheel["kinds"]["retransmit"] == 1).then_some(wheel)
    });
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let buckets = wheel["buckets"].as_array().expect("buckets");
    let in_round: u64 = buckets.iter().map(|bucket| number(&bucket["keys"])).sum();
    let kinds: u64 = wheel["kinds"].as_object().expect("kinds").values().map(number).sum();
    assert_eq!(in_round + number(&wheel["later"]) + number(&wheel["overdue"]), number(&wheel["keys"]));
    assert_eq!(kinds, number(&wheel["keys"]));
    assert!(number(&wheel["kinds"]["retransmit"]) == 1, "{wheel}");
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/deadlines", &cookie);
    assert!(status == 200 && page.contains("wheel-rows") && page.contains("retransmit"), "{page}");
    let (code, text) = broker.ctl(&["wheel"]);
    assert!(code == Some(0) && text.contains("retransmit             1"), "{text}");
}
