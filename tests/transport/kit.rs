//! Certificates, brokers and a small MQTT exchange over any stream.

pub use crate::support::PATIENCE;
use crate::support::{Connect, V311};
use homing::broker::Broker;
use homing::config::{CertificatePair, ClientCertificates, Config, Listener, ListenerAddress, ListenerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A 3.1.1 CONNECT of client "c" with Clean Session and no Keep Alive.
pub const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";
pub const CONNACK: [u8; 4] = [0x20, 2, 0, 0];

/// A certificate authority with the files of a server.
pub struct Pki {
    folder: TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    pub pem: String,
    pub key: KeyPair,
}

impl Identity {
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key")
    }
}

impl Pki {
    pub fn new() -> Pki {
        Pki::named("test authority")
    }

    /// Returns an authority of this name.
    pub fn named(name: &str) -> Pki {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let ca =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        let pki = Pki { folder: tempfile::tempdir().expect("a folder"), ca };
        pki.write("ca.pem", &pki.ca.pem());
        pki.server("server", &["localhost", "127.0.0.1"]);
        pki
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text_path(&self, name: &str) -> String {
        self.path(name).to_str().expect("UTF-8").to_owned()
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a writable folder");
    }

    /// Writes `NAME.pem` and `NAME.key` of a server with these names.
    pub fn server(&self, name: &str, names: &[&str]) -> CertificateDer<'static> {
        self.server_with_key(name, names, KeyPair::generate().expect("a key"))
    }

    /// Writes the same files of a server that has this key.
    pub fn server_with_key(&self, name: &str, names: &[&str], key: KeyPair) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.server_of(name, CertificateParams::new(names).expect("names"), key)
    }

    /// Writes the same files of a server with these parameters and this key.
    pub fn server_of(&self, name: &str, params: CertificateParams, key: KeyPair) -> CertificateDer<'static> {
        let identity = self.issue_for(params, key);
        self.write(&format!("{name}.pem"), &identity.pem);
        self.write(&format!("{name}.key"), &identity.key.serialize_pem());
        identity.certificate
    }

    /// Writes `NAME.pem` and `NAME.key` of a server that an intermediate authority has issued, and
    /// `NAME-ca.pem` with that authority and the root.
    pub fn server_below_intermediate(&self, name: &str) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "intermediate");
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::signed_by(params, key, &self.ca).expect("a certificate");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("names");
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        self.write(&format!("{name}.pem"), &certificate.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
        self.write(&format!("{name}-ca.pem"), &format!("{}{}", self.ca.pem(), issuer.pem()));
    }

    /// Returns the identity of a client with this common name.
    pub fn client(&self, name: &str) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        self.issue(params)
    }

    /// Returns the identity of a client whose certificate has this serial number.
    pub fn client_of_serial(&self, serial: u64) -> Identity {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a device");
        params.serial_number = Some(SerialNumber::from(serial));
        self.issue(params)
    }

    /// Writes a list that revokes these serial numbers.
    pub fn revoke(&self, name: &str, serials: &[u64]) {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        self.write(name, &params.signed_by(&self.ca).expect("a list").pem().expect("PEM"));
    }

    fn issue(&self, params: CertificateParams) -> Identity {
        self.issue_for(params, KeyPair::generate().expect("a key"))
    }

    fn issue_for(&self, mut params: CertificateParams, key: KeyPair) -> Identity {
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.ca).expect("a certificate");
        Identity { certificate: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// Returns the TLS table of a listener with the certificate `server`.
    pub fn tls(&self) -> ListenerTls {
        ListenerTls { certificates: Some(vec![self.pair("server")]), ..ListenerTls::default() }
    }

    /// Returns the same, for clients that must have a certificate of `ca.pem`.
    pub fn mutual_tls(&self) -> ListenerTls {
        ListenerTls {
            client_certificates: Some(ClientCertificates::Required),
            client_ca: Some(self.text_path("ca.pem")),
            ..self.tls()
        }
    }

    pub fn pair(&self, name: &str) -> CertificatePair {
        CertificatePair {
            certificate: Some(self.text_path(&format!("{name}.pem"))),
            chain: None,
            key: Some(self.text_path(&format!("{name}.key"))),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).expect("a root");
        roots
    }

    /// Returns the configuration of a client that speaks this version alone.
    pub fn client_of(&self, version: &'static SupportedProtocolVersion) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }

    pub fn client_config(&self, identity: Option<&Identity>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots());
        match identity {
            Some(identity) => builder
                .with_client_auth_cert(vec![identity.certificate.clone()], identity.private_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        }
    }
}

/// Returns a listener on a free port.
pub fn listener() -> Listener {
    Listener::plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// Returns a listener on a Unix socket.
pub fn unix_listener(path: PathBuf) -> Listener {
    Listener { address: Some(ListenerAddress::Unix(path)), ..Listener::default() }
}

/// Starts a broker with two threads, so that sockets move, and with these listeners alone.
pub fn start(listeners: Vec<Listener>) -> Broker {
    start_with(listeners, |_| ())
}

pub fn start_with(listeners: Vec<Listener>, configure: impl FnOnce(&mut Config)) -> Broker {
    let mut config = Config::default();
    config.runtime.threads = 2;
    config.network.listen = Vec::new();
    config.listeners = listeners;
    configure(&mut config);
    Broker::start(config).expect("the broker starts")
}

pub fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// A TLS client on a socket.
pub fn tls_client(
    config: ClientConfig,
    name: &str,
    socket: TcpStream,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = name.to_owned().try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    StreamOwned::new(connection, socket)
}

/// Returns a 3.1.1 CONNECT with Clean Session, no Keep Alive, a user name and a password.
pub fn login(client_id: &str, user: &str, password: &str) -> Vec<u8> {
    let connect = Connect::new(V311, client_id).keep_alive(0);
    connect.user_name(user).password(password.as_bytes()).encode()
}

/// Connects client "c".
pub fn connect(stream: &mut (impl Read + Write)) {
    stream.write_all(CONNECT).expect("open");
    assert_eq!(read(stream, 4), CONNACK);
}

/// Returns the next bytes.
pub fn read(stream: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).expect("bytes of the broker");
    bytes
}

/// True if the broker closes the connection without another byte of MQTT.
pub fn is_closed(stream: &mut impl Read) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(1..))
}

