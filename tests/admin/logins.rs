//! Logins of users with passwords, by the page and by the interface for programs.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request, request_with_body};
use crate::pages::{cookie_of, get, post};
use crate::support::until;
use serde_json::{Value, json};
use std::process::Command;

/// Logs in by the interface for programs. Returns the status and the whole answer.
fn log_in(broker: &Administered, user: &str, password: &str) -> (u16, String) {
    let body = json!({ "user": user, "password": password }).to_string();
    request_with_body(broker.admin, "POST", "/api/v1/login", LOCAL, &body)
}

/// Sends a request for programs with a cookie and further headers.
fn ask(broker: &Administered, method: &str, path: &str, cookie: &str, headers: &str) -> (u16, String) {
    let headers = format!("{LOCAL}Cookie: {cookie}\r\nContent-Length: 0\r\n{headers}");
    request(broker.admin, method, path, &headers)
}

#[test]
fn a_user_logs_in_with_a_password_on_the_page() {
    let broker = Administered::start();
    broker.add_user("ann", "operator");
    for form in ["user=ann&password=wrong", "user=bob&password=sesame", "user=&password="] {
        let (status, answer) = post(&broker, "/login", "", form);
        assert!(status == 200 && answer.contains("not known") && !answer.contains("set-cookie"), "{answer}");
    }
    let (status, answer) = post(&broker, "/login", "", "user=ann&password=sesame");
    assert_eq!(status, 303, "{answer}");
    let (_, page) = get(&broker, "/", &cookie_of(&answer));
    assert!(page.contains("ann (operator)"), "{page}");
}

#[test]
fn a_login_by_the_interface_acts_with_its_cookie_and_the_text_that_no_other_site_knows() {
    let broker = Administered::start();
    broker.add_user("ann", "operator");
    let mut client = broker.stuck_client("pump");
    let (status, answer) = log_in(&broker, "ann", "sesame");
    assert_eq!(status, 200, "{answer}");
    let (cookie, login) = (cookie_of(&answer), json_of(&answer));
    assert_eq!((&login["name"], &login["scope"]), (&json!("ann"), &json!("operator")));
    let (status, answer) = ask(&broker, "GET", "/api/v1/me", &cookie, "");
    assert_eq!((status, json_of(&answer)), (200, login.clone()));
    let csrf = format!("X-CSRF-Token: {}\r\n", login["csrf"].as_str().expect("text"));
    let path = "/api/v1/clients/pump/disconnect";
    let foreign = format!("{csrf}Sec-Fetch-Site: cross-site\r\n");
    for headers in ["", "X-CSRF-Token: guessed\r\n", &foreign] {
        let (status, answer) = ask(&broker, "POST", path, &cookie, headers);
        assert!(status == 403 && answer.contains("/api/problems/foreign-request"), "{headers}: {answer}");
    }
    client.settle();
    let (status, answer) = ask(&broker, "POST", path, &cookie, &csrf);
    assert_eq!(status, 204);
    client.expect_disconnected(0x98);
    let (_, id) = answer.split_once("x-request-id: ").expect("each answer has it");
    let id: u64 = id.lines().next().and_then(|line| line.parse().ok()).expect("a number");
    let audit = json_of(&broker.ask("GET", "/api/v1/audit", &broker.token("admin")).1);
    let noted = |n: usize, name: &str| audit["actions"][n][name].clone();
    assert_eq!(["action", "who", "source"].map(|name| noted(0, name)), ["disconnect", "ann", "127.0.0.1"]);
    assert_eq!(noted(0, "request"), id);
    assert_eq!(["action", "who", "arguments"].map(|name| noted(1, name)), ["login", "ann", "by=password"]);
    assert_eq!(ask(&broker, "POST", "/api/v1/config/reload", &cookie, &csrf).0, 403, "an operator");
    let (status, answer) = ask(&broker, "POST", "/api/v1/logout", &cookie, &csrf);
    assert!(status == 204 && answer.contains("Max-Age=0"), "{answer}");
    assert_eq!(ask(&broker, "GET", "/api/v1/me", &cookie, "").0, 401);
}

