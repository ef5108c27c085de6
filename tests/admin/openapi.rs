//! `/api/v1/openapi.json` says what the interface does: each path with its scope, the parameters that
//! the handlers read, and the answers that they give.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::messages::messages;
use crate::schema::{faults, resolved};
use crate::slow::deliver_slowly;
use crate::support::property::Property;
use crate::support::{Connect, Message, RawClient, Version, until};
use homing::admin::access::Scope;
use homing::admin::api_paths;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// A broker, and its own description of its interface.
struct Described {
    broker: Administered,
    admin: String,
    document: Value,
    /// The operations that gave an answer other than a problem, as `GET /healthz`.
    answered: BTreeSet<String>,
}

impl Described {
    fn start(arguments: &[&str]) -> Described {
        let broker = Administered::start_with(arguments);
        let admin = broker.token("admin");
        let headers = format!("{LOCAL}Authorization: Bearer {admin}\r\n");
        let (status, answer) = request_with_body(broker.admin, "GET", "/api/v1/openapi.json", &headers, "");
        assert_eq!(status, 200, "{answer}");
        let document = json_of(&answer);
        Described { broker, admin, document, answered: BTreeSet::new() }
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        let operation = &self.document["paths"][path][method.to_ascii_lowercase()];
        assert!(operation.is_object(), "{method} {path} is not described");
        operation
    }

    /// Returns the parameters of the query of an operation.
    fn query_of(&self, method: &str, path: &str) -> BTreeSet<String> {
        let all = self.operation(method, path)["parameters"].as_array().into_iter().flatten();
        let all = all.map(|one| resolved(&self.document, one)).filter(|one| one["in"] == "query");
        all.filter_map(|one| one["name"].as_str()).map(ToOwned::to_owned).collect()
    }

    /// Asks as an admin for a path of the description, whose parts in braces and query are those of
    /// `asked`. The answer is one of those that are described.
    fn ask(&mut self, method: &str, path: &str, asked: &str, body: &str) -> (u16, Value) {
        let headers = format!("{LOCAL}Authorization: Bearer {}\r\n", self.admin);
        let (status, answer) = request_with_body(self.broker.admin, method, asked, &headers, body);
        let described = &self.operation(method, path)["responses"][status.to_string()];
        assert!(described.is_object(), "{method} {asked} answers {status}, which is not described: {answer}");
        let described = resolved(&self.document, described);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let value = match described["content"].as_object().and_then(|content| content.iter().next()) {
            None => {
                assert!(body.is_empty(), "{method} {asked} has a body: {answer}");
                Value::Null
            }
            Some((kind, content)) => {
                assert!(head.contains(&format!("content-type: {kind}")), "{method} {asked}: {kind}: {head}");
                if !kind.ends_with("json") {
                    Value::Null
                } else {
                    let value: Value = serde_json::from_str(body).expect("JSON");
                    let found = faults(&self.document, &content["schema"], &value);
                    assert!(found.is_empty(), "{method} {asked}: {found:#?}\n{value:#}");
                    value
                }
            }
        };
        if status < 400 {
            self.answered.insert(format!("{method} {path}"));
        }
        (status, value)
    }

    /// Asks, and expects this status. Returns the body.
    fn expect(&mut self, expected: u16, method: &str, path: &str, asked: &str) -> Value {
        let (status, value) = self.ask(method, path, asked, "");
        assert_eq!(status, expected, "{method} {asked}: {value}");
        value
    }

    /// Asks for a path without parts in braces.
    fn get(&mut self, path: &str, query: &str) -> Value {
        self.expect(200, "GET", path, &format!("{path}{query}"))
    }
}

/// Returns a path with something in place of the parts in braces.
fn filled(path: &str) -> String {
    path.replace("{id}", "nobody")
        .replace("{name}", "nobody")
        .replace("{mid}", "e1")
        .replace("{number}", "77")
        .replace("{letter}", "1-1")
        .replace("{delayed}", "0-0-0-0")
        .replace("{slug}", "nothing")
}

#[test]
fn the_description_has_each_path_with_its_scope_and_nothing_else() {
    let described = Described::start(&["--ephemeral"]);
    let mut found = BTreeSet::new();
    for (path, methods) in described.document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let scope = operation["x-scope"].as_str().map(ToOwned::to_owned);
            assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{method} {path}");
            assert_eq!(operation["security"] == json!([]), scope.is_none(), "{method} {path}");
            found.insert((method.to_ascii_uppercase(), path.clone(), scope));
        }
    }
    let rows = api_paths().map(|(method, path, least)| {
        (method.to_owned(), path.to_owned(), least.map(Scope::name).map(ToOwned::to_owned))
    });
    assert_eq!(found, rows.collect());
}