/// Connects client "c", which subscribes to "t" and publishes to itself at QoS 1: a small message
/// and one of this many bytes.
pub fn exchange(stream: &mut (impl Read + Write), large: usize) {
    connect(stream);
    stream.write_all(&[0x82, 6, 0, 1, 0, 1, b't', 1]).expect("open");
    assert_eq!(read(stream, 5), [0x90, 3, 0, 1, 1]);
    for payload in [vec![7; 10], (0..large).map(|n| (n % 251) as u8).collect()] {
        publish(stream, &payload);
        let (mut acknowledged, mut received) = (false, false);
        while !(acknowledged && received) {
            match packet(stream) {
                (0x40, body) => {
                    assert_eq!(body, [0, 2]);
                    acknowledged = true;
                }
                (0x32, body) => {
                    assert!(body[..3] == [0, 1, b't'] && body[5..] == payload, "the payload is whole");
                    stream.write_all(&[0x40, 2, body[3], body[4]]).expect("open");
                    received = true;
                }
                (other, _) => panic!("unexpected packet {other:#x}"),
            }
        }
    }
}

/// Publishes to "t" at QoS 1 with Packet Identifier 2.
pub fn publish(stream: &mut impl Write, payload: &[u8]) {
    let mut packet = vec![0x32];
    let mut left = payload.len() + 5;
    while left >= 128 {
        packet.push(left as u8 & 0x7F | 0x80);
        left >>= 7;
    }
    packet.push(left as u8);
    packet.extend_from_slice(&[0, 1, b't', 0, 2]);
    packet.extend_from_slice(payload);
    stream.write_all(&packet).expect("open");
    stream.flush().expect("open");
}

/// Reads one packet: its first byte and the bytes behind its length.
pub fn packet(stream: &mut impl Read) -> (u8, Vec<u8>) {
    let first = read(stream, 1)[0];
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = read(stream, 1)[0];
        length |= usize::from(byte & 0x7F) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    (first, read(stream, length))
}
