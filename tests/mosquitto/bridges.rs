//! Bridges to a mosquitto, and to a second Homing that is killed: what passes, under which name, and
//! that nothing is lost or comes twice.

use crate::broker::Mosquitto;
use crate::kit::Pki;
use crate::support::process::Process;
use crate::support::{Connect, Kind, Message, Publish, RawClient, V5, V311, Version, until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

/// Rules for each direction.
pub const TOPICS: &str = "\
    [[bridges.topics]]\ndirection = \"out\"\nfilter = \"sensors/#\"\nqos = 2\nremote_prefix = \"plant-7/\"\n\
    [[bridges.topics]]\ndirection = \"in\"\nfilter = \"orders/#\"\nqos = 2\nremote_prefix = \"plant-7/\"\n\
    [[bridges.topics]]\ndirection = \"both\"\nfilter = \"alarms/#\"\nqos = 1\n";

/// A Homing that keeps its configuration, its address and its store over its ends.
pub struct Broker {
    _directory: tempfile::TempDir,
    file: PathBuf,
    data: PathBuf,
    address: Option<SocketAddr>,
    process: Option<Process>,
    /// Lines of the process that a test has looked at.
    heard: usize,
    change: fn(&mut Command),
}

impl Broker {
    /// Starts a broker with a bridge to `far`, and waits until the bridge is connected.
    pub fn bridged(far: SocketAddr, keys: &str, topics: &str) -> Broker {
        let mut near = Broker::started(&bridge(&format!("mqtt://{far}"), keys, topics));
        near.says("bridge.established");
        near
    }

    pub fn started(configuration: &str) -> Broker {
        Broker::started_with(configuration, |_| {})
    }

    /// Starts a broker whose command gets this.
    pub fn started_with(configuration: &str, change: fn(&mut Command)) -> Broker {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, data) = (directory.path().join("homing.toml"), directory.path().join("data"));
        let (address, process) = (None, None);
        let mut near = Broker { _directory: directory, file, data, address, process, heard: 0, change };
        near.configure(configuration);
        near.start();
        near
    }

    pub fn configure(&self, text: &str) {
        fs::write(&self.file, text).expect("a file");
    }

    pub fn start(&mut self) {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_homing"));
        serve.env("HOMING_ADMIN__ADDRESSES", "off").arg("serve").arg("--config").arg(&self.file);
        serve.arg("--data-dir").arg(&self.data);
        let listen = self.address.map_or("127.0.0.1:0".to_owned(), |address| address.to_string());
        (self.change)(&mut serve);
        let (process, address) = Process::serve(serve.args(["--listen", &listen]));
        (self.process, self.address, self.heard) = (Some(process), Some(address), 0);
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    /// Returns the next line with these words. Its standard error may be ahead of its standard
    /// output, which has the address.
    pub fn says(&mut self, words: &str) -> String {
        let process = self.process.as_mut().expect("it runs");
        let line = process.line_behind(&mut self.heard, words);
        line.unwrap_or_else(|| panic!("it ends before it says {words}"))
    }

    /// Gives the broker another configuration by a reload.
    pub fn reload(&mut self, configuration: &str) {
        self.configure(configuration);
        self.process().signal(Signal::HUP);
    }

    /// Runs `homing ctl` with these arguments, and returns its output.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let mut ctl = Command::new(env!("CARGO_BIN_EXE_homing"));
        ctl.arg("ctl").arg("--socket").arg(self.data.join("homing.sock")).args(arguments);
        let output = ctl.output().expect("it runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    pub fn address(&self) -> SocketAddr {
        self.address.expect("it was started")
    }
}

pub fn bridge(far: &str, keys: &str, topics: &str) -> String {
    format!(
        "[[bridges]]\nname = \"far\"\naddresses = [\"{far}\"]\nbackoff = \"100ms\"\nmax_backoff = \"200ms\"\n\
         {keys}{topics}"
    )
}

pub fn subscriber(address: SocketAddr, version: Version, name: &str, filters: &[(&str, u8)]) -> RawClient {
    let mut client = RawClient::connect(address, &Connect::persistent(version, name));
    client.subscribe(filters);
    client
}

/// Takes and completes this number of messages.
pub fn take(client: &mut RawClient, count: usize) -> Vec<(String, String)> {
    let publishes = (0..count).map(|_| {
        let publish = client.expect_publish();
        client.complete(&publish);
        publish
    });
    publishes
        .map(|Publish { topic, payload, .. }| (topic, String::from_utf8_lossy(&payload).into_owned()))
        .collect()
}

fn messages_pass_and_are_renamed(keys: &str, version: Version) {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let near = Broker::bridged(far.address, keys, TOPICS);
    let filters = [("#", 2)];
    let (mut at_near, mut at_far) = (
        subscriber(near.address(), version, "reader", &filters),
        subscriber(far.address, version, "reader", &filters),
    );
    let (mut from_near, mut from_far) = (
        RawClient::connect(near.address(), &Connect::new(version, "writer")),
        RawClient::connect(far.address, &Connect::new(version, "writer")),
    );
    for qos in 0..3 {
        from_near.deliver(&Message::new("sensors/1", format!("out {qos}")).qos(qos));
        from_far.deliver(&Message::new("plant-7/orders/1", format!("in {qos}")).qos(qos));
        from_near.deliver(&Message::new("alarms/near", format!("alarm {qos}")).qos(qos));
        from_far.deliver(&Message::new("alarms/far", format!("alarm {qos}")).qos(qos));
        let text = |topic: &str, what: &str| (topic.to_owned(), format!("{what} {qos}"));
        // Each message is once at each side: what a bridge brought does not go back.
        let (mut near_has, mut far_has) = (take(&mut at_near, 4), take(&mut at_far, 4));
        near_has.sort();
        far_has.sort();
        let alarms = [text("alarms/far", "alarm"), text("alarms/near", "alarm")];
        assert_eq!(near_has[..2], alarms);
        assert_eq!(near_has[2..], [text("orders/1", "in"), text("sensors/1", "out")]);
        assert_eq!(far_has[..2], alarms);
        assert_eq!(far_has[2..], [text("plant-7/orders/1", "in"), text("plant-7/sensors/1", "out")]);
    }
    // A message behind all others would come behind what came back.
    from_near.deliver(&Message::new("alarms/last", "").qos(1));
    assert_eq!(take(&mut at_near, 1)[0].0, "alarms/last");
    assert_eq!(take(&mut at_far, 1)[0].0, "alarms/last");
}

#[test]
fn messages_pass_to_a_mosquitto_and_back_by_5_0() {
    messages_pass_and_are_renamed("", V5);
}

#[test]
fn messages_pass_to_a_mosquitto_and_back_by_3_1_1_with_its_bridge_bit() {
    messages_pass_and_are_renamed("version = \"3.1.1\"\nbridge_bit = true\n", V311);
}

#[test]
fn a_client_may_not_take_the_session_of_a_bridge() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let near = Broker::bridged(far.address, "", TOPICS);
    for (version, refused) in [(V5, 0x85), (V311, 2)] {
        let mut client = RawClient::open(near.address(), version);
        client.send(&Connect::new(version, "$bridge/far").encode());
        assert_eq!(client.expect_connack().code, refused);
    }
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 1)]);
    writer.deliver(&Message::new("sensors/1", "still there").qos(1));
    assert_eq!(take(&mut reader, 1), [("plant-7/sensors/1".to_owned(), "still there".to_owned())]);
}