/// A handler that reads a query refuses a parameter that it does not know, and names those that it
/// knows.
#[test]
fn the_description_has_each_parameter_that_a_handler_reads_and_no_other() {
    let mut described = Described::start(&["--ephemeral"]);
    for (method, path, _) in api_paths() {
        let asked = format!("{}?no-such-parameter=1", filled(path));
        let (_, answer) = described.ask(method, path, &asked, "");
        let detail = answer["detail"].as_str().unwrap_or_default();
        let known = detail.split_once("unknown field `no-such-parameter`, expected").map(|(_, known)| known);
        let known = known.unwrap_or_default().split('`').skip(1).step_by(2);
        let known: BTreeSet<String> = known.map(ToOwned::to_owned).collect();
        assert_eq!(described.query_of(method, path), known, "{method} {path}: {detail}");
    }
}

/// Fills a broker with clients and messages in every state that an answer shows.
fn fill(broker: &Administered) -> Vec<RawClient> {
    let mut letters = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "letters"));
    letters.subscribe(&[("$dead/#", 1)]);
    let mut group = RawClient::connect(broker.mqtt, &Connect::new(Version::V311, "member"));
    group.subscribe(&[("$share/g/pumps/#", 0)]);
    let connect = Connect::persistent(Version::V311, "pump").keep_alive(60);
    let mut pump = RawClient::connect(broker.mqtt, &connect);
    pump.subscribe(&[("pumps/#", 2)]);
    let mut away = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "away"));
    away.subscribe(&[("pumps/#", 1)]);
    away.vanish();
    broker.await_away("away");
    let mut app = RawClient::connect(broker.mqtt, &Connect::new(Version::V5, "app"));
    for payload in ["1", "2", "3", "4"] {
        app.deliver(&Message::new("pumps/7", payload).qos(1).with(Property::MessageExpiry(600)));
    }
    app.deliver(&Message::new("pumps/8", "5").qos(2));
    app.deliver(&Message::new("lamps/1", "on").qos(1).retained());
    app.deliver(&Message::new("$delayed/30/lamps/2", "later").qos(1));
    pump.expect_publishes(2);
    vec![letters, group, pump, app]
}

#[test]
fn every_answer_is_as_the_description_says() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let objective = "[[slo]]\nname = \"pumps\"\ntopic = \"pumps/#\"\nwithin = \"100ms\"\ntarget = 0.9\n";
    let bridge = "[[bridges]]\nname = \"nowhere\"\naddresses = [\"mqtt://127.0.0.1:1\"]\n\
                  topics = [{ direction = \"out\", filter = \"nowhere/#\" }]\n";
    let sink = "[[sinks]]\nname = \"nowhere\"\nurl = \"http://127.0.0.1:1/\"\nfilters = [\"nowhere/#\"]\n";
    file.write_all([objective, bridge, sink].concat().as_bytes()).expect("a write");
    let files = tempfile::tempdir().expect("a directory");
    let everything = "topic readwrite #\ntopic readwrite $dead/#\ntopic readwrite $homing/#\n";
    for (section, key, name, text) in [
        ("auth", "password_file", "passwd", ""),
        ("acl", "file", "acl", everything),
        ("bans", "file", "bans", ""),
    ] {
        let named = files.path().join(name);
        std::fs::write(&named, text).expect("a file");
        let line = format!("[{section}]\n{key} = \"{}\"\n", named.display());
        file.write_all(line.as_bytes()).expect("a write");
    }
    let path = file.path().to_str().expect("text");
    let mut api = Described::start(&["--config", path, "--set", "limits.in_flight=2"]);
    let order =
        json!({ "clients": ["app"], "topics": ["lamps/#"], "for": "5m", "payload": true }).to_string();
    let (status, begun) = api.ask("POST", "/api/v1/traces", "/api/v1/traces", &order);
    assert_eq!((status, &begun["trace"]), (201, &json!(1)));
    let _clients = fill(&api.broker);
    look(&mut api);
    act(&mut api);
    let all: BTreeSet<String> = api_paths().map(|(method, path, _)| format!("{method} {path}")).collect();
    let missing: Vec<&String> = all.difference(&api.answered).collect();
    assert!(missing.is_empty(), "ask for them here, too: {missing:?}");
}

