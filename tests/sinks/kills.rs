//! `kill -9` of the broker, of the service, and of both, under load: nothing is lost, the order
//! holds, and what comes twice has the same identifier.
//!
//! `SINK_ROUNDS` sets the number of kills.

use crate::broker::{Broker, sink};
use crate::support::http_server::read_request;
use crate::support::process::Process;
use crate::support::{Connect, Message, PATIENCE, V311, now, until};
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ROUNDS: u32 = 6;
const PUBLISHERS: usize = 3;
/// Messages that a publisher sends before it waits for their acknowledgements.
const PIPELINED: usize = 20;
/// The last message of each publisher.
const LAST: u32 = u32::MAX;
/// The load between two kills.
const LOAD: Duration = Duration::from_millis(300);

/// The variables that tell the service of a test its address and its file.
const ADDRESS: &str = "SINK_SERVICE_ADDRESS";
const FILE: &str = "SINK_SERVICE_FILE";

/// A service as a process of its own. It writes each message to its file before it answers.
#[test]
#[ignore = "a process that other tests start"]
fn a_service_of_its_own() {
    let address: SocketAddr = std::env::var(ADDRESS).expect("an address").parse().expect("an address");
    let file = PathBuf::from(std::env::var(FILE).expect("a file"));
    let listener = until("a free address", || TcpListener::bind(address).ok());
    println!("listening on {address}");
    let file = Arc::new(Mutex::new(OpenOptions::new().append(true).create(true).open(file).expect("a file")));
    for stream in listener.incoming().map_while(Result::ok) {
        let file = Arc::clone(&file);
        thread::spawn(move || keep(&stream, &file));
    }
}

fn keep(stream: &TcpStream, file: &Mutex<std::fs::File>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (_, body) = read_request(&mut reader)?;
        let messages: Vec<serde_json::Value> = serde_json::from_slice(&body).expect("JSON");
        // A line that a kill cuts has no mark at its end, and the next one begins with a line feed.
        let lines = messages.iter().fold(String::new(), |lines, message| {
            let text = |name: &str| message[name].as_str().expect("text");
            lines + &format!("\n{} {} {} .", text("id"), text("topic"), text("payload"))
        });
        file.lock().expect("no panic").write_all(lines.as_bytes()).expect("a disk");
        let mut out = stream;
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

fn start_service(address: SocketAddr, file: &Path) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "kills::a_service_of_its_own", "--ignored", "--nocapture"]);
    command.env(ADDRESS, address.to_string()).env(FILE, file);
    Process::serve(&mut command).0
}

/// What a publisher knows of its messages.
#[derive(Default)]
struct Published {
    acknowledged: Vec<u32>,
    /// Messages that it sent more than once.
    repeated: HashSet<u32>,
}

/// Publishes numbers on a connection of their own, and waits for their acknowledgements.
fn publish_all(address: SocketAddr, name: usize, numbers: &[u32]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&Connect::new(V311, &format!("p{name}")).encode())?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack)?;
    assert_eq!(connack, [0x20, 2, 0, 0]);
    let message = |n: &u32| Message::new(format!("t/{name}"), n.to_string()).qos(1);
    let all: Vec<u8> = (1..).zip(numbers).flat_map(|(id, n)| message(n).encode(V311, id)).collect();
    stream.write_all(&all)?;
    for id in 1..=numbers.len() as u8 {
        let mut puback = [0; 4];
        stream.read_exact(&mut puback)?;
        assert_eq!(puback, [0x40, 2, 0, id]);
    }
    Ok(())
}

