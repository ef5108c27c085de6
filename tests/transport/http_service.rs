//! An HTTP service with TLS that decides logins.

use super::kit::{PATIENCE, Pki, dial, listener, read, start_with};
use homing::config::Anonymous;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

/// A 5.0 CONNECT of client "c" with the user name "ann".
const NAMED: &[u8] = b"\x10\x13\x00\x04MQTT\x05\x82\x00\x00\x00\x00\x01c\x00\x03ann";

/// Starts a service that lets everybody in, with the certificate `server`.
fn serve(pki: &Pki) -> SocketAddr {
    let certificate = pki.server("server", &["localhost", "127.0.0.1"]);
    let key = PrivateKeyDer::from_pem_file(pki.path("server.key")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a certificate");
    let (config, listener) = (Arc::new(config), TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a configuration");
            let mut stream = StreamOwned::new(connection, socket);
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut byte = [0];
                if !matches!(stream.read(&mut byte), Ok(1)) {
                    break;
                }
                request.push(byte[0]);
            }
            drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"));
            drop(stream.flush());
        }
    });
    address
}

#[test]
fn a_service_has_to_have_a_certificate_of_its_authority() {
    let (pki, other) = (Pki::new(), Pki::new());
    let address = serve(&pki);
    for (ca, code) in [(&pki, 0), (&other, 0x88)] {
        let broker = start_with(vec![listener()], |config| {
            config.auth.anonymous = Anonymous::Never;
            config.auth.http_url = format!("https://localhost:{}/", address.port());
            config.auth.http_ca = ca.text_path("ca.pem");
        });
        let mut client = dial(broker.addresses()[0]);
        client.write_all(NAMED).expect("open");
        let connack = read(&mut client, 4);
        assert_eq!((connack[0], connack[3]), (0x20, code));
    }
}
