//! Live updates: server-sent events, the timeline of redelivery, and logins by a one-time code.

use crate::api::{Administered, json_of};
use crate::http::{LOCAL, request_with_body};
use crate::pages::{cookie_of, get, log_in, post};
use crate::support::{Connect, PATIENCE, RawClient, Version, now, until};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// A stream of events.
pub struct Live {
    lines: BufReader<TcpStream>,
}

impl Live {
    /// Opens a stream. Returns it and the status of the answer.
    pub fn open(broker: &Administered, path: &str, headers: &str) -> (Live, u16) {
        let mut socket = TcpStream::connect(broker.admin).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(socket, "GET {path} HTTP/1.1\r\n{LOCAL}{headers}\r\n").expect("it reads");
        let mut live = Live { lines: BufReader::new(socket) };
        let status = live.line();
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        (live, status.expect("a status"))
    }

    fn line(&mut self) -> String {
        self.next_line().expect("the stream has ended")
    }

    /// Returns the next line, or `None` at the end of the stream.
    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.lines.read_line(&mut line).expect("a line in time");
        (read > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits for the end of the stream, which an empty chunk shows.
    fn expect_end(&mut self) {
        let started = now();
        while now() - started < PATIENCE {
            if self.next_line().is_none_or(|line| line == "0") {
                return;
            }
        }
        panic!("the stream does not end");
    }

    /// Waits for an event of this name. Returns its id and its data.
    pub fn event(&mut self, name: &str) -> (String, serde_json::Value) {
        let started = now();
        while now() - started < PATIENCE {
            if self.line() != format!("event: {name}") {
                continue;
            }
            let (mut id, mut line) = (String::new(), self.line());
            if let Some(given) = line.strip_prefix("id: ") {
                id = given.to_owned();
                line = self.line();
            }
            let data = line.strip_prefix("data: ").expect("data");
            return (id, serde_json::from_str(data).expect("JSON"));
        }
        panic!("no event {name}");
    }

    /// Waits for the moment of this kind.
    fn moment(&mut self, kind: &str) -> (String, serde_json::Value) {
        loop {
            let (id, moment) = self.event("timeline");
            if moment["kind"] == kind {
                return (id, moment);
            }
        }
    }
}

pub fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn a_page_gets_the_state_of_the_broker_by_its_cookie_and_nobody_else_does() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let path = "/api/v1/events?streams=overview,wheel";
    let (mut live, status) = Live::open(&broker, path, &format!("Cookie: {cookie}\r\n"));
    assert_eq!(status, 200);
    let (_, overview) = live.event("overview");
    assert!(overview["ready"] == true && overview["values"]["online"] == "0", "{overview}");
    let (_, wheel) = live.event("wheel");
    assert_eq!(wheel["bars"].as_array().map(Vec::len), Some(64), "{wheel}");
    assert_eq!(Live::open(&broker, path, "").1, 401);
    let unknown = "/api/v1/events?streams=overview,secrets";
    assert_eq!(Live::open(&broker, unknown, &bearer(&broker.viewer)).1, 400);
}

#[test]
fn a_token_that_is_replaced_by_one_of_the_same_name_takes_its_logins_codes_and_streams_with_it() {
    let broker = Administered::start();
    let old = bearer(&broker.viewer);
    let cookie = log_in(&broker, &broker.viewer);
    let (status, answer) = broker.ask("POST", "/api/v1/login/code", &broker.viewer);
    assert_eq!(status, 200, "{answer}");
    let code = json_of(&answer)["code"].as_str().expect("a code").to_owned();
    let headers = [old.clone(), format!("Cookie: {cookie}\r\n")];
    let mut streams = headers.map(|headers| Live::open(&broker, "/api/v1/events", &headers).0);
    streams.iter_mut().for_each(|stream| drop(stream.event("overview")));
    assert_eq!(get(&broker, "/", &cookie).0, 200);
    let new = broker.token("viewer");
    assert_eq!(get(&broker, "/", &cookie).0, 303, "the login has ended");
    let (status, answer) = post(&broker, "/login/code", "", &format!("code={code}"));
    assert!(status == 200 && answer.contains("not known") && !answer.contains("set-cookie"), "{answer}");
    assert_eq!(Live::open(&broker, "/api/v1/events", &old).1, 401);
    // Streams look after ten states of the broker, one in each second.
    streams.iter_mut().for_each(Live::expect_end);
    assert_eq!(broker.ask("GET", "/api/v1/overview", &new).0, 200);
}