#[test]
fn a_reload_begins_and_ends_a_bridge_and_what_waits_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let far = Mosquitto::start(directory.path(), "allow_anonymous true\n");
    let mut near = Broker::bridged(far.address, "", TOPICS);
    near.configure("");
    near.process().signal(Signal::HUP);
    near.says("bridge.removed");
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 1)]);
    for number in 0..3 {
        writer.deliver(&Message::new("sensors/1", number.to_string()).qos(1));
    }
    near.configure(&bridge(&format!("mqtt://{}", far.address), "", TOPICS));
    near.process().signal(Signal::HUP);
    near.says("bridge.established");
    let payloads: Vec<String> = take(&mut reader, 3).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(payloads, ["0", "1", "2"]);
}

#[test]
fn a_bridge_by_tls_shows_its_certificate_and_looks_at_that_of_the_other_broker() {
    let (directory, pki, other) =
        (tempfile::tempdir().expect("a directory"), Pki::new(), Pki::named("another"));
    let identity = pki.client("bridge");
    pki.write("bridge.pem", &identity.pem);
    pki.write("bridge.key", &identity.key.serialize_pem());
    let tls = format!(
        "certfile {}\nkeyfile {}\ncafile {}\nrequire_certificate true\n",
        pki.text_path("server.pem"),
        pki.text_path("server.key"),
        pki.text_path("ca.pem"),
    );
    let far = Mosquitto::start_listeners(directory.path(), &["", &tls], "allow_anonymous true\n");
    let port = far.addresses[1].port();
    let keys = |ca: &str, server_name: &str| {
        let (certificate, key) = (pki.text_path("bridge.pem"), pki.text_path("bridge.key"));
        format!("ca = \"{ca}\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n{server_name}")
    };
    let address = format!("tls://localhost:{port}");
    let mut near = Broker::started(&bridge(&address, &keys(&other.text_path("ca.pem"), ""), TOPICS));
    let line = near.says("bridge.not_connected");
    assert!(line.contains("the TLS handshake failed: invalid peer certificate: UnknownIssuer"), "{line}");
    let wrong = "server_name = \"elsewhere.example\"\n";
    near.configure(&bridge(&address, &keys(&pki.text_path("ca.pem"), wrong), TOPICS));
    near.process().signal(Signal::HUP);
    near.says("not valid for name \"elsewhere.example\"");
    near.configure(&bridge(&address, &keys(&pki.text_path("ca.pem"), ""), TOPICS));
    near.process().signal(Signal::HUP);
    near.says("bridge.established");
    let mut reader = subscriber(far.address, V5, "reader", &[("plant-7/#", 1)]);
    let mut writer = RawClient::connect(near.address(), &Connect::new(V5, "writer"));
    writer.deliver(&Message::new("sensors/1", vec![b'x'; 200_000]).qos(1));
    assert_eq!(take(&mut reader, 1)[0].1.len(), 200_000);
}