/// Publishes numbers until `is_over`, and each again until it is acknowledged.
fn publish(address: SocketAddr, name: usize, is_over: &AtomicBool) -> Published {
    let mut published = Published::default();
    let (mut next, mut open): (u32, Vec<u32>) = (0, Vec::new());
    while !is_over.load(Ordering::SeqCst) || !open.is_empty() {
        if open.is_empty() {
            open = (next..).take(PIPELINED).collect();
            next += PIPELINED as u32;
        }
        match publish_all(address, name, &open) {
            Ok(()) => published.acknowledged.append(&mut open),
            // Nobody knows which of them the broker has.
            Err(_) => {
                published.repeated.extend(&open);
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
    published
}

/// Returns identifier, topic and payload of the messages that the service has, in their order.
fn kept(file: &Path) -> Vec<(String, String, u32)> {
    let text = String::from_utf8(std::fs::read(file).unwrap_or_default()).expect("UTF-8");
    let line = |line: &str| {
        let [id, topic, payload, "."] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        Some((id.to_owned(), topic.to_owned(), payload.parse().expect("a number")))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the bytes of the file.
fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |file| file.len())
}

/// Returns true if the end of the file has the last message of each topic.
fn is_whole(file: &Path) -> bool {
    let mut end = Vec::new();
    let mut file = std::fs::File::open(file).expect("a file");
    let from = file.metadata().expect("a file").len().saturating_sub(64 << 10);
    file.seek(SeekFrom::Start(from)).expect("a file");
    file.read_to_end(&mut end).expect("a file");
    let end = String::from_utf8_lossy(&end);
    (0..PUBLISHERS).all(|name| end.contains(&format!(" t/{name} {LAST} .")))
}

/// Checks what came of the messages of one publisher.
fn check(published: &Published, kept: &[(String, String, u32)], topic: &str) {
    let own: Vec<(&str, u32)> = kept
        .iter()
        .filter(|(_, found, _)| found == topic)
        .map(|(id, _, payload)| (id.as_str(), *payload))
        .collect();
    let has: HashSet<u32> = own.iter().map(|(_, payload)| *payload).collect();
    let lost: Vec<u32> = published.acknowledged.iter().filter(|n| !has.contains(n)).copied().collect();
    assert!(lost.is_empty(), "{topic} lost {lost:?}");
    let (mut ids, mut seen): (HashMap<u32, HashSet<&str>>, HashSet<u32>) = (HashMap::new(), HashSet::new());
    let mut first: Vec<u32> = Vec::new();
    for (id, payload) in own {
        ids.entry(payload).or_default().insert(id);
        if seen.insert(payload) {
            first.push(payload);
        }
    }
    assert!(first.is_sorted(), "{topic} is out of order");
    let renamed: Vec<_> =
        ids.iter().filter(|(n, ids)| ids.len() > 1 && !published.repeated.contains(n)).collect();
    assert!(renamed.is_empty(), "{topic} has messages with two identifiers: {renamed:?}");
}

#[test]
fn nothing_is_lost_by_kills_of_either_side_and_repetitions_have_the_same_identifier() {
    let rounds = std::env::var("SINK_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kept");
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address");
    let mut service = start_service(free, &file);
    // Room for all that many rounds publish while the service is away: a full queue refuses messages.
    let keys = "batch_messages = 40\ntimeout = \"2s\"\nqueue_messages = 1000000\nqueue_bytes = \"1 GiB\"\n";
    let mut broker = Broker::start(&sink(&format!("http://{free}/"), keys));
    let (address, is_over) = (broker.address(), Arc::new(AtomicBool::new(false)));
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|name| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || publish(address, name, &is_over))
        })
        .collect();
    for round in 0..rounds {
        // The kills come at different moments of the load, and only when some of it has come.
        let (begin, had) = (now(), kept(&file).len());
        let wait = LOAD + Duration::from_millis(u64::from(round * 37 % 100));
        until("some load", || (begin.elapsed() >= wait && kept(&file).len() > had).then_some(()));
        if round % 3 != 0 {
            service.kill();
        }
        if round % 3 != 1 {
            broker.kill();
            broker.start_again();
        }
        if round % 3 != 0 {
            service = start_service(free, &file);
        }
    }
    is_over.store(true, Ordering::SeqCst);
    let published: Vec<Published> =
        publishers.into_iter().map(|one| one.join().expect("a publisher")).collect();
    // All came in order, so what is missing behind the last message of a topic is lost.
    for name in 0..PUBLISHERS {
        until("the last message is acknowledged", || publish_all(address, name, &[LAST]).ok());
    }
    let mut size = 0;
    while !is_whole(&file) {
        size = until("more messages", || Some(length(&file)).filter(|now| *now > size));
    }
    let kept = kept(&file);
    for (name, published) in published.iter().enumerate() {
        assert!(!published.acknowledged.is_empty());
        check(published, &kept, &format!("t/{name}"));
    }
    let mut topics: HashMap<&str, (&str, u32)> = HashMap::new();
    for (id, topic, payload) in &kept {
        let known = topics.entry(id).or_insert((topic, *payload));
        assert_eq!(*known, (topic.as_str(), *payload), "the identifier {id} is that of two messages");
    }
    let acknowledged: usize = published.iter().map(|one| one.acknowledged.len()).sum();
    println!(
        "{rounds} rounds: {acknowledged} messages acknowledged, {} came, {} of them repeated; 0 lost",
        kept.len(),
        kept.len() - topics.len()
    );
}