/// Asks everything that changes nothing.
fn look(api: &mut Described) {
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/openapi.json", "/api/v1/overview"] {
        api.get(path, "");
    }
    assert!(api.get("/api/v1/doctor", "")["checks"][0].is_object());
    let detailed = api.get("/api/v1/overview", "?detail=kinds,sizes");
    assert_eq!(detailed["kinds"]["deadlines"].as_object().map(|kinds| kinds.len()), Some(5), "{detailed}");
    assert!(detailed["sizes"]["received"].is_object(), "{detailed}");
    for path in ["/api/v1/docs", "/api/v1/me", "/api/v1/version", "/api/v1/systree"] {
        api.get(path, "");
    }
    api.expect(200, "GET", "/api/problems/{slug}", "/api/problems/busy");
    for path in [
        "/api/v1/listeners",
        "/api/v1/bridges",
        "/api/v1/sinks",
        "/api/v1/expiry",
        "/api/v1/slo",
        "/api/v1/log/level",
        "/api/v1/traces",
        "/api/v1/config",
    ] {
        let body = api.get(path, "");
        let rows = body.as_object().and_then(|fields| fields.values().find_map(Value::as_array));
        assert!(rows.is_none_or(|rows| !rows.is_empty()), "{path} shows nothing: {body}");
    }
    api.get("/api/v1/config", "?changed=true");
    assert_eq!(api.get("/api/v1/cluster", "")["nodes"], json!([]), "without [cluster]");
    api.get("/api/v1/events", "?streams=overview,timeline");
    let page = api.get("/api/v1/clients", "?limit=1");
    assert!(page["next"].is_string(), "{page}");
    api.get("/api/v1/clients", "?version=5.0&cause=application");
    let part = api.get("/api/v1/clients", "?fields=client_id,queued&prefix=pump&limit=1000");
    assert_eq!(part["clients"], json!([{ "client_id": "pump", "queued": 3 }]));
    assert!(api.get("/api/v1/shared-groups", "?limit=1")["shared_groups"][0].is_object());
    api.get("/api/v1/subscriptions", "?filter=pumps/%23");
    api.expect(200, "GET", "/api/v1/clients/{id}/events", "/api/v1/clients/pump/events");
    api.get("/api/v1/clients", "?state=away&prefix=a&min_queued=1&min_queued_bytes=1");
    for figure in ["oldest_unacked", "queued", "queued_bytes", "in_flight"] {
        let top = api.get("/api/v1/clients", &format!("?sort={figure}&limit=2"));
        let first = top["clients"][0]["client_id"].as_str();
        let expected = if figure.starts_with("queued") { "away" } else { "pump" };
        assert_eq!(first, Some(expected), "{figure}: {top:#}");
    }
    for id in ["pump", "away"] {
        api.expect(200, "GET", "/api/v1/clients/{id}", &format!("/api/v1/clients/{id}"));
        for part in ["inflight", "queue"] {
            let path = format!("/api/v1/clients/{{id}}/{part}");
            api.expect(200, "GET", &path, &format!("/api/v1/clients/{id}/{part}?limit=1&payload=true"));
        }
    }
    api.get("/api/v1/subscriptions", "?matches=pumps/7");
    api.get("/api/v1/subscriptions", "?client=pump");
    api.get("/api/v1/retained", "?filter=lamps/%23&payload=true");
    assert_eq!(api.get("/api/v1/delayed", "")["delayed"].as_array().map(Vec::len), Some(1));
    for wanted in ["topic=pumps/7&publisher=app", "topic=lamps/1", "topic=lamps/2", "receiver=away"] {
        api.get("/api/v1/messages/where", &format!("?{wanted}"));
    }
    let trace = "/api/v1/traces/{number}";
    until("a step of the trace", || {
        let page = api.expect(200, "GET", trace, "/api/v1/traces/1?after=1&limit=1000&wait=1s");
        page["steps"].to_string().contains("retained").then_some(())
    });
    api.expect(200, "GET", "/api/v1/traces/{number}/events", "/api/v1/traces/1/events");
}

