//! Listeners with clients and limits of their own.

use crate::kit;
use crate::support::{Connect, V5, password_file};
use homing::broker::Broker;
use homing::config::{Anonymous, ByteSize, Listener, Sources};
use homing::mqtt::packet::ProtocolVersion;
use std::io::Write;
use std::time::Duration;

/// Returns a 5.0 CONNECT with Clean Start and this Keep Alive.
fn connect(client_id: &str, user: Option<&str>, keep_alive: u16) -> Vec<u8> {
    let connect = Connect::new(V5, client_id).keep_alive(keep_alive);
    user.into_iter().fold(connect, Connect::user_name).encode()
}

/// Returns the body of the CONNACK at a listener.
fn connack(broker: &Broker, listener: usize, connect: &[u8]) -> Vec<u8> {
    let mut socket = kit::dial(broker.addresses()[listener]);
    socket.write_all(connect).expect("open");
    let (first, body) = kit::packet(&mut socket);
    assert_eq!(first, 0x20);
    body
}

#[test]
fn anonymous_clients_enter_by_one_listener_and_not_by_the_other() {
    let closed = Listener { anonymous: Some(Anonymous::Never), ..kit::listener() };
    let broker = kit::start(vec![kit::listener(), closed]);
    // Several clients, because sessions live in two shards.
    for client_id in ["a", "b", "c", "d"] {
        assert_eq!(connack(&broker, 0, &connect(client_id, None, 0))[1], 0);
        assert_eq!(connack(&broker, 1, &connect(client_id, None, 0))[1], 0x87);
    }
}

#[test]
fn a_listener_without_methods_does_not_ask_for_the_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("passwd");
    std::fs::write(&file, "").expect("a writable folder");
    let open = Listener { auth: Some(Vec::new()), anonymous: Some(Anonymous::Always), ..kit::listener() };
    let broker = kit::start_with(vec![kit::listener(), open], |config| {
        config.auth.password_file = file.to_str().expect("UTF-8").to_owned();
    });
    let claim = connect("c", Some("ann"), 0);
    assert_eq!(connack(&broker, 0, &claim)[1], 0x87, "no such user");
    assert_eq!(connack(&broker, 1, &claim)[1], 0, "the name counts as it is");
}

#[test]
fn a_listener_has_a_password_file_of_its_own_and_a_reload_reads_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let write = |name, text: &str| std::fs::write(path(name), text).expect("a writable folder");
    write("people", &password_file(&[("ann", "a")]));
    write("devices", &password_file(&[("ann", "b"), ("pump", "p")]));
    let own = Listener {
        name: Some("devices".to_owned()),
        password_file: Some(path("devices")),
        ..kit::listener()
    };
    let broker = kit::start_with(vec![kit::listener(), own], |config| {
        config.auth.password_file = path("people");
    });
    let login = |listener, user, password| {
        let mut socket = kit::dial(broker.addresses()[listener]);
        socket.write_all(&kit::login(user, user, password)).expect("open");
        (kit::packet(&mut socket).1[1], socket)
    };
    // Several times, because sessions live in two shards, and because logins are remembered.
    for _ in 0..2 {
        for (listener, user, password, code) in [
            (0, "ann", "a", 0),
            (0, "ann", "b", 5),
            (0, "pump", "p", 5),
            (1, "ann", "a", 5),
            (1, "pump", "p", 0),
        ] {
            assert_eq!(login(listener, user, password).0, code, "{user} at {listener}");
        }
    }
    let (_, mut person) = login(0, "ann", "a");
    let (_, mut pump) = login(1, "pump", "p");
    write("devices", "pump:plain\n");
    let error = broker.reload().expect_err("a broken file");
    assert!(error.contains("devices:1: ") && error.ends_with("(password_file of [[listeners]])"), "{error}");
    write("devices", &password_file(&[("ann", "a")]));
    let what = broker.reload().expect("sound files");
    let of_broker = "passwords (auth.password_file, ";
    assert!(
        what.starts_with(of_broker)
            && what.contains(") as before: 1 user; passwords (password_file of listener devices, "),
        "{what}"
    );
    assert!(
        what.ends_with("devices) changed: 1 user, had 2 users; 1 client disconnected (1 by passwords)"),
        "{what}"
    );
    assert!(kit::is_closed(&mut pump), "a user who left the file of its listener is disconnected");
    person.write_all(&[0xC0, 0]).expect("open");
    assert_eq!(kit::packet(&mut person).0, 0xD0, "others stay");
    assert_eq!([login(1, "pump", "p").0, login(1, "ann", "a").0], [5, 0]);
}