#[test]
fn streams_beyond_16_of_a_credential_are_refused_until_one_ends() {
    let broker = Administered::start();
    let headers = bearer(&broker.viewer);
    let mut streams: Vec<Live> = (0..16)
        .map(|_| {
            let (live, status) = Live::open(&broker, "/api/v1/events", &headers);
            assert_eq!(status, 200);
            live
        })
        .collect();
    assert_eq!(Live::open(&broker, "/api/v1/events", &headers).1, 429);
    streams.pop();
    until("the place of an ended stream", || {
        (Live::open(&broker, "/api/v1/events", &headers).1 == 200).then_some(())
    });
}

#[test]
fn the_timeline_has_the_disconnect_the_return_and_the_acknowledgement_of_a_deaf_client() {
    let broker = Administered::start_with(&["--ephemeral", "--set", "redelivery.ack_timeout=1s"]);
    let path = "/api/v1/events?streams=timeline";
    let (mut live, status) = Live::open(&broker, path, &bearer(&broker.viewer));
    assert_eq!(status, 200);
    let mut deaf = broker.stuck_client("pump-7");
    let (_, moment) = live.moment("disconnected");
    assert!(moment["client_id"] == "pump-7" && moment["link"] == "/clients/pump-7", "{moment}");
    assert!(
        moment["text"].as_str().is_some_and(|text| text.contains("the client's host has it")),
        "{moment}"
    );
    deaf.expect_disconnected(0x97);
    let mut back = RawClient::connect(broker.mqtt, &Connect::persistent(Version::V5, "pump-7"));
    let (last, _) = live.moment("redelivered");
    let message = back.expect_publish();
    back.complete(&message);
    live.moment("acknowledged");
    let headers = format!("{}Last-Event-ID: {last}\r\n", bearer(&broker.viewer));
    let (mut again, _) = Live::open(&broker, path, &headers);
    let (_, first) = again.event("timeline");
    assert!(["returned", "acknowledged"].contains(&first["kind"].as_str().unwrap_or_default()), "{first}");
    let cookie = log_in(&broker, &broker.viewer);
    for path in ["/redelivery", "/clients/pump-7"] {
        let (status, page) = get(&broker, path, &cookie);
        assert!(status == 200 && page.contains("class=\"acknowledged\""), "{path}: {page}");
    }
    let (_, answer) = broker.ask("GET", "/api/v1/clients/pump-7/events", &broker.viewer);
    let events = json_of(&answer);
    let kinds: Vec<&str> =
        events["events"].as_array().expect("rows").iter().filter_map(|row| row["kind"].as_str()).collect();
    assert!(kinds.contains(&"disconnected") && kinds.last() == Some(&"acknowledged"), "{events}");
}

#[test]
fn a_link_of_ctl_logs_in_once() {
    let broker = Administered::start();
    let (code, link) = broker.ctl(&["dashboard"]);
    assert_eq!(code, Some(0), "{link}");
    let (url, login) = link.trim().split_once("login#code=").expect("a code in the fragment");
    assert_eq!(url, format!("http://{}/", broker.admin));
    let (status, answer) = post(&broker, "/login/code", "", &format!("code={login}"));
    assert!(status == 303 && answer.contains("set-cookie: homing_login_"), "{answer}");
    let cookie = &cookie_of(&answer);
    let (status, page) = get(&broker, "/", cookie);
    assert!(status == 200 && page.contains("(admin)"), "{page}");
    let (status, page) = get(&broker, "/audit", cookie);
    assert!(status == 200 && page.contains("login code") && page.contains("by=code"), "{page}");
    let (status, answer) = post(&broker, "/login/code", "", &format!("code={login}"));
    assert!(status == 200 && answer.contains("not known") && !answer.contains("set-cookie"), "{answer}");
    let foreign =
        format!("{LOCAL}Sec-Fetch-Site: cross-site\r\nContent-Type: application/x-www-form-urlencoded\r\n");
    let (_, link) = broker.ctl(&["dashboard"]);
    let (_, login) = link.trim().split_once("#code=").expect("a code");
    let (_, answer) =
        request_with_body(broker.admin, "POST", "/login/code", &foreign, &format!("code={login}"));
    assert!(!answer.contains("set-cookie"), "{answer}");
}
