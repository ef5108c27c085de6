//! What a page says after a form: the answer of an action, a question before something is lost, the
//! form again beside its mistake, and the page that was asked for before the login.

use crate::api::Administered;
use crate::messages::messages;
use crate::pages::{csrf, get, log_in, post};
use crate::support::property::Property;
use crate::support::{Connect, Message, RawClient, Version};

/// Returns where an answer leads.
fn location(answer: &str) -> &str {
    let (_, rest) = answer.split_once("location: ").expect("a place");
    rest.lines().next().expect("a line")
}

#[test]
fn a_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site() {
    let broker = Administered::start();
    let (_, answer) = get(&broker, "/clients?prefix=a%2Fb&state=away", "");
    let login = location(&answer);
    assert_eq!(login, "/login?to=%2Fclients%3Fprefix%3Da%252Fb%26state%3Daway");
    let (_, page) = get(&broker, login, "");
    let hidden = r#"name="to" value="/clients?prefix=a%2Fb&#38;state=away""#;
    assert_eq!(page.matches(hidden).count(), 2, "both forms lead there: {page}");
    let log_in = |to: &str| {
        let (status, answer) = post(&broker, "/login", "", &format!("token={}&to={to}", broker.viewer));
        assert_eq!(status, 303, "{answer}");
        location(&answer).to_owned()
    };
    assert_eq!(log_in("%2Fclients%3Fprefix%3Da"), "/clients?prefix=a");
    for other in ["%2F%2Fevil", "https%3A%2F%2Fevil", "%2F%5Cevil", "evil", "%2F%09%2Fevil", ""] {
        assert_eq!(log_in(other), "/", "{other}");
        assert!(!get(&broker, &format!("/login?to={other}"), "").1.contains("evil"), "{other}");
    }
    broker.add_user("ann", "viewer");
    let (_, answer) = post(&broker, "/login", "", "user=ann&password=sesame&to=%2Fdeadlines");
    assert_eq!(location(&answer), "/deadlines");
    let (_, page) = post(&broker, "/login", "", "token=hmg_wrong&to=%2Fdeadlines");
    assert!(page.contains(r#"name="to" value="/deadlines""#), "a failed login keeps it: {page}");
}

#[test]
fn a_redelivery_says_on_its_page_what_was_done() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    broker.publish("pumps/1", &["on"], 1);
    pump.expect_publish();
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/clients/pump", &cookie);
    let form = |by: &str| format!("csrf={}&by={by}", csrf(&page));
    let said = |by: &str| {
        let (status, answer) = post(&broker, "/clients/pump/redeliver", &cookie, &form(by));
        assert_eq!(status, 303, "{answer}");
        get(&broker, location(&answer), &cookie).1
    };
    let sent = said("resend");
    let answer = |said: &str| format!(r#"<p id="answer" role="status" class="good">{said}</p>"#);
    assert!(sent.contains(&answer("1 packet was sent again.")), "{sent}");
    let (_, again) = get(&broker, "/clients/pump", &cookie);
    assert!(!again.contains(r#"id="answer""#), "an answer is said once: {again}");
    assert!(pump.expect_publish().dup);
    let closed = said("disconnect");
    let disconnected = "The client is disconnected. Its messages are sent again when it returns.";
    assert!(closed.contains(&answer(disconnected)), "{closed}");
    // The client is away now: the page says so beside the forms.
    let (status, refused) = post(&broker, "/clients/pump/redeliver", &cookie, &form("resend"));
    assert_eq!(status, 409, "{refused}");
    assert!(refused.contains("the client is away") && refused.contains("End the session"), "{refused}");
    // A link cannot make the page say anything else.
    let (status, page) = get(&broker, "/clients/pump?done=hacked", &cookie);
    assert!(status == 400 && !page.contains(r#"id="answer""#), "{page}");
}

/// Follows the answer of a form. Returns the sentence that the page after it says.
fn said(broker: &Administered, cookie: &str, path: &str, form: &str) -> String {
    let (status, answer) = post(broker, path, cookie, form);
    assert_eq!(status, 303, "{path}: {answer}");
    let (status, page) = get(broker, location(&answer), cookie);
    assert_eq!(status, 200, "{page}");
    let (_, rest) = page.split_once(r#"<p id="answer" role="status" class="good">"#).expect("an answer");
    rest.split("</p>").next().expect("the end").to_owned()
}

#[test]
fn an_action_on_something_that_is_gone_says_that_nothing_was_done() {
    let broker = Administered::start();
    let _pump = broker.stuck_client("pump");
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/clients/pump", &cookie);
    let csrf = csrf(&page);
    let form = |fields: &str| format!("csrf={csrf}&{fields}");
    for (path, fields, expected) in [
        ("/dead-letters/1-1/republish", "to=receiver", "The dead letter is already gone. Nothing was done."),
        ("/dead-letters/1-1/delete", "", "The dead letter is already gone. Nothing was done."),
        ("/dead-letters/1-1/delete", "confirm=yes", "The dead letter is already gone. Nothing was done."),
        (
            "/topics/delete",
            "topic=none&confirm=yes",
            "The topic has no retained message any more. Nothing was done.",
        ),
        ("/traces/77/end", "", "Trace 77 is already gone. Nothing was done."),
        ("/dead-letters", "verb=delete", "No dead letter fits any more. Nothing was done."),
        ("/clients/pump/end", "confirm=pump", "The session has ended. Its queue and subscriptions are gone."),
    ] {
        assert_eq!(said(&broker, &cookie, path, &form(fields)), expected, "{path} {fields}");
    }
}

#[test]
fn the_clients_of_a_filter_are_disconnected_on_the_list_and_no_other() {
    let broker = Administered::start();
    let named = |user: &str, client_id: &str| {
        let connect = Connect { user_name: Some(user.into()), ..Connect::persistent(Version::V5, client_id) };
        RawClient::connect(broker.mqtt, &connect)
    };
    let (mut one, mut other) = (named("ann", "a-1"), named("bob", "b-1"));
    let cookie = log_in(&broker, &broker.operator);
    let has_form = |query: &str| {
        let (status, page) = get(&broker, &format!("/clients?{query}"), &cookie);
        assert_eq!(status, 200, "{page}");
        page.contains("Disconnect all")
    };
    assert!(has_form("user=ann&min_queued=") && has_form("prefix=a-&state=connected"));
    // Nothing disconnects all clients that there are, or by what the action does not know.
    assert!(!has_form("") && !has_form("user=ann&state=away") && !has_form("user=ann&version=5.0"));
    let (_, page) = get(&broker, "/clients?user=ann", &cookie);
    let form = format!("csrf={}&user=ann&listener=&prefix=&note=test", csrf(&page));
    assert_eq!(said(&broker, &cookie, "/clients", &form), "1 client was disconnected. Its session stays.");
    one.expect_disconnected(0x98);
    other.settle();
    let again = said(&broker, &cookie, "/clients", &form);
    assert_eq!(again, "No client that fits is connected. Nothing was done.");
    let form = format!("csrf={}&user=&listener=&prefix=", csrf(&page));
    assert_eq!(post(&broker, "/clients", &cookie, &form).0, 400);
}

#[test]
fn the_checks_of_the_broker_are_a_page() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let (status, page) = get(&broker, "/checks", &cookie);
    assert!(status == 200 && page.contains("all give signs of life"), "{page}");
    assert!(get(&broker, "/settings", &cookie).1.contains(r#"href="/checks""#));
}

#[test]
fn the_dead_letters_that_fit_are_counted_then_republished_and_then_deleted() {
    let broker = Administered::start();
    crate::dead_letters::park(&broker, "pump", &["1", "2"]);
    crate::dead_letters::park(&broker, "fan", &["3"]);
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/dead-letters?receiver=pump", &cookie);
    assert!(page.contains("Republish all") && page.contains("Delete all"), "{page}");
    let csrf = csrf(&page);
    let ask = |fields: &str| {
        let (status, page) = post(&broker, "/dead-letters", &cookie, &format!("csrf={csrf}&{fields}"));
        assert_eq!(status, 200, "{page}");
        let (_, rest) = page.split_once(r#"name="newest" value=""#).expect("a confirmation");
        let newest = rest.split('"').next().expect("the end").to_owned();
        (page, format!("csrf={csrf}&{fields}&confirm=yes&newest={newest}"))
    };
    let (page, form) = ask("verb=republish&to=receiver&filter=receiver%3Dpump%26max_age%3D1h");
    assert!(page.contains("Republish 2 dead letters (receiver pump, newer than 1h)?"), "{page}");
    assert_eq!(crate::dead_letters::letters(&broker, &[]).len(), 3, "nothing is done yet");
    assert_eq!(said(&broker, &cookie, "/dead-letters", &form), "2 dead letters are published again.");
    let (page, form) = ask("verb=delete");
    assert!(page.contains("Delete 1 dead letter of all receivers?"), "{page}");
    assert_eq!(said(&broker, &cookie, "/dead-letters", &form), "1 dead letter is deleted.");
    let viewer = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/", &viewer);
    let form = format!("csrf={}&verb=delete", crate::pages::csrf(&page));
    assert_eq!(post(&broker, "/dead-letters", &viewer, &form).0, 403);
}

#[test]
fn the_tables_of_messages_have_the_names_that_ctl_shows() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "limits.in_flight=1"]);
    let _pump = broker.stuck_client("pump");
    broker.publish("pumps/2", &["1", "2"], 1);
    let cookie = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/clients/pump", &cookie);
    for part in ["inflight", "queue"] {
        for row in messages(&broker, part, "pump") {
            let cell = format!(r#"data-label="message">{}</td>"#, row["mid"].as_str().expect("a name"));
            assert!(page.contains(&cell), "{cell} in {page}");
        }
    }
}

#[test]
fn a_delete_asks_before_anything_is_lost() {
    let broker = Administered::start();
    crate::dead_letters::park(&broker, "pump", &["1"]);
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    app.deliver(&Message::new("lamps/1", "on").qos(1).retained());
    let letter = crate::dead_letters::letters(&broker, &[]).remove(0);
    let path = format!("/dead-letters/{}/delete", letter["id"].as_str().expect("an id"));
    let viewer = log_in(&broker, &broker.viewer);
    let (_, page) = get(&broker, "/", &viewer);
    let forbidden = format!("csrf={}&topic=lamps%2F1", csrf(&page));
    let cookie = log_in(&broker, &broker.operator);
    let (_, page) = get(&broker, "/topics", &cookie);
    for (path, fields, question) in [
        (path.as_str(), "note=old", "Delete the dead letter of pump on pumps/1?"),
        ("/topics/delete", "topic=lamps%2F1&filter=lamps%2F%23", "Delete the retained message of lamps/1?"),
    ] {
        assert_eq!(post(&broker, path, &viewer, &forbidden).0, 403, "{path}");
        let form = format!("csrf={}&{fields}", csrf(&page));
        let (status, asked) = post(&broker, path, &cookie, &form);
        assert!(status == 200 && asked.contains(question) && asked.contains("Go back"), "{asked}");
        let left = (crate::dead_letters::letters(&broker, &[]).len(), broker.ctl(&["retained", "lamps/#"]).1);
        assert!(left.1.contains("lamps/1"), "{left:?}");
        let (status, answer) = post(&broker, path, &cookie, &format!("{form}&confirm=yes"));
        assert_eq!(status, 303, "{answer}");
        let (_, after) = get(&broker, location(&answer), &cookie);
        assert!(after.contains(" is deleted.</p>"), "{after}");
    }
    assert_eq!(crate::dead_letters::letters(&broker, &[]).len(), 0);
    assert!(!broker.ctl(&["retained", "lamps/#"]).1.contains("lamps/1"));
}

#[test]
fn each_form_of_an_action_takes_a_note_for_the_audit_log() {
    let broker = Administered::start();
    let mut pump = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V311, "pump"));
    pump.subscribe(&[("pumps/#", 1)]);
    broker.publish("pumps/1", &["on"], 1);
    pump.expect_publish();
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    app.deliver(&Message::new("lamps/1", "on").qos(1).retained());
    let admin = broker.token("admin");
    let cookie = log_in(&broker, &admin);
    for path in ["/clients/pump", "/settings", "/where?topic=pumps%2F1"] {
        let (_, page) = get(&broker, path, &cookie);
        let forms = page.matches(r#"class="action""#).count();
        assert!(forms > 0 && page.matches(r#"name="note""#).count() == forms, "{path}: {page}");
    }
    let (_, page) = get(&broker, "/traces", &cookie);
    assert!(page.contains(r#"name="note""#), "{page}");
    let csrf = csrf(&page);
    let done = |path: &str, fields: &str| {
        let (status, answer) = post(&broker, path, &cookie, &format!("csrf={csrf}&{fields}"));
        assert!(status == 303 || path == "/settings" && status == 200, "{path}: {answer}");
        answer
    };
    done("/clients/pump/redeliver", "by=resend&note=n-redeliver");
    let begun = done("/traces", "client=pump&note=n-trace");
    let trace = location(&begun);
    assert!(get(&broker, trace, &cookie).1.contains(r#"name="note""#));
    done(&format!("{trace}/end"), "note=n-end-trace");
    done("/settings", "mode=apply&note=n-reload");
    done("/clients/pump/disconnect", "note=n-disconnect");
    done("/clients/pump/end", "confirm=pump&note=n-end");
    // The question before a delete has the note, too.
    let fields = format!("csrf={csrf}&topic=lamps%2F1&note=n-delete");
    let (_, asked) = post(&broker, "/topics/delete", &cookie, &fields);
    assert!(asked.contains(r#"name="note" value="n-delete""#), "{asked}");
    done("/topics/delete", "topic=lamps%2F1&confirm=yes&note=n-delete");
    let (_, audit) = broker.ask("GET", "/api/v1/audit", &admin);
    for note in ["redeliver", "trace", "end-trace", "reload", "disconnect", "end", "delete"] {
        assert!(audit.contains(&format!("note=n-{note}")), "{note}: {audit}");
    }
    let long = format!("csrf={csrf}&client=pump&note={}", "n".repeat(257));
    let (status, page) = post(&broker, "/traces", &cookie, &long);
    assert!(status == 400 && page.contains("note has more than 256 characters"), "{page}");
}

#[test]
fn a_form_with_a_mistake_is_shown_again_beside_it() {
    let broker = Administered::start();
    let _pump = broker.stuck_client("pump");
    let cookie = log_in(&broker, &broker.operator);
    for (path, written) in [
        ("/clients?min_unacked_age=soon&prefix=pu", r#"value="soon""#),
        ("/clients?min_queued=many&prefix=pu", r#"value="many""#),
        ("/topics?filter=a%2F%23%2Fb", r#"value="a/#/b""#),
        ("/dead-letters?topic=a%2F%23%2Fb", r#"value="a/#/b""#),
    ] {
        let (status, page) = get(&broker, path, &cookie);
        assert!(status == 400 && page.contains(written), "{path}: {page}");
        assert!(page.contains(r#"role="alert" class="problem alert""#) && page.contains("<form"), "{page}");
    }
    let (_, page) = get(&broker, "/traces", &cookie);
    let csrf = csrf(&page);
    let (status, page) = post(&broker, "/traces", &cookie, &format!("csrf={csrf}&topic=a%2F%23%2Fb"));
    assert!(status == 400 && page.contains(r#"value="a/#/b""#), "{page}");
    let (status, page) = post(&broker, "/clients/pump/end", &cookie, &format!("csrf={csrf}&confirm=pum"));
    assert!(status == 409 && page.contains("write it again") && page.contains("End the session"), "{page}");
    let theme = r#"name="back" value="/clients/pump""#;
    assert!(page.contains(theme), "the switch of the colours leads to the page: {page}");
}

#[test]
fn a_long_time_is_shown_in_its_two_largest_units() {
    let broker = Administered::start();
    let connect = Connect::new(Version::V5, "pump").clean(false).with(Property::SessionExpiry(604_800));
    let mut pump = RawClient::connect(broker.mqtt, &connect);
    pump.subscribe(&[("pumps/#", 1)]);
    pump.vanish();
    broker.await_away("pump");
    broker.publish("pumps/1", &["on"], 1);
    let text = broker.ctl(&["queue", "pump"]).1;
    assert!(text.contains("its session ends in 6 d 23 h"), "{text}");
}