/// Asks everything that changes something.
fn act(api: &mut Described) {
    let queue = messages(&api.broker, "queue", "pump");
    let mid = |row: &Value| row["mid"].as_str().map(ToOwned::to_owned).expect("a name");
    for (verb, row) in ["skip", "park"].into_iter().zip(&queue) {
        let path = format!("/api/v1/clients/{{id}}/messages/{{mid}}/{verb}");
        let asked = format!("/api/v1/clients/pump/messages/{}/{verb}?note=a+note", mid(row));
        api.expect(200, "POST", &path, &asked);
        api.expect(404, "POST", &path, &asked);
    }
    let _slow = deliver_slowly(&api.broker);
    assert!(api.get("/api/v1/deliveries/slow", "?topic=slow/1&limit=1")["deliveries"][0].is_object());
    assert!(api.get("/api/v1/messages/dropped", "?topic=pumps/7")["dropped"][0].is_object());
    let again =
        api.expect(200, "POST", "/api/v1/clients/{id}/redeliver", "/api/v1/clients/pump/redeliver?by=resend");
    assert_eq!(again["packets"], 2);
    api.expect(409, "POST", "/api/v1/clients/{id}/redeliver", "/api/v1/clients/away/redeliver");
    let purged =
        api.expect(200, "DELETE", "/api/v1/clients/{id}/queue", "/api/v1/clients/pump/queue?note=old");
    assert_eq!(purged["count"], 1, "one was skipped, and one is a dead letter");
    let (connections, asked) = ("/api/v1/connections", "/api/v1/connections?prefix=nobody&note=none");
    assert_eq!(api.expect(200, "DELETE", connections, asked)["count"], 0);
    api.expect(204, "POST", "/api/v1/clients/{id}/disconnect", "/api/v1/clients/pump/disconnect");
    api.expect(409, "POST", "/api/v1/clients/{id}/disconnect", "/api/v1/clients/pump/disconnect");
    api.expect(204, "DELETE", "/api/v1/clients/{id}", "/api/v1/clients/pump");
    api.expect(204, "DELETE", "/api/v1/retained", "/api/v1/retained?topic=lamps/1");
    for verb in ["connect", "disconnect"] {
        let path = format!("/api/v1/bridges/{{name}}/{verb}");
        api.expect(204, "POST", &path, &format!("/api/v1/bridges/nowhere/{verb}?note=a+note"));
        api.expect(404, "POST", &path, &format!("/api/v1/bridges/elsewhere/{verb}"));
    }
    act_on_letters(api);
    publish(api);
    manage(api);
    api.expect(200, "POST", "/api/v1/login/code", "/api/v1/login/code");
    api.broker.add_user("ann", "operator");
    let login = json!({ "user": "ann", "password": "sesame" }).to_string();
    assert_eq!(api.ask("POST", "/api/v1/login", "/api/v1/login", &login).0, 200);
    assert_eq!(api.ask("POST", "/api/v1/login", "/api/v1/login", "{}").0, 400);
    api.expect(204, "POST", "/api/v1/logout", "/api/v1/logout");
    api.expect(200, "POST", "/api/v1/config/reload", "/api/v1/config/reload?dry_run=true");
    let level = json!({ "level": "debug", "for": "1m" }).to_string();
    let (status, _) = api.ask("PUT", "/api/v1/log/level", "/api/v1/log/level", &level);
    assert_eq!(status, 204);
    assert!(api.get("/api/v1/audit", "?limit=10")["actions"][9].is_object());
    api.expect(204, "DELETE", "/api/v1/traces/{number}", "/api/v1/traces/1");
}

/// Asks for the dead letters and the delayed message, and removes them.
/// Changes users, rules, bans and tokens.
fn manage(api: &mut Described) {
    let (user, ann) = ("/api/v1/users/{name}", "/api/v1/users/ann");
    let mut put = |path, asked, body: Value| api.ask("PUT", path, asked, &body.to_string()).0;
    assert_eq!(put(user, ann, json!({ "password": "sesame" })), 200);
    assert_eq!(put(user, ann, json!({ "password": "" })), 400);
    assert_eq!(put("/api/v1/acl", "/api/v1/acl", json!({ "text": "user ann\ntopic a\n" })), 200);
    assert_eq!(put("/api/v1/acl", "/api/v1/acl?version=0", json!({ "text": "" })), 412);
    assert_eq!(put("/api/v1/acl", "/api/v1/acl?dry_run=true", json!({ "text": "user\n" })), 422);
    assert_eq!(api.get("/api/v1/users", "")["users"][0]["name"], "ann");
    api.expect(200, "GET", user, ann);
    api.expect(200, "DELETE", user, ann);
    api.expect(404, "DELETE", user, ann);
    assert_eq!(api.get("/api/v1/acl", "")["text"], "user ann\ntopic a\n");
    let bans = "/api/v1/bans";
    let ban = json!({ "kind": "client", "value": "test-*", "for": "1h" });
    assert_eq!(api.ask("POST", bans, bans, &ban.to_string()).0, 200);
    assert_eq!(api.ask("POST", bans, bans, &json!({ "kind": "user", "value": "a\nb" }).to_string()).0, 400);
    assert_eq!(api.get(bans, "")["bans"][0]["value"], "test-*");
    let asked = format!("{bans}?kind=client&value=test-*");
    api.expect(200, "DELETE", bans, &asked);
    api.expect(404, "DELETE", bans, &asked);
    let tokens = "/api/v1/tokens";
    let token = json!({ "name": "telemetry", "scope": "publisher", "expires": "1d" });
    assert_eq!(api.ask("POST", tokens, tokens, &token.to_string()).0, 201);
    assert!(api.get(tokens, "")["tokens"][0].is_object());
    api.expect(204, "DELETE", "/api/v1/tokens/{name}", "/api/v1/tokens/telemetry");
}

