//! Operators who skip, park, republish and delete messages of receivers that are away, each with an
//! account of the places in which its messages are. After a restart each message is in exactly one
//! place, in the queue of its receiver or among the dead letters. Actions that were answered hold.

use crate::support::rng::Rng;
use crate::support::{Connect, Message, PATIENCE, RawClient, V5, V311, now};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages to one receiver: few enough that its whole queue is in memory and can be parked.
const MESSAGES: usize = 40;

/// The place of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Queue,
    Letter,
    /// An operator skipped it, or deleted its letter.
    Gone,
}

/// A message, as an operator knows it.
#[derive(Clone, Debug)]
struct Known {
    /// The place that the last answer promised.
    place: Place,
    /// The places to which an operator moved it without an answer since.
    doubts: Vec<Place>,
}

/// A receiver that is away, and its operator.
pub struct Operated {
    name: String,
    messages: Vec<Known>,
    rng: Rng,
    refused: usize,
}

impl Operated {
    /// Returns a receiver of this name. `seed` determines what its operator does.
    pub fn new(name: &str, seed: u64) -> Operated {
        let fresh = Known { place: Place::Queue, doubts: Vec::new() };
        Operated { name: name.into(), messages: vec![fresh; MESSAGES], rng: Rng::new(seed), refused: 0 }
    }

    /// Returns the number of messages of which an answer is missing.
    pub fn doubtful(&self) -> usize {
        self.messages.iter().filter(|known| !known.doubts.is_empty()).count()
    }

    /// Returns the number of actions that were refused because there is no room.
    pub fn refused(&self) -> usize {
        self.refused
    }

    fn topic(&self, number: usize) -> String {
        format!("l/{}/{number}", self.name)
    }

    fn number(row: &Value) -> Option<usize> {
        row["topic"].as_str()?.rsplit('/').next()?.parse().ok()
    }

    /// Subscribes, leaves, and is sent all its messages.
    pub fn fill(&self, address: SocketAddr) {
        let mut receiver = RawClient::connect(address, &Connect::persistent(V311, &self.name));
        receiver.subscribe(&[(&format!("l/{}/#", self.name), 2)]);
        receiver.disconnect();
        let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher"));
        for number in 0..self.messages.len() {
            let message = Message::new(self.topic(number), number.to_string()).qos(1 + (number % 2) as u8);
            assert!(publisher.deliver(&message) < 0x80);
        }
    }

    /// Acts on messages until the broker is gone, or a test that should have ended it has failed.
    pub fn operate(&mut self, socket: &Path, acted: &AtomicU64) {
        let deadline = now() + 4 * PATIENCE;
        while now() < deadline && self.act(socket).is_some() {
            acted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Acts on one message. Returns `None` if the broker is gone.
    fn act(&mut self, socket: &Path) -> Option<()> {
        let chance = self.rng.below(100);
        let is_queued = chance < 55;
        let listing = if is_queued {
            format!("/api/v1/clients/{}/queue?limit=256", self.name)
        } else {
            format!("/api/v1/dead-letters?receiver={}&limit=256", self.name)
        };
        let (_, body) = ask(socket, "GET", &listing)?;
        let rows = body[if is_queued { "messages" } else { "dead_letters" }].as_array()?;
        if rows.is_empty() {
            return Some(());
        }
        let row = &rows[self.rng.below(rows.len() as u64) as usize];
        let (method, path, place, message) = if is_queued {
            let (verb, place) = if chance < 5 { ("skip", Place::Gone) } else { ("park", Place::Letter) };
            let path = format!("/api/v1/clients/{}/messages/{}/{verb}", self.name, row["mid"].as_str()?);
            ("POST", path, place, &row["message"])
        } else {
            let path = format!("/api/v1/dead-letters/{}", row["id"].as_str()?);
            match chance {
                55..60 => ("DELETE", path, Place::Gone, row),
                60..80 => ("POST", format!("{path}/republish?to=topic"), Place::Queue, row),
                _ => ("POST", format!("{path}/republish"), Place::Queue, row),
            }
        };
        let known = &mut self.messages[Operated::number(message).expect("one of ours")];
        known.doubts.push(place);
        let (status, body) = ask(socket, method, &path)?;
        match (status, body["type"].as_str()) {
            (..300, _) => *known = Known { place, doubts: Vec::new() },
            (503, Some("/api/problems/no-room")) => {
                known.doubts.pop();
                self.refused += 1;
            }
            // The commit takes longer than the answer may.
            (504, Some("/api/problems/unconfirmed")) => {}
            _ => panic!("{method} {path}: {status} {body}"),
        }
        Some(())
    }

    /// Compares the places that the operator knows with the places of the messages in the broker.
    /// Returns a line for each difference.
    pub fn check(&self, address: SocketAddr, socket: &Path) -> Vec<String> {
        let mut found = vec![(0, 0); self.messages.len()];
        let listing = format!("/api/v1/dead-letters?receiver={}&limit=256", self.name);
        let (_, body) = ask(socket, "GET", &listing).expect("it answers");
        for letter in body["dead_letters"].as_array().expect("rows") {
            found[Operated::number(letter).expect("one of ours")].1 += 1;
        }
        let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher"));
        publisher.deliver(&Message::new(format!("l/{}/end", self.name), "end").qos(1));
        let mut receiver = RawClient::connect(address, &Connect::persistent(V311, &self.name).clean(false));
        loop {
            let publish = receiver.expect_publish();
            receiver.complete(&publish);
            if publish.payload == b"end" {
                break;
            }
            let number: usize = String::from_utf8_lossy(&publish.payload).parse().expect("one of ours");
            found[number].0 += 1;
        }
        let places = |known: &Known| known.doubts.iter().copied().chain([known.place]).collect::<Vec<_>>();
        let is_lawful = |known: &Known, found: (u32, u32)| {
            places(known).into_iter().any(|place| match place {
                Place::Queue => found == (1, 0),
                Place::Letter => found == (0, 1),
                Place::Gone => found == (0, 0),
            })
        };
        let all = self.messages.iter().zip(found).enumerate();
        let wrong = all.filter(|(_, (known, found))| !is_lawful(known, *found));
        wrong
            .map(|(n, (known, found))| {
                format!("{}: {known:?}, found in queue and letters {found:?}", self.topic(n))
            })
            .collect()
    }
}

/// Asks the broker. Returns the status and the body, or `None` if the broker is gone.
pub fn ask(socket: &Path, method: &str, path: &str) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let head = "Host: localhost\r\nConnection: close\r\nContent-Length: 0\r\n";
    stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}
