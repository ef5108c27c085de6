//! Any bytes as a script of a TLS client: it sends, damages, splits and withholds records, in the
//! handshake and after it. The broker's side never panics, and what it opens is what was sent.
#![no_main]

use std::io::{IoSlice, Read as _, Write as _};
use std::sync::{Arc, LazyLock};

use homing::net::layers::Layers;
use homing::net::tls::engine::TlsHandshake;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

type Configs = (Arc<ServerConfig>, [Arc<ClientConfig>; 2]);

static CONFIGS: LazyLock<Configs> = LazyLock::new(|| {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["broker.test".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("a root");
    let client = |version| {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[version]).expect("a version");
        Arc::new(builder.with_root_certificates(roots.clone()).with_no_client_auth())
    };
    (Arc::new(server), [client(&TLS12), client(&TLS13)])
});

/// The broker's side, in the handshake or after it.
enum Server {
    Handshake(Box<TlsHandshake>),
    Traffic(Layers),
    Ended,
}

struct Run {
    client: ClientConnection,
    server: Server,
    /// Wire bytes that the client sent and the server has not been given.
    wire: Vec<u8>,
    /// Wire bytes that the server was given and did not use.
    kept: Vec<u8>,
    sent: Vec<u8>,
    opened: Vec<u8>,
    is_damaged: bool,
    client_ended: bool,
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [version, script @ ..] = input else { return };
    let (server, clients) = &*CONFIGS;
    let name = ServerName::try_from("broker.test").expect("a name");
    let config = Arc::clone(&clients[usize::from(version & 1)]);
    let mut run = Run {
        client: ClientConnection::new(config, name).expect("a client"),
        server: Server::Handshake(Box::new(TlsHandshake::new(Arc::clone(server)).expect("a server"))),
        wire: Vec::new(),
        kept: Vec::new(),
        sent: Vec::new(),
        opened: Vec::new(),
        is_damaged: false,
        client_ended: false,
    };
    if version & 2 != 0 {
        for _ in 0..4 {
            run.deliver(usize::MAX);
        }
    }
    let mut script = script;
    while let [step, argument, rest @ ..] = script {
        let (data, after) = rest.split_at(usize::from(*argument).min(rest.len()));
        script = rest;
        match step % 8 {
            0 => {
                script = after;
                run.write(data);
            }
            1 => {
                script = after;
                run.take_records();
                run.wire.extend_from_slice(data);
                run.is_damaged |= !data.is_empty();
            }
            2 => {
                run.take_records();
                let at = usize::from(*argument);
                if let Some(byte) = run.wire.get_mut(at) {
                    *byte ^= step >> 3 | 1;
                    run.is_damaged = true;
                }
            }
            3 => run.deliver(usize::from(*argument)),
            4 => run.deliver(usize::MAX),
            5 => drop(run.client.refresh_traffic_keys()),
            6 => run.seal(&vec![*argument; usize::from(*argument) * 200]),
            _ => {
                // A client that said its last word reads nothing more: rustls must not fail after it.
                run.client.send_close_notify();
                run.client_ended = true;
            }
        }
    }
    run.deliver(usize::MAX);
    run.seal(b"end");
    if let Server::Traffic(layers) = &mut run.server {
        layers.close(&mut Vec::new());
    }
    assert!(run.is_damaged || run.sent.starts_with(&run.opened));
});

impl Run {
    fn take_records(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.wire).expect("a vector takes all");
        }
    }

    fn write(&mut self, data: &[u8]) {
        if self.client.writer().write_all(data).is_ok() {
            self.sent.extend_from_slice(data);
        }
    }

    /// Gives the server at most `most` bytes of the wire, and the client the reply.
    fn deliver(&mut self, most: usize) {
        self.take_records();
        let now = self.wire.drain(..most.min(self.wire.len()));
        self.kept.extend(now);
        let mut out = Vec::new();
        let result = match &mut self.server {
            Server::Handshake(handshake) => {
                handshake.advance(&mut self.kept, &mut self.opened, &mut out).map(|progress| progress.used)
            }
            Server::Traffic(layers) => {
                layers.open(&mut self.kept, &mut self.opened, &mut out).map(|opened| opened.used)
            }
            Server::Ended => Ok(self.kept.len()),
        };
        match result {
            Ok(used) => drop(self.kept.drain(..used)),
            Err(_) => {
                // Sealing after an error is harmless.
                self.seal(b"after");
                self.server = Server::Ended;
            }
        }
        if matches!(&self.server, Server::Handshake(handshake) if handshake.is_done())
            && let Server::Handshake(handshake) = std::mem::replace(&mut self.server, Server::Ended)
        {
            self.server = Server::Traffic(Layers::new(handshake.finish(), None));
        }
        self.give_to_client(&out);
    }

    fn seal(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        if let Server::Traffic(layers) = &mut self.server {
            layers.seal(&[IoSlice::new(bytes), IoSlice::new(bytes)], &mut out);
        }
        self.give_to_client(&out);
    }

    fn give_to_client(&mut self, mut wire: &[u8]) {
        let mut plain = [0; 4096];
        // rustls must not be called again after an error.
        while !wire.is_empty() && !self.client_ended {
            let read = self.client.read_tls(&mut wire);
            if read.is_err() || self.client.process_new_packets().is_err() {
                self.client_ended = true;
                return;
            }
            while let Ok(1..) = self.client.reader().read(&mut plain) {}
        }
    }
}