#[test]
fn a_broker_that_breaks_the_protocol_is_left_for_the_reason_and_no_client_is_touched() {
    const ACCEPTED: [u8; 5] = [0x20, 3, 0, 0, 0];
    let with = |behind: &[u8]| [&ACCEPTED, behind].concat();
    // Three messages of QoS 2, of which the bridge takes two.
    let begun = |id: u8| [&[0x34, 22, 0, 16], "plant-7/orders/1".as_bytes(), &[0, id, 0, b'x']].concat();
    let beyond = [1, 2, 3].map(begun).concat();
    let cases = [
        (vec![], "no CONNACK within connect_timeout"),
        (vec![0xFF; 16], "what is no CONNACK"),
        (vec![0x20, 0xFF, 0xFF, 0xFF, 0x7F], "what is no CONNACK"),
        (vec![0x20, 3, 0, 0x87, 0], "refuse"),
        (vec![0x40, 2, 0, 1], "PUBACK in place of CONNACK"),
        // 16,383 bytes of properties, of which four come.
        (vec![0x20, 0xFF, 0x7F, 0, 0, 0xFC, 0x7F, 0x1F, 0], "no CONNACK within connect_timeout"),
        (with(&[0x90, 4, 0xFF, 0xFF, 0, 0]), "a SUBACK with 1 reason codes for 2 filters"),
        (with(&[0x00, 0]), "the other broker sent what is no packet"),
        (with(&[0xF0, 0]), "AUTH, which no broker may send"),
        (with(&ACCEPTED), "CONNACK, which no broker may send"),
        // PUBACK of nothing is passed over: it may belong to a packet that was sent twice.
        (with(&[0x40, 2, 0, 9, 0xC0, 0]), "PINGREQ, which no broker may send"),
        (with(&beyond), "Receive Maximum"),
        (with(&[0x90, 6, 0xFF, 0xFF, 0, 0, 0, 0]), "a SUBACK with 3 reason codes for 2 filters"),
        (with(&[0x10, 0]), "the other broker sent what is no packet"),
        (with(&[0xC0, 0]), "PINGREQ, which no broker may send"),
        (with(&[0xE0, 1, 0x8B]), "the other broker disconnects"),
    ];
    let (far, _open) = answering(cases.iter().map(|(bytes, _)| bytes.clone()).collect());
    let keys = "version = \"5.0\"\nconnect_timeout = \"2s\"\n";
    let bridge = bridge(&format!("mqtt://{far}"), keys, TOPICS);
    let mut near = Broker::started(&format!("[limits]\nreceive_maximum = 2\n{bridge}"));
    let mut client = RawClient::connect(near.address(), &Connect::new(V5, "client"));
    client.subscribe(&[("t", 1)]);
    for (_, reason) in cases {
        let line = near.says("bridge.not_connected");
        assert!(line.contains(reason), "{reason}: {line}");
        client.deliver(&Message::new("t", "still served").qos(1));
        take(&mut client, 1);
    }
}

