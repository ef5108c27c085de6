//! Clients of the HTTP interface that hold a place as long as they can: by a slow body, or because
//! they stop reading. Others get a place in time.

use crate::api::Administered;
use crate::hostile::number_of;
use crate::http::{LOCAL, PLACES, request};
use crate::live::{Live, bearer};
use crate::pages::log_in;
use crate::support::{PATIENCE, now};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Streams of events of one credential at once.
const STREAMS: usize = 16;

/// Time after which the kernel closes a connection whose client reads nothing.
const UNREAD: Duration = Duration::from_secs(30);

/// Returns a socket that takes a few KiB, and on which nobody reads.
fn narrow(address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(2048).expect("a size");
    socket.connect(&address.into()).expect("it listens");
    socket.into()
}

/// A form of which nothing has come yet.
struct SlowForm {
    socket: TcpStream,
    form: &'static str,
}

impl SlowForm {
    fn begin(admin: SocketAddr, path: &str, headers: &str) -> SlowForm {
        let form = "csrf=unknown&theme=dark&back=/&token=x&code=x";
        let mut socket = TcpStream::connect(admin).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let length = form.len();
        write!(
            socket,
            "POST {path} HTTP/1.1\r\n{LOCAL}{headers}Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .expect("it reads");
        SlowForm { socket, form }
    }

    /// Sends the form.
    fn send(&mut self) {
        self.socket.write_all(self.form.as_bytes()).expect("it reads");
    }

    /// Returns the answer, once the broker has closed the connection.
    fn answer(mut self) -> String {
        let mut answer = Vec::new();
        let _ = self.socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }
}

#[test]
fn a_body_of_somebody_unknown_is_awaited_for_less_time_than_that_of_a_login() {
    let broker = Administered::start();
    let cookie = log_in(&broker, &broker.viewer);
    let mut known = SlowForm::begin(broker.admin, "/theme", &format!("Cookie: {cookie}\r\n"));
    let paths = ["/login", "/login/code", "/logout", "/theme", "/settings", "/clients/x/end"];
    let unknown = paths.map(|path| SlowForm::begin(broker.admin, path, ""));
    for form in unknown {
        let answer = form.answer();
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    // The first of all, and its place is not taken yet.
    known.send();
    let answer = known.answer();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[test]
fn scrapers_that_stop_reading_hold_no_place() {
    let broker = Administered::start();
    let scrape = format!("GET /metrics HTTP/1.1\r\n{LOCAL}\r\n");
    let begun = now();
    // The kernel takes a whole answer. So each place is free at once, and the next ones get it.
    let stopped: Vec<TcpStream> = (0..PLACES + 1)
        .map(|_| {
            let mut socket = narrow(broker.admin);
            socket.write_all(scrape.as_bytes()).expect("it reads");
            socket
        })
        .collect();
    assert_eq!(request(broker.admin, "GET", "/healthz", LOCAL).0, 200);
    assert!(begun.elapsed() < UNREAD, "{:?}", begun.elapsed());
    drop(stopped);
}

/// `STOPPED_READERS=16` waits for half a minute until the kernel has closed the streams of readers
/// that stopped. Otherwise the readers go.
#[test]
fn readers_of_streams_that_stop_free_their_places() {
    let broker = Administered::start();
    let key = bearer(&broker.viewer);
    let begun = now();
    let streams = "GET /api/v1/events?streams=overview,wheel HTTP/1.1";
    let mut stopped: Vec<TcpStream> = (0..STREAMS)
        .map(|_| {
            let mut socket = narrow(broker.admin);
            write!(socket, "{streams}\r\n{LOCAL}{key}\r\n").expect("it reads");
            // The status of the answer, so that the stream has its place.
            let mut status = [0; 15];
            socket.read_exact(&mut status).expect("an answer");
            assert_eq!(&status, b"HTTP/1.1 200 OK");
            socket
        })
        .collect();
    assert_eq!(Live::open(&broker, "/api/v1/events", &key).1, 429, "the viewer has its share");
    let wait = if number_of("STOPPED_READERS", 0) == 0 {
        stopped.clear();
        PATIENCE
    } else {
        2 * UNREAD
    };
    while Live::open(&broker, "/api/v1/events", &key).1 != 200 {
        assert!(begun.elapsed() < wait, "the places of the streams stay taken");
        // A pace, no wait: each try takes a connection.
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("a place was free after {:?}", begun.elapsed());
}