#[test]
fn another_site_cannot_log_a_browser_in() {
    let broker = Administered::start();
    broker.add_user("ann", "viewer");
    let headers = format!("{LOCAL}Sec-Fetch-Site: cross-site\r\n");
    let body = json!({ "user": "ann", "password": "sesame" }).to_string();
    let (status, answer) = request_with_body(broker.admin, "POST", "/api/v1/login", &headers, &body);
    assert!(status == 403 && !answer.contains("set-cookie"), "{answer}");
    let headers = format!("{headers}Content-Type: application/x-www-form-urlencoded\r\n");
    let form = format!("token={}", broker.viewer);
    let (status, answer) = request_with_body(broker.admin, "POST", "/login", &headers, &form);
    assert!(status == 403 && !answer.contains("set-cookie"), "{answer}");
}

#[test]
fn after_five_wrong_passwords_a_user_is_refused_with_the_right_one_and_others_are_not() {
    let mut broker = Administered::start();
    broker.add_user("ann", "admin");
    broker.add_user("bob", "admin");
    for _ in 0..4 {
        assert_eq!(log_in(&broker, "ann", "guess").0, 401);
    }
    let (status, answer) = log_in(&broker, "ann", "guess");
    assert!(status == 429 && answer.contains("retry-after: 300"), "{answer}");
    assert_eq!(log_in(&broker, "ann", "sesame").0, 429);
    assert_eq!(log_in(&broker, "bob", "sesame").0, 200, "bob shares the address of a proxy with a guesser");
    // A token cannot be guessed, so a flood of passwords locks no tool out.
    assert_eq!(broker.ask("GET", "/api/v1/me", &broker.viewer).0, 200);
    let refusals = broker.lines_until("further ones of this name and address are refused");
    let refusals = refusals.iter().filter(|line| line.contains("audit.login_refused"));
    assert_eq!(refusals.count(), 5);
}

#[test]
fn a_login_ends_when_its_user_leaves_the_file_or_has_another_password() {
    let broker = Administered::start();
    broker.add_user("ann", "viewer");
    let login = || cookie_of(&log_in(&broker, "ann", "sesame").1);
    let is_known = |cookie: &str| ask(&broker, "GET", "/api/v1/me", cookie, "").0 == 200;
    let before = login();
    assert!(is_known(&before));
    // The same password with another salt is another credential.
    broker.add_user("ann", "viewer");
    until("the end of the login", || (!is_known(&before)).then_some(()));
    let after = login();
    assert!(is_known(&after));
    let file = broker.credentials();
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = command.arg("admin-user").arg(&file).args(["ann", "--delete"]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    until("the end of the login", || (!is_known(&after)).then_some(()));
    assert_eq!(log_in(&broker, "ann", "sesame").0, 401);
}

#[test]
fn a_user_that_cannot_be_stored_is_refused_and_the_file_stays() {
    let broker = Administered::start();
    let file = broker.credentials();
    let before = std::fs::read_to_string(&file).expect("it exists");
    for (arguments, part) in [
        (["a:b", "--delete"], "colon"),
        (["nobody", "--delete"], "does not stand there"),
        (["ann", "--scope=root"], "viewer, operator or admin"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        let output = command.arg("admin-user").arg(&file).args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(part), "{arguments:?}: {text}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it exists"), before);
}

#[test]
fn a_login_that_cannot_be_read_names_what_would_be_right() {
    let broker = Administered::start();
    for body in ["", "[]", r#"{"user":"ann"}"#, r#"{"user":"ann","password":"x","more":1}"#] {
        let (status, answer) = request_with_body(broker.admin, "POST", "/api/v1/login", LOCAL, body);
        let detail = json_of(&answer)["detail"].clone();
        let names_it = |text: &str| text.contains("user") && text.contains("password");
        assert!(status == 400 && detail.as_str().is_some_and(names_it), "{answer}");
        assert_ne!(detail, Value::Null);
    }
}

#[test]
fn behind_a_trusted_proxy_the_address_is_the_one_that_the_proxy_names() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "admin.trusted_proxies=127.0.0.1"]);
    broker.add_user("ann", "admin");
    let log_in_from = |address: &str, password: &str| {
        let body = json!({ "user": "ann", "password": password }).to_string();
        let headers = format!("{LOCAL}X-Forwarded-For: 6.6.6.6, {address}\r\n");
        request_with_body(broker.admin, "POST", "/api/v1/login", &headers, &body).0
    };
    let statuses: Vec<u16> = (0..5).map(|_| log_in_from("192.0.2.1", "guess")).collect();
    assert_eq!((statuses[3], statuses[4]), (401, 429));
    assert_eq!(log_in_from("192.0.2.2", "sesame"), 200, "ann herself has another address");
    let audit = json_of(&broker.ask("GET", "/api/v1/audit", &broker.token("admin")).1);
    assert_eq!(audit["actions"][0]["source"], "192.0.2.2");
}