/// Publishes, and is refused.
fn publish(api: &mut Described) {
    let (one, many) = ("/api/v1/publish", "/api/v1/publish/bulk");
    for (body, status) in [
        (json!({ "topic": "pumps/9/set", "payload": "on" }), 200),
        (json!({ "topic": "$SYS/x" }), 422),
        (json!({ "topic": 1 }), 400),
    ] {
        assert_eq!(api.ask("POST", one, one, &body.to_string()).0, status, "{body}");
        let messages = json!({ "messages": [body] });
        let status = if status == 400 { 400 } else { 200 };
        assert_eq!(api.ask("POST", many, many, &messages.to_string()).0, status, "{messages}");
    }
}

fn act_on_letters(api: &mut Described) {
    let id = |row: &Value| row["id"].as_str().map(ToOwned::to_owned).expect("an id");
    let parked = api.get("/api/v1/dead-letters", "?cause=parked&receiver=pump&topic=pumps/%23&limit=1");
    let letter = id(&parked["dead_letters"][0]);
    let (path, asked) = ("/api/v1/dead-letters/{letter}", format!("/api/v1/dead-letters/{letter}"));
    let shown = api.expect(200, "GET", path, &format!("{asked}?payload=true"));
    assert!(shown["payload"]["text"].is_string(), "{shown}");
    let (republish, asked_again) = (format!("{path}/republish"), format!("{asked}/republish?note=again"));
    api.expect(404, "POST", &republish, &asked_again);
    api.expect(200, "POST", &republish, &format!("{asked_again}&to=topic"));
    api.expect(404, "DELETE", path, &asked);
    let mid = messages(&api.broker, "queue", "away")[0]["mid"].as_str().map(ToOwned::to_owned);
    assert_eq!(api.broker.ctl(&["park", "away", &mid.expect("a name")]).0, Some(0));
    let page = api.get("/api/v1/dead-letters", "");
    let asked = format!("/api/v1/dead-letters/{}?note=useless", id(&page["dead_letters"][0]));
    api.expect(204, "DELETE", path, &asked);
    let (many, republish) = ("/api/v1/dead-letters", "/api/v1/dead-letters/republish");
    api.expect(400, "DELETE", many, many);
    let counted = api.expect(200, "POST", republish, &format!("{republish}?receiver=nobody"));
    assert_eq!((&counted["count"], &counted["confirm"]), (&0.into(), &Value::Null));
    api.expect(200, "DELETE", many, &format!("{many}?all=true&confirm=1-1&note=useless"));
    let delayed = api.get("/api/v1/delayed", "");
    let asked = format!("/api/v1/delayed/{}", id(&delayed["delayed"][0]));
    api.expect(204, "DELETE", "/api/v1/delayed/{delayed}", &asked);
}

/// The HTTP server itself finds these mistakes.
#[test]
fn a_request_that_no_handler_reads_is_refused_with_a_problem() {
    let mut api = Described::start(&["--ephemeral"]);
    for asked in ["/api/v1/traces/first", "/api/v1/traces/-1", "/api/v1/traces/18446744073709551616"] {
        api.expect(404, "GET", "/api/v1/traces/{number}", asked);
        api.expect(404, "DELETE", "/api/v1/traces/{number}", asked);
    }
    for (status, body) in [
        (413, "x".repeat((64 << 10) + 1)),
        (400, "[".repeat(64 << 10)),
        (400, "{\"clients\": [\"\0\"]}".to_owned()),
        (400, String::new()),
    ] {
        assert_eq!(api.ask("POST", "/api/v1/traces", "/api/v1/traces", &body).0, status);
    }
    for asked in ["limit=1000000000", "limit=-1", "limit=1e9", "min_queued=99999999999999999999", "state=%00"]
    {
        api.expect(400, "GET", "/api/v1/clients", &format!("/api/v1/clients?{asked}"));
    }
    for id in ["%00", "%FF", "..%2F..", "%2F", "%22%3E%3Cscript%3E"] {
        api.expect(404, "GET", "/api/v1/clients/{id}", &format!("/api/v1/clients/{id}"));
    }
}
