//! Callers of the HTTP interface: slow ones, and many dashboards and searches at once.

use crate::slow_socket::{PACE, SlowSocket};
use crate::support::pair::disturb;
use crate::support::process::{Process, homing_serve};
use crate::support::{Connect, PATIENCE, RawClient, V311, now};
use crate::{MEANWHILE, by_build, turn};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Connections that send a byte of their head a second: more than the 256 places.
const SLOW_HEADS: usize = by_build(400, 1_000);
const HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: so slow that it never ends\r\n";

const DASHBOARDS: usize = 100;
const SEARCHES: usize = 100;

/// Sessions that each search looks at.
const SESSIONS: usize = by_build(200, 5_000);

/// The longest time of an answer to somebody else.
const ANSWERED: Duration = Duration::from_secs(30);

/// A broker with the HTTP interface, and its addresses.
pub struct Operated {
    _process: Process,
    _directory: TempDir,
    pub mqtt: SocketAddr,
    pub viewer: Viewer,
    /// A caller with a credential of its own.
    other: Viewer,
}

/// A caller of the interface who may look.
pub struct Viewer {
    admin: SocketAddr,
    /// The header with the token.
    token: String,
}

impl Operated {
    fn serve() -> Operated {
        Operated::serve_with(&[])
    }

    /// Starts a broker with settings such as `limits.in_flight=1`.
    pub fn serve_with(settings: &[&str]) -> Operated {
        let directory = tempfile::tempdir().expect("a folder");
        let credentials = directory.path().join("credentials");
        let header = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
            command.arg("admin-token").arg(&credentials).args([name, "--scope", "viewer"]);
            let token = String::from_utf8(command.output().expect("it runs").stdout).expect("text");
            format!("Authorization: Bearer {}\r\n", token.trim())
        };
        let tokens = ["viewer", "other"].map(header);
        let mut command = homing_serve();
        command.args([
            "--ephemeral",
            "--log-level",
            "error",
            "--set",
            "admin.addresses=127.0.0.1:0",
            "--set",
        ]);
        command.arg(format!("admin.credentials={}", credentials.display()));
        settings.iter().for_each(|setting| {
            command.args(["--set", setting]);
        });
        let (mut process, mqtt) = Process::serve(&mut command);
        let line = process.line("administration").expect("the address of the interface");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(": ").next());
        let admin = address.and_then(|address| address.parse().ok()).expect("an address");
        let [viewer, other] = tokens.map(|token| Viewer { admin, token });
        Operated { _process: process, _directory: directory, mqtt, viewer, other }
    }
}

impl Viewer {
    /// Asks, and returns the connection with the status of the answer.
    pub fn ask(&self, path: &str) -> (TcpStream, u16) {
        let mut socket = TcpStream::connect(self.admin).expect("it listens");
        socket.set_read_timeout(Some(2 * PATIENCE)).expect("a timeout");
        let token = &self.token;
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").expect("it reads");
        let mut status = String::new();
        BufReader::with_capacity(1, &socket).read_line(&mut status).expect("an answer");
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        (socket, status.expect("a status"))
    }
}

#[test]
fn slow_heads_leave_the_pair_alone_and_others_get_answers() {
    let _turn = turn();
    let broker = Operated::serve();
    let viewer = &broker.viewer;
    let longest = disturb("slow heads of HTTP", broker.mqtt, MEANWHILE, |stage| {
        let open = || SlowSocket::open(viewer.admin, HEAD);
        let mut heads: Vec<SlowSocket> = (0..SLOW_HEADS).map(|_| open()).collect();
        stage.begun();
        thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let begun = now();
                assert_eq!(viewer.ask("/healthz").1, 200);
                begun.elapsed()
            });
            while stage.goes_on() || !asked.is_finished() {
                // Each that is closed comes again.
                heads
                    .iter_mut()
                    .filter_map(|head| (!head.go_on()).then_some(head))
                    .for_each(|head| *head = open());
                // A pace, no wait: one byte a second.
                thread::sleep(PACE);
            }
            asked.join().expect("an answer")
        })
    });
    println!("  another request took {longest:.1?}");
    assert!(longest < ANSWERED, "{longest:?}");
}

/// Reads what has come. Returns false at the end.
fn drain(stream: &mut TcpStream) -> bool {
    let mut scratch = [0; 4096];
    loop {
        match stream.read(&mut scratch) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn dashboards_and_searches_leave_the_pair_alone_and_get_places_or_503() {
    let _turn = turn();
    let broker = Operated::serve();
    let viewer = &broker.viewer;
    for number in 0..SESSIONS {
        let connect = Connect::persistent(V311, &format!("s{number}"));
        RawClient::connect(broker.mqtt, &connect).disconnect();
    }
    let statuses = Mutex::new(Vec::new());
    let (open, refused) = disturb("dashboards and searches", broker.mqtt, MEANWHILE, |stage| {
        // One credential has half of the places.
        let callers = [viewer, &broker.other].into_iter().cycle().take(DASHBOARDS);
        let streams = callers.map(|caller| caller.ask("/api/v1/events?streams=overview,wheel,timeline"));
        let (mut open, refused): (Vec<_>, Vec<_>) = streams.partition(|(_, status)| *status == 200);
        assert!(refused.iter().all(|(_, status)| [429, 503].contains(status)));
        open.iter().for_each(|(stream, _)| stream.set_nonblocking(true).expect("a mode"));
        stage.begun();
        thread::scope(|scope| {
            for _ in 0..SEARCHES {
                scope.spawn(|| {
                    while stage.goes_on() {
                        let status = viewer.ask("/api/v1/clients?sort=queued").1;
                        statuses.lock().expect("no panic").push(status);
                        // A pace, no wait: each searches once a second.
                        thread::sleep(PACE);
                    }
                });
            }
            while stage.goes_on() {
                assert!(open.iter_mut().all(|(stream, _)| drain(stream)), "a stream has ended");
                // A pace, no wait.
                thread::sleep(Duration::from_millis(50));
            }
        });
        (open.len(), refused.len())
    });
    let statuses = statuses.into_inner().expect("no panic");
    let done = statuses.iter().filter(|status| **status == 200).count();
    println!("  {open} streams, {refused} refused; {done} of {} searches done", statuses.len());
    assert_eq!(open, 32);
    assert!(done > 0 && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
}