/// Listens as another broker. Each connection gets the next of these answers to its first request, and
/// stays open as long as the thread that is returned is known.
pub fn answering(answers: Vec<Vec<u8>>) -> (SocketAddr, JoinHandle<Vec<TcpStream>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let far = std::thread::spawn(move || {
        let mut open = Vec::new();
        for bytes in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 1_024]).expect("a request");
            stream.write_all(&bytes).expect("room");
            open.push(stream);
        }
        open
    });
    (address, far)
}

/// Publishes on both sides of a bridge. Returns what a subscriber of each side gets: topic, payload
/// and QoS.
fn exchanged(near: SocketAddr, far: SocketAddr) -> [Vec<(String, String, u8)>; 2] {
    let name = format!("at-{}", near.port());
    let mut writers = [near, far].map(|side| RawClient::connect(side, &Connect::new(V311, &name)));
    let mut probe = RawClient::connect(near, &Connect::new(V311, "probe"));
    probe.subscribe(&[("alarms/ready", 0)]);
    until("what comes in by the bridge", || {
        writers[1].deliver(&Message::new("alarms/ready", "").qos(1));
        probe.drain().pop()
    });
    let mut readers = [near, far].map(|side| subscriber(side, V311, &format!("{name}-reader"), &[("#", 2)]));
    for qos in 0..3 {
        for (side, writer) in writers.iter_mut().enumerate() {
            for topic in
                ["sensors/1", "orders/1", "plant-7/sensors/1", "plant-7/orders/1", "alarms/1", "other"]
            {
                writer.deliver(&Message::new(topic, format!("{side} {qos}")).qos(qos));
            }
        }
    }
    for (side, writer) in writers.iter_mut().enumerate() {
        writer.deliver(&Message::new("alarms/last", side.to_string()).qos(1));
    }
    // Of each side its 6 topics, and of the other side `alarms/1` and one topic of one direction, by
    // each QoS; and what is last of either side, which may pass messages of QoS 2.
    let whole = (6 + 2) * 3 + 2;
    readers.each_mut().map(|reader| {
        let (mut all, mut last) = (Vec::new(), 0);
        while last < 2 || all.len() < whole {
            let publish = reader.expect_publish();
            reader.complete(&publish);
            let Publish { topic, payload, qos, .. } = publish;
            last += usize::from(topic == "alarms/last");
            if topic != "alarms/ready" {
                all.push((topic, String::from_utf8_lossy(&payload).into_owned(), qos));
            }
        }
        all.sort();
        all
    })
}

#[test]
fn an_imported_bridge_brings_what_the_bridge_of_mosquitto_brought() {
    let directories = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    let [far, near, imported] = directories.each_ref().map(tempfile::TempDir::path);
    let far = Mosquitto::start(far, "allow_anonymous true\n");
    let bridge = format!(
        "allow_anonymous true\nconnection cloud\naddress {}\nremote_clientid plant\ncleansession false\n\
         notifications false\nbridge_protocol_version mqttv311\ntopic sensors/# out 1 \"\" plant-7/\n\
         topic orders/# in 2 \"\" plant-7/\ntopic alarms/# both 1\n",
        far.address
    );
    let near = Mosquitto::start(near, &bridge);
    let before = exchanged(near.address, far.address);
    let (configuration, address) = (near.configuration.clone(), near.address);
    // Both would be the client `plant` at the other broker.
    drop(near);
    let file = imported.join("mosquitto.conf");
    fs::write(&file, configuration).expect("a file");
    let output =
        Command::new(env!("CARGO_BIN_EXE_homing")).arg("import").arg(&file).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(imported.join("homing.toml"), output.stdout).expect("a file");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_homing"));
    serve
        .env("HOMING_ADMIN__ADDRESSES", "off")
        .arg("serve")
        .arg("--config")
        .arg(imported.join("homing.toml"));
    let (_homing, near) = Process::serve(serve.arg("--data-dir").arg(imported.join("data")));
    assert_eq!(near, address);
    assert_eq!(exchanged(near, far.address), before);
}

