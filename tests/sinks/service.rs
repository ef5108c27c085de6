//! A service that answers each request as its script says. It ends with the process.

use crate::support::http_server::read_request;
use crate::support::until;
use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
pub struct Request {
    /// The first line and the headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    /// Returns the values of a header, whose name is in lower case.
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    pub fn key(&self) -> &str {
        self.headers("idempotency-key")[0]
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the messages of a JSON request.
    pub fn messages(&self) -> Vec<serde_json::Value> {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the payloads of a JSON request.
    pub fn payloads(&self) -> Vec<String> {
        let text = |message: &serde_json::Value| message["payload"].as_str().expect("text").to_owned();
        self.messages().iter().map(text).collect()
    }
}

pub enum Reply {
    /// A status with its reason and these headers, and a body.
    Answer(&'static str, &'static str),
    /// These bytes, whatever they are, and then silence.
    Bytes(&'static [u8]),
    /// These bytes, and the end of the connection.
    Last(&'static [u8]),
    /// This status, and the request itself as the body.
    Echo(&'static str),
    /// These bytes, and then the others again and again.
    Endless(&'static [u8], &'static [u8]),
    /// The connection is closed without an answer.
    Close,
    /// There is no answer, and the connection stays open.
    Silence,
}

pub const OK: Reply = Reply::Answer("204 No Content", "");

pub struct Service {
    pub url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Service {
    /// Starts a service. The script gets the number of the request, from 0.
    pub fn start(script: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let url = format!("http://{}/in", listener.local_addr().expect("its address"));
        let (seen, script) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(script));
        let service = Service { url, seen: Arc::clone(&seen) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
                std::thread::spawn(move || serve(&stream, &seen, &*script));
            }
        });
        service
    }

    pub fn accepting() -> Service {
        Service::start(|_, _| OK)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Waits for this number of requests.
    pub fn expect(&self, count: usize) -> Vec<Request> {
        until(&format!("{count} requests"), || Some(self.requests()).filter(|all| all.len() >= count))
    }

    /// Waits until the payloads of all JSON requests are at least as many, and returns them.
    pub fn expect_payloads(&self, count: usize) -> Vec<String> {
        until(&format!("{count} payloads"), || {
            Some(self.requests().iter().flat_map(Request::payloads).collect::<Vec<_>>())
                .filter(|all| all.len() >= count)
        })
    }
}

/// Answers the requests of one connection.
fn serve(
    stream: &TcpStream,
    seen: &Mutex<Vec<Request>>,
    script: &dyn Fn(usize, &Request) -> Reply,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut out = stream;
    loop {
        let (head, body) = read_request(&mut reader)?;
        let request = Request { head, body };
        let number = {
            let mut seen = seen.lock().expect("no panic");
            seen.push(request.clone());
            seen.len() - 1
        };
        match script(number, &request) {
            Reply::Answer(head, body) => {
                write!(out, "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok()?;
            }
            Reply::Bytes(bytes) => {
                out.write_all(bytes).ok()?;
                drop(reader.read(&mut [0]));
            }
            Reply::Last(bytes) => {
                out.write_all(bytes).ok()?;
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Reply::Echo(status) => {
                let (head, body) = (&request.head, request.text());
                let length = head.len() + body.len();
                write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{head}{body}").ok()?;
            }
            Reply::Endless(first, again) => {
                out.write_all(first).ok()?;
                let many = again.repeat(1_000);
                while out.write_all(&many).is_ok() {}
            }
            Reply::Close => {
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Reply::Silence => drop(reader.read(&mut [0])),
        }
    }
}