#[test]
fn a_listener_admits_the_versions_that_it_names() {
    let own = Listener { versions: Some(vec![ProtocolVersion::V3_1_1]), ..kit::listener() };
    let broker = kit::start(vec![own, kit::listener()]);
    let old = |listener: usize| {
        let mut socket = kit::dial(broker.addresses()[listener]);
        socket.write_all(kit::CONNECT).expect("open");
        kit::packet(&mut socket).1[1]
    };
    let new = connect("c", None, 0);
    assert_eq!([old(0), connack(&broker, 0, &new)[1]], [0, 0x84]);
    assert_eq!([old(1), connack(&broker, 1, &new)[1]], [0, 0]);
}

#[test]
fn client_ids_have_the_form_that_their_listener_demands() {
    let own = Listener { client_id: Some("%u-*".to_owned()), ..kit::listener() };
    // Otherwise a name that nothing verifies does not count.
    let broker = kit::start_with(vec![own, kit::listener()], |config| {
        config.auth.anonymous = Anonymous::Always;
    });
    for (client_id, user, reason) in [
        ("ann-phone", Some("ann"), 0),
        ("ann-", Some("ann"), 0),
        ("anna-phone", Some("ann"), 0x85),
        ("bob-phone", Some("ann"), 0x85),
        ("ann-phone", None, 0x85),
        // The broker chooses one that nobody has.
        ("", Some("ann"), 0),
    ] {
        let request = connect(client_id, user, 0);
        assert_eq!(connack(&broker, 0, &request)[1], reason, "{client_id} {user:?}");
        assert_eq!(connack(&broker, 1, &request)[1], 0, "{client_id} {user:?}");
    }
}

#[test]
fn packet_size_and_keep_alive_are_those_of_the_listener() {
    let narrow = Listener {
        packet_size: Some(ByteSize::kib(1)),
        keep_alive_maximum: Some(Duration::from_secs(30)),
        ..kit::listener()
    };
    let broker = kit::start(vec![narrow, kit::listener()]);
    let has = |body: &[u8], property: &[u8]| body.windows(property.len()).any(|part| part == property);
    let told = [connack(&broker, 0, &connect("c", None, 60)), connack(&broker, 1, &connect("c", None, 60))];
    assert!(has(&told[0], &[0x27, 0, 0, 4, 0]) && has(&told[0], &[0x13, 0, 30]), "{told:?}");
    assert!(has(&told[1], &[0x27, 0, 0x20, 0, 0]) && !has(&told[1], &[0x13, 0, 30]), "{told:?}");
    let [narrow, wide] = broker.addresses() else { panic!("two listeners") };
    let payload = vec![7; 2_000];
    let mut refused = kit::dial(*narrow);
    kit::connect(&mut refused);
    kit::publish(&mut refused, &payload);
    assert!(kit::is_closed(&mut refused));
    let mut accepted = kit::dial(*wide);
    kit::connect(&mut accepted);
    kit::publish(&mut accepted, &payload);
    assert_eq!(kit::packet(&mut accepted), (0x40, vec![0, 2]));
}