#[test]
fn a_token_with_an_end_is_refused_from_then_on_and_doctor_says_so_before() {
    let broker = Administered::start();
    let file = broker.credentials();
    let make = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        let output = command.arg("admin-token").arg(&file).args(arguments).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text").trim().to_owned())
    };
    let (_, token) = make(&["grafana", "--expires", "2d"]);
    let (_, list) = make(&["--list"]);
    let line = list.lines().find(|line| line.ends_with("grafana")).expect("a line");
    assert!(line.contains("viewer") && line.contains("ends 20") && list.contains("never ends"), "{list}");
    let (status, me) = broker.ask("GET", "/api/v1/me", &token);
    let end = json_of(&me)["ends"].as_str().map(ToOwned::to_owned);
    assert!(status == 200 && end.is_some_and(|end| line.contains(&format!("ends {end} "))), "{me} {list}");
    assert_eq!(json_of(&broker.ask("GET", "/api/v1/me", &broker.viewer).1)["ends"], Value::Null);
    let cookie = crate::pages::log_in(&broker, &token);
    assert_eq!(crate::pages::get(&broker, "/", &cookie).0, 200);
    let (_, doctor) = broker.ask("GET", "/api/v1/doctor", &token);
    assert!(doctor.contains(r#"the token \"grafana\" ends in 1 days"#), "{doctor}");
    // The end is the fourth field of its line, and has colons itself.
    let content = std::fs::read_to_string(&file).expect("a file");
    let ended = content.lines().map(|line| match line.splitn(4, ':').collect::<Vec<_>>()[..] {
        ["grafana", scope, secret, _] => format!("grafana:{scope}:{secret}:2020-01-01T00:00:00Z\n"),
        _ => format!("{line}\n"),
    });
    std::fs::write(&file, ended.collect::<String>()).expect("a write");
    until("the end of the token", || (broker.ask("GET", "/api/v1/me", &token).0 == 401).then_some(()));
    assert!(broker.ask("GET", "/api/v1/me", &token).1.contains("this token has ended"));
    assert_eq!(crate::pages::get(&broker, "/", &cookie).0, 303, "its login has ended, too");
    let (_, doctor) = broker.ask("GET", "/api/v1/doctor", &broker.viewer);
    assert!(doctor.contains(r#"the token \"grafana\" has ended"#), "{doctor}");
    for wrong in [&["grafana", "--expires", "soon"][..], &["grafana", "--expires", "0s"], &[]] {
        assert_eq!(make(wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn doctor_says_that_the_file_of_credentials_is_not_what_is_in_force() {
    let broker = Administered::start();
    let content = std::fs::read_to_string(broker.credentials()).expect("a file");
    let doctor = || broker.ask("GET", "/api/v1/doctor", &broker.viewer).1;
    let words = "the file is not what is in force; the broker still has the one before";
    assert!(!doctor().contains(words));
    std::fs::write(broker.credentials(), "viewer:root:12").expect("a write");
    until("the refusal", || doctor().contains(words).then_some(()));
    std::fs::write(broker.credentials(), content).expect("a write");
    until("the file in force", || (!doctor().contains(words)).then_some(()));
}
