//! ACL files: Homing's permits decide as mosquitto does, over generated files.
//!
//! A client of each name publishes to each topic (5.0 reports a denied PUBLISH), and receives what
//! a privileged client publishes. mosquitto's decision is compared with the permit.

use crate::broker::Mosquitto;
use crate::support::{Connect, Message, RawClient, V5};
use homing::access::rule::ClientNames;
use homing::auth::acl_file;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `ACL_FILES` sets another number.
const FILES: u64 = 40;
/// User names with the client identifiers that they use.
const CLIENTS: [(Option<&str>, &str); 7] = [
    (None, "c"),
    (Some("ann"), "c"),
    (Some("bob lee"), "a"),
    (Some("eve"), "ann"),
    (Some("a/b"), "c"),
    (Some("+"), "c"),
    (Some("ann"), "#"),
];
const TOPICS: [&str; 25] = [
    "a",
    "b",
    "a/b",
    "a/a",
    "b/a",
    "a/b/c",
    "a/ann",
    "ann/a",
    "ann",
    "c",
    "a/c",
    "c/a",
    "a/",
    "/a",
    "/",
    "a//b",
    "a/b/",
    "a/a/b",
    "a/a/b/c",
    "x y/a",
    "a/bob lee",
    "$x",
    "$x/a",
    "$x/ann",
    "$x/a/b",
];
const NOT_AUTHORIZED: u8 = 0x87;

/// A generator of numbers from a seed, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % bound as u64).expect("below the bound")
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

fn filter(numbers: &mut Numbers, is_pattern: bool) -> String {
    let levels = ["a", "b", "ann", "c", "", "+", "x y"];
    let names = ["%u", "%c", "a", "+"];
    let mut filter: Vec<&str> = Vec::new();
    if numbers.below(5) == 0 {
        filter.push("$x");
    }
    for _ in 0..=numbers.below(3) {
        let choices: &[&str] = if is_pattern && numbers.below(2) == 0 { &names } else { &levels };
        filter.push(numbers.of(choices));
    }
    match numbers.below(4) {
        0 => filter.push("#"),
        1 if filter.len() > 1 => *filter.last_mut().expect("two levels") = "#",
        _ => {}
    }
    let text = filter.join("/");
    if text.is_empty() { "#".to_owned() } else { text }
}

/// One rule. A filter with a space needs the access.
fn rule(numbers: &mut Numbers, keyword: &str) -> String {
    let access = numbers.of(&["read ", "write ", "readwrite ", "deny ", "read ", "write ", ""]);
    let filter = filter(numbers, keyword == "pattern");
    let access = if filter.contains(' ') && access.is_empty() { "read " } else { access };
    format!("{keyword} {access}{filter}\n")
}

fn acl_text(numbers: &mut Numbers) -> String {
    let mut text = "# Lines of nobody are for anonymous clients.\n".to_owned();
    for _ in 0..numbers.below(4) {
        text += &rule(numbers, "topic");
    }
    let has_patterns = numbers.below(3) > 0;
    for user in ["ann", "bob lee", "a/b", "+"] {
        text += &format!("user {user}\n");
        for _ in 0..numbers.below(6) {
            let is_pattern = has_patterns && numbers.below(3) == 0;
            text += &rule(numbers, if is_pattern { "pattern" } else { "topic" });
        }
    }
    text + "user root\ntopic readwrite #\ntopic readwrite $x/#\n"
}

fn connect(mosquitto: &Mosquitto, user: Option<&str>, client_id: &str) -> RawClient {
    let connect = Connect::new(V5, client_id);
    let connect = match user {
        Some(user) => connect.user_name(user),
        None => connect,
    };
    RawClient::connect(mosquitto.address, &connect)
}

#[test]
fn permits_decide_as_mosquitto_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut allowed, mut denied) = (0, 0);
    let files = std::env::var("ACL_FILES").map_or(FILES, |text| text.parse().expect("a number"));
    for seed in 0..files {
        let text = acl_text(&mut Numbers(seed));
        let file = directory.path().join("acl");
        fs::write(&file, &text).expect("a file");
        let acl = acl_file::parse(Path::new("acl"), text.as_bytes())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let configuration = format!("allow_anonymous true\nacl_file {}\n", file.display());
        let mosquitto = Mosquitto::start(directory.path(), &configuration);
        let mut root = connect(&mosquitto, Some("root"), "root");
        for (user, client_id) in CLIENTS {
            let (permit, names) = (acl.permit_of(user), ClientNames::new(user, client_id));
            let mut client = connect(&mosquitto, user, client_id);
            for topic in TOPICS {
                let code = client.deliver(&Message::new(topic, "x").qos(1));
                let may_write = permit.may_write(topic, names);
                assert_eq!(
                    code != NOT_AUTHORIZED,
                    may_write,
                    "seed {seed}: {names:?} writes {topic}\n{text}"
                );
                *if may_write { &mut allowed } else { &mut denied } += 1;
            }
            client.subscribe(&[("#", 0), ("$x/#", 0)]);
            for topic in TOPICS {
                assert_ne!(root.deliver(&Message::new(topic, "x").qos(1)), NOT_AUTHORIZED);
            }
            let received: BTreeSet<String> =
                client.drain().into_iter().map(|publish| publish.topic).collect();
            for topic in TOPICS {
                let may_read = permit.may_read(topic, names);
                assert_eq!(
                    received.contains(topic),
                    may_read,
                    "seed {seed}: {names:?} reads {topic}\n{text}"
                );
                *if may_read { &mut allowed } else { &mut denied } += 1;
            }
            client.disconnect();
        }
    }
    println!("{files} files: {allowed} times allowed, {denied} times denied");
    assert!(allowed > 1_000 && denied > 1_000, "both are tested: {allowed}, {denied}");
}
