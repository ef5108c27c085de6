//! `homing import mosquitto.conf`: the result is a configuration that Homing accepts, and nothing
//! that protects is lost in silence.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn homing(directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    let output = command.args(arguments).current_dir(directory).env_clear().output();
    let Output { status, stdout, stderr } = output.expect("the binary was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Imports a text. If something is printed, Homing must accept it as its configuration.
fn import(text: &str, arguments: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("mosquitto.conf"), text).expect("a file");
    let imported = homing(directory.path(), &[&["import", "mosquitto.conf"], arguments].concat());
    if imported.code == Some(0) {
        fs::write(directory.path().join("homing.toml"), &imported.stdout).expect("a file");
        let checked =
            homing(directory.path(), &["check-config", "--without-files", "--config", "homing.toml"]);
        assert_eq!(checked.code, Some(0), "{}\n{}", checked.stderr, imported.stdout);
    }
    imported
}

#[test]
fn debians_file_is_translated() {
    // The file that Debian installs, with an included directory that is not there in the test.
    let text = "# Place your local configuration in /etc/mosquitto/conf.d/\n\npid_file /run/mosquitto/mosquitto.pid\n\n\
                persistence true\npersistence_location /var/lib/mosquitto/\n\nlog_dest file /var/log/mosquitto/mosquitto.log\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("path = \"/var/lib/mosquitto/homing\""), "{}", outcome.stdout);
    for needed in
        ["differs: mosquitto.conf:3: pid_file: ", "differs: mosquitto.conf:8: log_dest: ", "mosquitto.db"]
    {
        assert!(outcome.stderr.contains(needed), "{needed} is missing:\n{}", outcome.stderr);
    }
    // Without a listener mosquitto is for this machine alone, as Homing is.
    assert!(
        !outcome.stdout.contains("[[listeners]]") && !outcome.stdout.contains("anonymous"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn users_limits_and_tls_are_translated() {
    let text = "listener 1883 127.0.0.1\nmax_connections 100\nmount_point tenant/\nlistener 8883 0.0.0.0\r\ncafile /etc/ca.pem\n\
                certfile /etc/server.pem\nkeyfile /etc/server.key\nrequire_certificate true\ncrlfile /etc/ca.crl\n\
                tls_version tlsv1.3\ndisable_client_cert_date_checks true\n\
                password_file /etc/mosquitto/passwd\nacl_file /etc/mosquitto/acl\nmax_inflight_messages 0\nmax_queued_messages 5000\n\
                max_packet_size 1000000\nmax_keepalive 600\npersistent_client_expiration 2w\nsys_interval 0\n\
                retry_interval 30\nlog_type error\nlog_type warning\nmemory_limit 1000000000\n";
    let outcome = import(text, &[]);
    assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(0), 2), "{}", outcome.stderr);
    for needed in ["max_keepalive: mosquitto 2.0 does not bound", "retry_interval: mosquitto 2 ignores it"] {
        assert!(outcome.stderr.contains(needed), "{}", outcome.stderr);
    }
    for needed in [
        "anonymous = \"never\"",
        "methods = [\"password\"]",
        "password_file = \"/etc/mosquitto/passwd\"",
        "file = \"/etc/mosquitto/acl\"\non_denied_subscribe = \"filter\"",
        "in_flight = 65535",
        "queue_messages = 5000",
        "packet_size = \"1000000 B\"",
        "session_expiry = \"336h\"",
        "maximum = \"600s\"\nallow_never = false",
        "publish_interval = \"off\"",
        "level = \"warn\"",
        "durability = \"none\"",
        "[[listeners]]\naddress = \"127.0.0.1:1883\"\nmount_point = \"tenant/\"\nconnections = 100\n",
        "address = \"0.0.0.0:8883\"\n[listeners.tls]\ncertificates = [{ certificate = \"/etc/server.pem\", key = \
         \"/etc/server.key\", chain = \"/etc/ca.pem\" }]\n# mosquitto does not check the protocols that clients offer (ALPN).\nalpn = []\n\
         client_certificates = \"required\"\nclient_ca = \"/etc/ca.pem\"\ncrl = [\"/etc/ca.crl\"]\nminimum = \
         \"1.3\"\ncertificate_user = \"none\"\ncertificate_dates = false\n",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
}

#[test]
fn lost_protection_ends_the_import() {
    for (text, needed) in [
        ("psk_file /etc/psk\n", "LOST: mosquitto.conf:1: psk_file: "),
        ("plugin /usr/lib/mosquitto_dynamic_security.so\n", "Homing loads no plugins"),
        ("plugin_load a /usr/lib/mosquitto_dynamic_security.so\n", "Homing loads no plugins"),
        (
            "plugin x.so\nplugin_opt_config_file a\n",
            "mosquitto.conf:2: plugin_opt_config_file: Homing loads no plugins",
        ),
        ("plugin_opt_acl_file a\n", "stands behind no plugin"),
        ("plugin mosquitto_acl_file.so\nplugin_opt_acl a\n", "plugin_opt_acl: Homing has no such option"),
        ("plugin mosquitto_acl_file.so\n", "mosquitto.conf:1: plugin: needs plugin_opt_acl_file"),
        ("listener 1883\nplugin_use a\n", "no plugin_load has this name"),
        ("acl_file a\nplugin mosquitto_acl_file.so\nplugin_opt_acl_file b\n", "mosquitto asks a and b"),
        (
            "password_file a\nplugin_load p mosquitto_password_file.so\nplugin_opt_password_file b\nlistener 1883\n\
             plugin_use p\n",
            "mosquitto asks b and a there",
        ),
        ("connection cloud\naddress example.org\n", "connection: a bridge needs an address and a topic"),
        ("topic a\n", "mosquitto.conf:1: topic: stands before the first `connection`"),
        ("connection cloud\ntopic \"\" out 0 a b\n", "topic: Homing needs a filter"),
        ("connection cloud\nremote_password secret\n", "Homing reads the password from a file"),
        ("connection cloud\nbridge_insecure true\n", "Homing always checks the certificate"),
        ("connection cloud\nstart_type once\n", "start_type: Homing connects again when a connection ends"),
        ("connection cloud\nnotification_topic a/+\n", "notification_topic: \"a/+\" is no topic"),
        (
            "connection cloud\nbridge_outgoing_retain false\n",
            "bridge_outgoing_retain: Homing passes RETAIN on",
        ),
        ("listener 9001\nprotocol http_api\n", "mosquitto.conf:2: protocol: "),
        ("listener 1883\nmount_point a\n", "mosquitto.conf:2: mount_point: must be the beginning of topics"),
        (
            "clientid_prefixes sec*re-\n",
            "mosquitto.conf:1: clientid_prefixes: must be a text without * and %",
        ),
        ("clientid_prefixes %u-\n", "mosquitto.conf:1: clientid_prefixes: must be a text without * and %"),
        ("listener 0\n", "needs the path of a Unix socket"),
        ("max_qos 1\n", "mosquitto.conf:1: max_qos: Homing accepts every QoS"),
        ("allow_zero_length_clientid false\n", "Homing gives a client without identifier one"),
        ("port 0\n", "mosquitto.conf:1: port: must be 1 to 65535"),
        ("max_packet_size 40\n", "max_packet_size: 40 is below 1024, the least that Homing takes"),
        ("max_queued_bytes 100\n", "max_queued_bytes: 100 is below 1024, the least that Homing takes"),
        ("memory_limit 100\n", "memory_limit: 100 is below 1024, the least that Homing takes"),
        ("message_size_limit 268435456\n", "message_size_limit: 268435456 is no size of a message"),
        ("max_keepalive 70000\n", "max_keepalive: \"70000\" is not a number that mosquitto or Homing takes"),
        ("sys_interval 100000\n", "sys_interval: \"100000\" is not a number that mosquitto or Homing takes"),
        ("persistent_client_expiration 0d\n", "must be above 0"),
        (
            "listener 1883 ::1\nenable_proxy_protocol 2\nrequire_certificate true\n",
            "behind a proxy Homing demands a certificate only where its name is the user name",
        ),
        (
            "listener 1883 ::1\nenable_proxy_protocol 1\nrequire_certificate true\n",
            "version 1 of the PROXY protocol says nothing of certificates",
        ),
        (
            "listener 1883 ::1\nenable_proxy_protocol 2\ncertfile a\nkeyfile b\n",
            "mosquitto takes no certfile, keyfile and use_subject_as_username beside enable_proxy_protocol",
        ),
        ("listener 1883 eth0.local\n", "is not an IP address"),
        ("allow_anonymus true\n", "mosquitto has no such option"),
        ("listener 8883\ncertfile a.pem\n", "both certfile and keyfile"),
        ("allow_anonymous maybe\n", "must be true or false"),
        ("accept_protocol_versions 4, 6\n", "must be a list of 3, 4 and 5"),
        ("listener eighteen\n", "is not a number"),
    ] {
        let outcome = import(text, &[]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{text}");
        assert!(outcome.stderr.contains(needed), "{needed} is missing:\n{}", outcome.stderr);
        let lenient = import(text, &["--lenient"]);
        assert_eq!((lenient.code, lenient.stdout.is_empty()), (Some(0), false), "{text}");
        assert!(lenient.stderr.contains(needed), "{}", lenient.stderr);
    }
}

#[test]
fn what_homing_refuses_is_lost() {
    let outcome = import("listener 1883 ::1\nlistener 1883 ::1\n", &[]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""));
    let needed = "LOST: the result: listeners, listener 2: address = \"[::1]:1883\" is not allowed";
    assert!(outcome.stderr.contains(needed), "{}", outcome.stderr);
}

#[test]
fn limits_are_translated_within_the_bounds_of_homing() {
    for (text, printed, noted) in [
        ("message_size_limit 1\n", "payload_size = \"1 B\"\n", ""),
        ("message_size_limit 3000000\n", "packet_size = \"3131072 B\"\npayload_size = \"3000000 B\"\n", ""),
        (
            "message_size_limit 3000\nmax_packet_size 2000\n",
            "packet_size = \"2000 B\"\npayload_size = \"3000 B\"\n",
            "",
        ),
        ("max_packet_size 300000000\n", "packet_size = \"267386880 B\"\n", "Homing takes 267386880 at most"),
        (
            "max_packet_size 2000000\nmemory_limit 1000000\n",
            "packet_size = \"1000000 B\"\nmemory = \"1000000 B\"\n",
            "limits.packet_size is at most limits.memory in Homing: 1000000 B",
        ),
        ("max_topic_alias 0\n", "topic_alias_maximum = \"off\"\n", ""),
        (
            "listener 1883 ::1\nmax_topic_alias 20\nlistener 1884 ::1\n",
            "topic_alias_maximum = 10\n",
            "max_topic_alias: Homing has one number for all listeners; the lowest counts, 10",
        ),
        ("listener 1883 ::1\nmax_connections 0\n", "address = \"[::1]:1883\"\n", ""),
        ("global_max_connections 0\nmax_queued_bytes 0\n", "[limits]\nsession_expiry", ""),
        ("max_inflight_messages -1\n", "in_flight = 65535\n", ""),
        ("retry_interval 0\n", "[limits]\nsession_expiry", "retry_interval: mosquitto 2 ignores it"),
        (
            "listener 0 27.sock\n",
            "address = \"unix:./27.sock\"\n",
            "the socket is in the directory in which Homing is started",
        ),
        (
            "listener 1883 ::1\nenable_proxy_protocol 2\nrequire_certificate true\nuse_identity_as_username true\n",
            "address = \"[::1]:1883\"\nproxy_protocol = \"v2\"\nproxy_tls = true\n",
            "",
        ),
    ] {
        let outcome = import(text, &[]);
        assert_eq!(outcome.code, Some(0), "{text}{}", outcome.stderr);
        assert!(outcome.stdout.contains(printed), "{text}{printed} is missing:\n{}", outcome.stdout);
        assert!(outcome.stderr.contains(noted), "{text}{noted} is missing:\n{}", outcome.stderr);
    }
}

#[test]
fn the_state_of_a_bridge_and_its_connections_are_translated() {
    let begin = "allow_anonymous true\nlistener 1883 ::1\nconnection cloud\naddress cloud.example\n\
                 remote_clientid plant\n";
    for (lines, printed, noted) in [
        ("topic a out 1\n", "notifications = true\n", ""),
        (
            "topic a out 1\nnotification_topic states/plant\n",
            "notifications = true\nnotification_topic = \"states/plant\"\n",
            "",
        ),
        (
            "topic a out 1\nnotifications_local_only true\n",
            "notifications = true\n",
            "notifications_local_only: Homing tells the other broker the state of the bridge, too",
        ),
        (
            "topic a out 1\nremote_clientid a+b\n",
            "client_id = \"a+b\"\n",
            "no topic can have the remote_clientid",
        ),
        (
            "topic a out 1\nstart_type lazy\nidle_timeout 30\nthreshold 5\n",
            "connect = \"on_demand\"\nidle_timeout = \"30s\"\n",
            "threshold: a bridge of Homing with connect = \"on_demand\" connects for the first message",
        ),
        (
            "topic a out 0\nstart_type lazy\nidle_timeout 30\n",
            "client_id = \"plant\"\n",
            "so the bridge is always connected",
        ),
        ("topic a in 1\nstart_type manual\n", "connect = \"manual\"\n", ""),
        (
            "topic a in 1\nbridge_alpn mqtt\nbridge_cafile /ca.pem\n",
            "ca = \"/ca.pem\"\nalpn = [\"mqtt\"]\n",
            "",
        ),
        (
            "topic a in 1\nbridge_max_packet_size 1000\nlocal_clientid local\n",
            "max_packet_size = \"1000 B\"\n",
            "local_clientid: the client identifier of a bridge's session here is $bridge/NAME",
        ),
    ] {
        let outcome = import(&format!("{begin}{lines}"), &[]);
        assert_eq!(outcome.code, Some(0), "{lines}{}", outcome.stderr);
        assert!(outcome.stdout.contains(printed), "{lines}{printed} is missing:\n{}", outcome.stdout);
        assert!(outcome.stderr.contains(noted), "{lines}{noted} is missing:\n{}", outcome.stderr);
    }
    let without = import(&format!("{begin}topic a out 1\nnotifications false\nnotification_topic a\n"), &[]);
    assert!(!without.stdout.contains("notification"), "{}", without.stdout);
}

#[test]
fn certificates_can_be_the_user_names() {
    let text = "listener 8883\ncafile ca.pem\ncertfile s.pem\nkeyfile s.key\nrequire_certificate true\n\
                use_identity_as_username true\nsocket_domain ipv6\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for needed in ["methods = [\"certificate\"]", "certificate_user = \"cn\"", "address = \"[::]:8883\""] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    // mosquitto looks neither at passwords nor at allow_anonymous then.
    let text = format!("allow_anonymous true\npassword_file passwd\n{text}use_subject_as_username false\n");
    let outcome = import(&text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for needed in ["anonymous = \"never\"\nmethods = [\"certificate\"]\n", "certificate_user = \"cn\""] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    let missing = import("listener 8883\nuse_identity_as_username true\n", &[]);
    assert!(missing.stderr.contains("needs require_certificate true"), "{}", missing.stderr);
}

#[test]
fn users_and_permissions_of_each_listener_are_translated() {
    let text = "per_listener_settings true\nlistener 1883 127.0.0.1\nallow_anonymous true\nacl_file /etc/open.acl\n\
                listener 1884 127.0.0.1\npassword_file /etc/passwd\nacl_file /etc/users.acl\n\
                listener 8883 127.0.0.1\ncafile ca.pem\ncertfile s.pem\nkeyfile s.key\nrequire_certificate true\n\
                use_identity_as_username true\n";
    let outcome = import(text, &[]);
    assert_eq!((outcome.code, outcome.stderr.contains("LOST")), (Some(0), false), "{}", outcome.stderr);
    for needed in [
        "[auth]\npassword_file = \"/etc/passwd\"\n",
        "[acl]\non_denied_subscribe = \"filter\"\n",
        "address = \"127.0.0.1:1883\"\nauth = []\nanonymous = \"always\"\nacl_file = \"/etc/open.acl\"\n",
        "address = \"127.0.0.1:1884\"\nauth = [\"password\"]\nanonymous = \"never\"\nacl_file = \"/etc/users.acl\"\n",
        "address = \"127.0.0.1:8883\"\nauth = [\"certificate\"]\nanonymous = \"never\"\n[listeners.tls]\n",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    // So are password files, if they differ.
    let text = "per_listener_settings true\nlistener 1883\npassword_file a\naccept_protocol_versions 4, 5\n\
                listener 1884\npassword_file b\n";
    let outcome = import(text, &[]);
    assert_eq!((outcome.code, outcome.stderr.contains("LOST")), (Some(0), false), "{}", outcome.stderr);
    for needed in [
        "auth = [\"password\"]\npassword_file = \"a\"\nanonymous = \"never\"\nversions = [\"3.1.1\", \"5.0\"]\n",
        "auth = [\"password\"]\npassword_file = \"b\"\nanonymous = \"never\"\n",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    assert!(!outcome.stdout.contains("[auth]"), "{}", outcome.stdout);
    // What all listeners have in common stands once.
    let text = "per_listener_settings true\nlistener 1883\nacl_file a\nlistener 1884\nacl_file a\n";
    let outcome = import(text, &[]);
    assert!(
        outcome.stdout.contains("file = \"a\"") && !outcome.stdout.contains("acl_file"),
        "{}",
        outcome.stdout
    );
    let text = "listener 1883\nlistener_allow_anonymous true\nlistener 1884\n";
    let outcome = import(text, &[]);
    let words = |word| outcome.stdout.matches(word).count();
    assert_eq!(
        (words("anonymous = \"always\""), words("anonymous = \"never\"")),
        (1, 1),
        "{}",
        outcome.stdout
    );
}

#[test]
fn names_that_nothing_verifies_have_other_rules_and_a_note() {
    // Per text: the options that are noted, and why.
    let verified = "because another listener verifies names";
    let open = "per_listener_settings true\nlistener 1883 ::1\nallow_anonymous true\n";
    let closed = "listener 1884 ::1\npassword_file passwd\n";
    let by_certificate = "listener 1884 ::1\ncafile ca.pem\ncertfile s.pem\nkeyfile s.key\nrequire_certificate true\n\
                          use_identity_as_username true\n";
    for (text, noted) in [
        (format!("{open}acl_file a\n{closed}"), Some(("mosquitto.conf:2: listener: ", verified))),
        (format!("{open}acl_file a\n{by_certificate}"), Some(("mosquitto.conf:2: listener: ", verified))),
        // All may do all, or nothing is verified.
        (format!("{open}{closed}acl_file a\n"), None),
        (format!("{open}acl_file a\n"), None),
        (format!("{open}acl_file a\nlistener 1884 ::1\nallow_anonymous true\n"), None),
        // Nobody may claim a name.
        (format!("per_listener_settings true\nlistener 1883 ::1\nacl_file a\n{closed}"), None),
        // Without a listener the clients of this machine may.
        ("acl_file a\n".to_owned(), Some(("", "unless auth.anonymous is \"always\""))),
        ("acl_file a\nallow_anonymous true\n".to_owned(), None),
        ("acl_file a\npassword_file b\n".to_owned(), None),
    ] {
        let outcome = import(&text, &[]);
        assert_eq!(outcome.code, Some(0), "{text}{}", outcome.stderr);
        let note = |(place, why): (&str, &str)| {
            format!(
                "homing: differs: {place}nothing verifies user names there: mosquitto gives them the rules of their names in acl_file, and Homing \
                 gives them those of clients without a user name, {why}"
            )
        };
        let found: Vec<&str> =
            outcome.stderr.lines().filter(|line| line.contains("nothing verifies")).collect();
        assert_eq!(found, noted.map(note).iter().map(String::as_str).collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn plugins_whose_work_homing_does_are_translated() {
    // mosquitto 2.1 has these in place of password_file, acl_file and persistence.
    let text = "plugin /usr/lib/mosquitto_password_file.so\nplugin_opt_password_file /etc/passwd file\n\
                plugin /usr/lib/mosquitto_acl_file.so\nplugin_opt_acl_file /etc/acl\n\
                global_plugin /usr/lib/mosquitto_persist_sqlite.so\n\
                plugin_opt_db_file /var/lib/mosquitto/mosquitto.sqlite3\nplugin_opt_sync full\nlistener 1883 127.0.0.1\n";
    let outcome = import(text, &[]);
    assert_eq!((outcome.code, outcome.stderr.contains("LOST")), (Some(0), false), "{}", outcome.stderr);
    for needed in [
        "password_file = \"/etc/passwd file\"\nanonymous = \"never\"\nmethods = [\"password\"]\n",
        "[acl]\nfile = \"/etc/acl\"\non_denied_subscribe = \"filter\"\n",
        "[store]\npath = \"/var/lib/mosquitto/homing\"\n",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    assert!(outcome.stderr.contains("mosquitto_persist_sqlite, are not carried over"), "{}", outcome.stderr);
    // One plugin at some listeners, another at one, and one that nobody uses.
    let text = "plugin_load acl mosquitto_acl_file.so\nplugin_opt_acl_file a\nplugin_load users mosquitto_password_file.so\n\
                plugin_load unused mosquitto_acl_file.so\nlistener 1883 127.0.0.1\nplugin_use acl\n\
                listener_allow_anonymous true\nlistener 1884 127.0.0.1\nplugin_use acl\nplugin_use users\n\
                plugin_opt_password_file b\nlistener 1885 127.0.0.1\nlistener_allow_anonymous true\n";
    let outcome = import(text, &[]);
    assert_eq!((outcome.code, outcome.stderr.contains("LOST")), (Some(0), false), "{}", outcome.stderr);
    for needed in [
        "[auth]\npassword_file = \"b\"\n",
        "address = \"127.0.0.1:1883\"\nauth = []\nanonymous = \"always\"\nacl_file = \"a\"\n",
        "address = \"127.0.0.1:1884\"\nauth = [\"password\"]\nanonymous = \"never\"\nacl_file = \"a\"\n",
        "address = \"127.0.0.1:1885\"\nauth = []\nanonymous = \"always\"\n",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    // With per_listener_settings a plugin is for its listener alone.
    let text = "per_listener_settings true\nlistener 1883 127.0.0.1\nplugin mosquitto_password_file.so\n\
                plugin_opt_password_file a\nlistener 1884 127.0.0.1\nallow_anonymous true\n";
    let outcome = import(text, &[]);
    for needed in ["auth = [\"password\"]\nanonymous = \"never\"\n", "auth = []\nanonymous = \"always\"\n"] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
}

#[test]
fn client_identifiers_stay_restricted_at_every_listener() {
    let text = "listener 1883 127.0.0.1\nlistener 1884 127.0.0.1\nclientid_prefixes secure-\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stdout.matches("\nclient_id = \"secure-*\"\n").count(), 2, "{}", outcome.stdout);
    let note = "differs: mosquitto.conf:3: clientid_prefixes: Homing answers 0x85";
    assert!(outcome.stderr.contains(note), "{}", outcome.stderr);
    // Without a listener mosquitto is for this machine alone.
    let outcome = import("clientid_prefixes secure-\n", &[]);
    let listener = "[[listeners]]\naddress = \"127.0.0.1:1883\"\nclient_id = \"secure-*\"\n";
    assert!(outcome.code == Some(0) && outcome.stdout.contains(listener), "{}", outcome.stdout);
}

#[test]
fn a_broker_that_retains_nothing_still_retains_nothing() {
    let outcome = import("retain_available false\n", &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("[limits]\nsession_expiry"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("retained_messages = \"off\"\n"), "{}", outcome.stdout);
    let note = "differs: mosquitto.conf:1: retain_available: mosquitto disconnects";
    assert!(outcome.stderr.contains(note), "{}", outcome.stderr);
    for text in ["retain_available true\n", "retain_available false\nretain_available true\n"] {
        let outcome = import(text, &[]);
        assert!(!outcome.stdout.contains("retained_messages"), "{}", outcome.stdout);
        assert!(!outcome.stderr.contains("retain_available"), "{}", outcome.stderr);
    }
}

#[test]
fn options_of_mosquitto_2_1_are_known() {
    let text = "listener 1883 127.0.0.1\nlistener_auto_id_prefix pre-\nmax_topic_alias_broker 15\nmaximum_qos 2\n\
                persistent_client_expiration 30s\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("session_expiry = \"30s\"\n"), "{}", outcome.stdout);
    for needed in [
        "differs: mosquitto.conf:2: listener_auto_id_prefix: client identifiers that Homing makes begin with homing-",
        "differs: mosquitto.conf:3: max_topic_alias_broker: Homing sends no topic aliases",
        "mosquitto 2.0 has no limit, and 2.1 refuses packets above 2,000,000 B",
    ] {
        assert!(outcome.stderr.contains(needed), "{needed} is missing:\n{}", outcome.stderr);
    }
}

#[test]
fn websockets_proxies_and_unix_sockets_are_translated() {
    let text = "allow_anonymous true\nlistener 9001 127.0.0.1\nprotocol websockets\nlistener 9002 127.0.0.1\nprotocol websockets\n\
                websockets_origin https://app.example.com\nlistener 1884 0.0.0.0\nenable_proxy_protocol 2\n\
                proxy_protocol_v2_require_tls true\nlistener 1885 127.0.0.1\nenable_proxy_protocol 1\n\
                listener 0 /run/mosquitto/mosquitto.sock\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for needed in [
        "address = \"127.0.0.1:9001\"\nprotocol = \"websocket\"\nwebsocket_path = \"*\"\norigins = [\"*\"]\n",
        "origins = [\"https://app.example.com\"]\n",
        "address = \"0.0.0.0:1884\"\nproxy_protocol = \"v2\"\nproxy_tls = true\ntrusted_proxies = [\"0.0.0.0/0\", \"::/0\"]\n",
        "address = \"127.0.0.1:1885\"\nproxy_protocol = \"v1\"\n\n",
        "address = \"unix:/run/mosquitto/mosquitto.sock\"",
    ] {
        assert!(outcome.stdout.contains(needed), "{needed} is missing:\n{}", outcome.stdout);
    }
    assert!(
        outcome.stderr.contains("mosquitto.conf:7: listener: mosquitto believes the PROXY header"),
        "{}",
        outcome.stderr
    );
    // The name in a PROXY header would give the client the rights of that user.
    let text = "listener 1884 127.0.0.1\nallow_anonymous true\nacl_file a\nenable_proxy_protocol 2\n\
                proxy_protocol_v2_require_tls true\n";
    let outcome = import(text, &[]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("only with use_identity_as_username"), "{}", outcome.stderr);
    assert_eq!(import(&format!("{text}password_file b\n"), &[]).code, Some(0));
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let outcome = homing(directory.path(), &["import", "none.conf"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("none.conf: cannot be read: "), "{}", outcome.stderr);
}