/// Messages that one side gets between two kills, each with its number.
const BATCH: usize = 200;

/// Messages that a writer sends at a time.
const WINDOW: usize = 20;

/// Publishes numbered messages, some at a time, and waits until the broker has all of them. Odd ones
/// have QoS 1 and the topic `TOPIC/1`, even ones QoS 2 and `TOPIC/0`.
fn publish_batch(address: SocketAddr, topic: &str, from: usize) {
    let mut writer = RawClient::connect(address, &Connect::new(V5, &format!("writer-{from}")));
    for first in (from..from + BATCH).step_by(WINDOW) {
        let publish = |number: usize| {
            let (topic, qos) =
                (format!("{topic}/{}", number % 2), if number.is_multiple_of(2) { 2 } else { 1 });
            Message::new(&topic, number.to_string()).qos(qos)
        };
        let ids: Vec<u16> = (first..first + WINDOW).map(|number| writer.publish(&publish(number))).collect();
        let (twos, ones): (Vec<_>, Vec<_>) = (first..).zip(ids).partition(|(number, _)| number % 2 == 0);
        let mut answers = ones.into_iter().map(|one| (one, Kind::Puback)).collect::<Vec<_>>();
        answers.extend(twos.iter().map(|two| (*two, Kind::Pubrec)));
        answers.sort_by_key(|((number, _), _)| *number);
        answers.into_iter().for_each(|((_, id), kind)| drop(writer.expect_ack(kind, id)));
        twos.iter().for_each(|(_, id)| writer.ack(Kind::Pubrel, *id));
        twos.iter().for_each(|(_, id)| drop(writer.expect_ack(Kind::Pubcomp, *id)));
    }
}

/// Reads a stored session of a QoS 2 subscriber until it has all numbers below `all`: those of QoS 2
/// once, and those of QoS 1 in their order where they come first.
fn check_numbers(address: SocketAddr, all: usize) {
    let mut reader = RawClient::connect(address, &Connect::persistent(V5, "reader"));
    let (mut next, mut twice) = ([0, 1], 0);
    let mut has = |next: &mut [usize; 2], payload: &str| {
        let number: usize = payload.parse().expect("a number");
        let next = &mut next[number % 2];
        if number == *next {
            *next += 2;
            return;
        }
        assert!(number < *next, "{number} comes before {next}, which is acknowledged");
        assert!(number % 2 == 1, "{number} of QoS 2 comes twice");
        twice += 1;
    };
    while next.iter().any(|next| *next < all) {
        let (_, payload) = take(&mut reader, 1).remove(0);
        has(&mut next, &payload);
    }
    // A repetition would come behind.
    for publish in reader.drain() {
        has(&mut next, &String::from_utf8_lossy(&publish.payload));
    }
    println!("{all} messages, of which {twice} came once more");
}

// `BRIDGE_ROUNDS=200` kills a side 200 times.
#[test]
fn what_either_side_acknowledged_arrives_once_and_in_order_though_both_are_killed() {
    let rounds: usize = std::env::var("BRIDGE_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number"));
    let mut far = Broker::started("");
    let topics = "[[bridges.topics]]\ndirection = \"out\"\nfilter = \"up/#\"\nqos = 2\n\
                  [[bridges.topics]]\ndirection = \"in\"\nfilter = \"down/#\"\nqos = 2\n";
    let mut near = Broker::bridged(far.address(), "", topics);
    drop(subscriber(far.address(), V5, "reader", &[("up/#", 2)]));
    drop(subscriber(near.address(), V5, "reader", &[("down/#", 2)]));
    for round in 0..rounds {
        publish_batch(near.address(), "up", round * BATCH);
        publish_batch(far.address(), "down", round * BATCH);
        // The batches are on their way between the two brokers now, and nobody knows how far.
        if round % 3 != 1 {
            far.process().kill();
        }
        if round % 3 != 0 {
            near.process().kill();
            near.start();
        }
        if round % 3 != 1 {
            far.start();
        }
        near.says("bridge.established");
    }
    let all = rounds * BATCH;
    check_numbers(far.address(), all);
    check_numbers(near.address(), all);
}
