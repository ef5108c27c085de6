//! `kill -9` while operators skip, park, republish and delete messages. After the restart each
//! message is in exactly one place, in the queue of its receiver or among the dead letters. Actions
//! that were answered hold.

use crate::rng::Rng;
use crate::support::{Connect, Message, RawClient, V5, V311};
use crate::{any_seed, await_moment_of_kill, spawn, variable};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ROUNDS: u64 = 12;
/// Receivers in a round. Each has an operator of its own.
const RECEIVERS: u64 = 3;
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
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The place that the last answer promised.
    place: Place,
    /// The place to which an operator moved it without an answer.
    doubt: Option<Place>,
}

struct Operated {
    name: String,
    messages: Vec<Known>,
    rng: Rng,
}

impl Operated {
    fn topic(&self, number: usize) -> String {
        format!("l/{}/{number}", self.name)
    }

    fn number(row: &Value) -> Option<usize> {
        row["topic"].as_str()?.rsplit('/').next()?.parse().ok()
    }

    /// Subscribes, leaves, and is sent all its messages.
    fn fill(&self, address: SocketAddr) {
        let mut receiver = RawClient::connect(address, &Connect::persistent(V311, &self.name));
        receiver.subscribe(&[(&format!("l/{}/#", self.name), 2)]);
        receiver.disconnect();
        let mut publisher = RawClient::connect(address, &Connect::new(V5, "publisher"));
        for number in 0..self.messages.len() {
            let message = Message::new(self.topic(number), number.to_string()).qos(1 + (number % 2) as u8);
            assert!(publisher.deliver(&message) < 0x80);
        }
    }

    /// Acts on messages until the broker is gone.
    fn operate(&mut self, socket: &Path, acted: &AtomicU64) {
        while self.act(socket).is_some() {
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
        known.doubt = Some(place);
        let (status, body) = ask(socket, method, &path)?;
        assert!(status < 300, "{method} {path}: {status} {body}");
        *known = Known { place, doubt: None };
        Some(())
    }

    /// Compares the places that the operator knows with the places of the messages in the broker.
    /// Returns a line for each difference.
    fn check(&self, address: SocketAddr, socket: &Path) -> Vec<String> {
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
        let places = |known: &Known| [Some(known.place), known.doubt].into_iter().flatten();
        let is_lawful = |known: &Known, found: (u32, u32)| {
            places(known).any(|place| match place {
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
fn ask(socket: &Path, method: &str, path: &str) -> Option<(u16, Value)> {
    let mut stream = UnixStream::connect(socket).ok()?;
    let head = "Host: localhost\r\nConnection: close\r\nContent-Length: 0\r\n";
    stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

/// Fills queues, lets operators act until the broker is killed, and checks all messages after a
/// start with another number of threads. Returns what is wrong, and the number of doubts.
fn round(number: u64, directory: &Path, rng: &mut Rng) -> (Vec<String>, usize) {
    let socket = directory.join("homing.sock");
    let fresh = Known { place: Place::Queue, doubt: None };
    let mut operated: Vec<Operated> = (0..RECEIVERS)
        .map(|n| Operated {
            name: format!("r{number}-{n}"),
            messages: vec![fresh; MESSAGES],
            rng: Rng::new(rng.next()),
        })
        .collect();
    let mut homing = spawn(directory, 1 + number % 3);
    let address = homing.address().expect("it listens");
    operated.iter().for_each(|one| one.fill(address));
    let (acted, count) = (AtomicU64::new(0), rng.between(5, 150));
    let then = Duration::from_micros(rng.below(3_000));
    thread::scope(|scope| {
        for one in &mut operated {
            scope.spawn(|| one.operate(&socket, &acted));
        }
        await_moment_of_kill(|| acted.load(Ordering::Relaxed) >= count, then);
        homing.kill();
    });
    let mut homing = spawn(directory, 1 + (number + 1) % 3);
    let address = homing.address().expect("it listens");
    let doubts = operated.iter().flat_map(|one| &one.messages).filter(|known| known.doubt.is_some()).count();
    (operated.iter().flat_map(|one| one.check(address, &socket)).collect(), doubts)
}

#[test]
fn a_message_is_in_its_queue_or_a_letter_exactly_one_over_kill_9() {
    let seed = variable("CRASH_SEED").unwrap_or_else(any_seed);
    println!("CRASH_SEED={seed}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (mut rng, mut doubts) = (Rng::new(seed), 0);
    for number in 0..ROUNDS {
        let (wrong, doubtful) = round(number, directory.path(), &mut rng);
        assert!(wrong.is_empty(), "CRASH_SEED={seed}, round {number}:\n{}", wrong.join("\n"));
        doubts += doubtful;
    }
    println!("{doubts} actions were under way at {ROUNDS} kills");
    assert!(doubts > 0, "some kills have to fall between a request and its answer");
}