#[test]
fn a_listener_has_an_acl_file_of_its_own_and_a_reload_reads_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("devices.acl");
    std::fs::write(&file, "topic read a\n").expect("a writable folder");
    let acl_file = Some(file.to_str().expect("UTF-8").to_owned());
    let own = Listener { acl_file, name: Some("devices".to_owned()), ..kit::listener() };
    let broker = kit::start(vec![kit::listener(), own]);
    let suback = |listener: usize, filter: u8| {
        let mut socket = kit::dial(broker.addresses()[listener]);
        kit::connect(&mut socket);
        socket.write_all(&[0x82, 6, 0, 1, 0, 1, filter, 0]).expect("open");
        kit::packet(&mut socket).1
    };
    assert_eq!([suback(0, b'b'), suback(1, b'a'), suback(1, b'b')], [[0, 1, 0], [0, 1, 0], [0, 1, 0x80]]);
    std::fs::write(&file, "topic see b\n").expect("a writable folder");
    let error = broker.reload().expect_err("a broken file");
    assert!(error.contains("devices.acl:1: ") && error.ends_with("(acl_file of [[listeners]])"), "{error}");
    std::fs::write(&file, "topic read b\n").expect("a writable folder");
    let named = format!("acl (acl_file of listener devices, {})", file.display());
    assert_eq!(
        broker.reload().expect("a sound file"),
        format!("{named} changed: rules for 0 users; no client disconnected")
    );
    assert_eq!([suback(1, b'a'), suback(1, b'b')], [[0, 1, 0x80], [0, 1, 0]]);
}

#[test]
fn a_connect_is_not_larger_than_limits_connect_size() {
    let broker = kit::start(vec![kit::listener()]);
    let mut socket = kit::dial(broker.addresses()[0]);
    // The fixed header says 65,537 bytes.
    socket.write_all(&[0x10, 0xFE, 0xFF, 0x03]).expect("open");
    assert!(kit::is_closed(&mut socket));
}

#[test]
fn what_a_listener_needs_of_other_sections_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.toml");
    let text = r#"
[limits]
memory = "64 MiB"
[[listeners]]
address = "127.0.0.1:1883"
auth = ["password"]
[[listeners]]
address = "127.0.0.1:1884"
packet_size = "128 MiB"
[[listeners]]
address = "127.0.0.1:1885"
auth = ["scram", "http"]
[[listeners]]
address = "127.0.0.1:1886"
auth = ["certificate"]
password_file = "devices"
[[listeners]]
address = "127.0.0.1:1887"
auth = ["password"]
password_file = "devices"
"#;
    std::fs::write(&path, text).expect("a writable folder");
    let refusal = Sources::new().file(&path).load().expect_err("several mistakes");
    let problems: Vec<String> = refusal.0.iter().map(ToString::to_string).collect();
    for (place, what) in [
        ("listener 1: auth", "auth.password_file: the method \"password\" needs a password file"),
        ("listener 2: packet_size", "limits.memory"),
        ("listener 3: auth", "auth.password_file: the method \"scram\" needs a password file"),
        ("listener 3: auth", "auth.http_url: the method \"http\" needs the address of a service"),
        ("listener 4: password_file", "only the methods \"password\" and \"scram\" read it"),
    ] {
        let is_named = |problem: &String| problem.contains(place) && problem.contains(what);
        assert!(problems.iter().any(is_named), "{what}: {problems:#?}");
    }
    assert_eq!(problems.len(), 5, "{problems:#?}");
}

#[test]
fn a_listener_may_lift_the_limits_of_the_broker() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("homing.toml");
    let text = r#"
[[listeners]]
address = "127.0.0.1:1883"
connects_per_second = "unlimited"
messages_per_second = "unlimited"
bytes_per_second = "unlimited"
keep_alive_maximum = "unlimited"
"#;
    std::fs::write(&path, text).expect("a writable folder");
    let config = Sources::new().file(&path).load().expect("a right file").config;
    let [listener] = &config.listeners[..] else { panic!("{:?}", config.listeners) };
    assert_eq!((listener.connects_per_second, listener.messages_per_second), (Some(0), Some(0)));
    assert_eq!(listener.bytes_per_second, Some(ByteSize(0)));
    assert_eq!(listener.keep_alive_maximum, Some(Duration::ZERO));
    let strict = Sources::new().file(&path).assignment("keep_alive.allow_never=false");
    let refusal = strict.assignment("keep_alive.maximum=60s").load().expect_err("a contradiction");
    assert!(refusal.to_string().contains("listener 1: keep_alive_maximum"), "{refusal}");
}
