//! `homing doctor`: each planted fault is found, and a sound host has none.

use homing::clock;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A run of the doctor in a folder of its own, with a private data directory `data` in it.
struct DoctorRun {
    folder: PathBuf,
    arguments: Vec<String>,
}

impl DoctorRun {
    fn new(name: &str) -> DoctorRun {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor").join(name);
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(folder.join("data")).expect("the target directory is ours");
        let run = DoctorRun { folder, arguments: Vec::new() };
        run.mode("data", 0o700);
        // What a small test machine has.
        run.set("limits.memory=64 MiB")
            .set("network.backlog=16")
            .set("network.listen=127.0.0.1:0")
            .set("admin.addresses=127.0.0.1:0")
            .set("store.durability=os")
    }

    fn set(mut self, assignment: &str) -> DoctorRun {
        self.arguments.extend(["--set".to_owned(), assignment.to_owned()]);
        self
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("a file of this test");
        self.mode(file, 0o600);
    }

    fn mode(&self, file: &str, mode: u32) {
        fs::set_permissions(self.folder.join(file), fs::Permissions::from_mode(mode))
            .expect("a file of this test");
    }

    fn command(&self) -> Command {
        self.command_of("doctor")
    }

    fn command_of(&self, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.arg(name).args(["--data-dir", &self.path("data")]).args(&self.arguments);
        command.current_dir(&self.folder).env_clear();
        command
    }

    /// Returns the exit code, and the lines that are not "ok".
    fn troubles(&self) -> (Option<i32>, Vec<String>) {
        troubles(&self.command().output().expect("the binary was built"))
    }

    /// Asserts that one trouble is found, and no other.
    fn finds(&self, code: i32, trouble: &str) {
        let (found, lines) = self.troubles();
        assert!(lines.len() == 1 && lines[0].starts_with(trouble), "{trouble} alone is wanted: {lines:#?}");
        assert_eq!(found, Some(code), "{lines:#?}");
    }
}

fn troubles(output: &Output) -> (Option<i32>, Vec<String>) {
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    assert!(text.lines().count() > 0, "{}", String::from_utf8_lossy(&output.stderr));
    let troubles = text.lines().filter(|line| !line.starts_with("ok ")).map(str::to_owned).collect();
    (output.status.code(), troubles)
}

#[test]
fn nothing_is_found_on_a_sound_host() {
    let sound = DoctorRun::new("sound");
    assert_eq!(sound.troubles(), (Some(0), Vec::new()));
    let left: Vec<_> = fs::read_dir(sound.folder.join("data")).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A thread that hangs may wait for the disk: a doctor that wrote there would hang as long.
#[test]
fn the_disk_is_left_alone_while_a_thread_of_the_broker_hangs() {
    let run = DoctorRun::new("hung");
    let socket = run.path("broker");
    let run = run.set(&format!("admin.socket={socket}"));
    let broker = UnixListener::bind(socket).expect("a short path");
    thread::spawn(move || {
        for mut asker in broker.incoming().flatten() {
            let lines = BufReader::new(asker.try_clone().expect("a socket")).lines();
            drop(lines.map_while(Result::ok).find(String::is_empty));
            let overview = format!(
                r#"{{"version": "{}", "late_threads": ["homing-store"]}}"#,
                env!("CARGO_PKG_VERSION")
            );
            let length = overview.len();
            drop(write!(
                asker,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{overview}"
            ));
        }
    });
    let (code, lines) = run.troubles();
    assert!(lines.iter().any(|line| line.starts_with("fail  threads")), "{lines:#?}");
    assert_eq!(code, Some(1));
    let said = run.command().output().expect("the binary was built").stdout;
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("owner ") && !said.contains("there is none yet"), "{said}");
}

#[test]
fn a_refused_configuration() {
    let refused = DoctorRun::new("configuration").set("limits.memory=much");
    refused.finds(1, "fail  configuration  --set: limits.memory");
}

#[test]
fn fewer_descriptors_than_connections() {
    let few = DoctorRun::new("descriptors").set("limits.connections=100000000");
    few.finds(0, "warn  descriptors ");
}

#[test]
fn a_backlog_that_the_system_does_not_allow() {
    let most: u32 =
        fs::read_to_string("/proc/sys/net/core/somaxconn").expect("Linux").trim().parse().expect("a number");
    let wide = DoctorRun::new("backlog").set("network.backlog=65535");
    if most < 65_535 {
        wide.finds(0, "warn  backlog ");
    } else {
        assert_eq!(wide.troubles(), (Some(0), Vec::new()), "this machine allows any backlog");
    }
}

#[test]
fn more_memory_than_there_is() {
    DoctorRun::new("memory").set("limits.memory=8 TiB").finds(0, "warn  memory ");
}

#[test]
fn a_data_directory_that_others_may_enter() {
    let open = DoctorRun::new("mode");
    open.mode("data", 0o755);
    open.finds(0, "warn  owner ");
}

#[test]
fn a_data_directory_that_is_a_file() {
    let file = DoctorRun::new("file");
    fs::remove_dir(file.folder.join("data")).expect("a folder");
    file.write("data", "");
    file.finds(1, "fail  store ");
}

#[test]
fn a_limit_of_the_store_beyond_the_disk() {
    DoctorRun::new("room").set("store.size_limit=200 TiB").finds(0, "warn  room ");
}

#[test]
fn a_store_that_a_power_loss_emptied() {
    let emptied = DoctorRun::new("emptied");
    emptied.write("data/homing.db", "");
    emptied.write("data/reserve", "");
    emptied.finds(1, "fail  store ");
}

#[test]
fn a_store_that_is_none() {
    let other = DoctorRun::new("other");
    other.write("data/homing.db", "This is a letter, and no database. It is longer than the head of one, which has 100 bytes of its own.");
    other.finds(1, "fail  store ");
}

#[test]
fn a_password_file_that_is_missing_and_one_that_everybody_reads() {
    let missing = DoctorRun::new("missing").set("auth.password_file=nowhere");
    missing.finds(1, "fail  passwords      nowhere");
    let open = DoctorRun::new("passwords").set("auth.password_file=passwd");
    open.write("passwd", "");
    open.mode("passwd", 0o644);
    open.finds(0, "warn  passwords ");
}

#[test]
fn a_mistake_in_an_acl() {
    let wrong = DoctorRun::new("acl").set("acl.file=acl");
    wrong.write("acl", "topic everything a/#\n");
    wrong.finds(1, "fail  acl            acl");
}

#[test]
fn a_port_that_another_process_has() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    DoctorRun::new("port")
        .set(&format!("network.listen={address}"))
        .finds(1, &format!("fail  port           {address}"));
}

#[test]
fn a_port_of_the_http_interface_that_another_process_has() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound");
    let interface = DoctorRun::new("interface").set(&format!("admin.addresses={address}"));
    interface.finds(1, &format!("fail  port           {address}"));
    let start = interface.command_of("serve").output().expect("the binary was built");
    let said = String::from_utf8_lossy(&start.stderr).into_owned();
    assert!(start.status.code() == Some(1) && said.contains("admin.addresses"), "{said}");
    assert!(!said.contains("network.listen"), "the other key: {said}");
}

#[test]
fn addresses_that_exclude_each_other() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let listeners = format!("network.listen=127.0.0.1:{free},0.0.0.0:{free}");
    let (code, lines) = DoctorRun::new("overlap").set(&listeners).set("auth.anonymous=always").troubles();
    assert_eq!(code, Some(1), "{lines:#?}");
    assert!(lines[0].starts_with(&format!("fail  port           0.0.0.0:{free}")), "{lines:#?}");
    let both = DoctorRun::new("both").set(&format!("network.listen=127.0.0.1:{free}"));
    both.set(&format!("admin.addresses=127.0.0.1:{free}"))
        .finds(1, &format!("fail  port           127.0.0.1:{free}"));
}

#[test]
fn a_unix_socket_in_whose_place_is_a_file() {
    let file = DoctorRun::new("unix");
    file.write("mqtt", "precious");
    let address = format!("unix:{}", file.path("mqtt"));
    file.write("homing.toml", &format!("[[listeners]]\naddress = \"{address}\"\n"));
    let mut command = file.command();
    let output = command.args(["--config", "homing.toml"]).output().expect("the binary was built");
    let (code, lines) = troubles(&output);
    assert!(code == Some(1) && lines.len() == 1, "{lines:#?}");
    assert!(lines[0].starts_with(&format!("fail  port           {address}")), "{lines:#?}");
}

#[test]
fn proxies_that_everybody_is_and_plain_http_for_all() {
    for (networks, all) in [
        ("\"0.0.0.0/0\"", "0.0.0.0/0"),
        ("\"::/0\"", "::/0"),
        ("\"0.0.0.0/1\", \"128.0.0.0/1\"", "0.0.0.0/0"),
        ("\"8000::/1\", \"::/1\"", "::/0"),
    ] {
        let proxies = DoctorRun::new("proxies");
        let text = format!(
            "[[listeners]]\naddress = \"0.0.0.0:0\"\nanonymous = \"always\"\nproxy_protocol = \"v2\"\ntrusted_proxies = [{networks}]\n"
        );
        proxies.write("homing.toml", &text);
        let mut command = proxies.command();
        let output = command.args(["--config", "homing.toml"]).output().expect("the binary was built");
        let (code, lines) = troubles(&output);
        assert_eq!(code, Some(0), "{lines:#?}");
        let needed = format!("trusted_proxies has all addresses ({all})");
        let is_found = |line: &String| line.starts_with("warn  proxies ") && line.contains(&needed);
        assert!(lines.iter().any(is_found), "{networks}: {lines:#?}");
    }
    let plain = DoctorRun::new("plain-http").set("admin.addresses=0.0.0.0:0");
    plain.finds(1, "fail  http           0.0.0.0:0");
    let allowed = DoctorRun::new("plain-http-allowed").set("admin.addresses=0.0.0.0:0");
    allowed.set("admin.allow_plain_http=true").finds(0, "warn  http           0.0.0.0:0");
}

#[test]
fn files_that_everybody_may_change() {
    for (key, subject) in
        [("admin.credentials", "admin credentials"), ("acl.file", "acl"), ("bans.file", "bans")]
    {
        let open = DoctorRun::new("change").set(&format!("{key}=file"));
        open.write("file", "");
        open.mode("file", 0o602);
        open.finds(0, &format!("warn  {subject:<14} everybody may change file (mode 602)"));
    }
}

#[test]
fn check_config_reads_the_files_that_the_configuration_names_unless_told_not_to() {
    for (key, named) in [
        ("auth.password_file", "auth.password_file"),
        ("auth.jwt_keys", "auth.jwt_keys"),
        ("acl.file", "acl.file"),
        ("bans.file", "bans.file"),
        ("admin.credentials", "admin.credentials"),
    ] {
        let missing = DoctorRun::new("check").set(&format!("{key}=nowhere"));
        let missing = if key == "auth.jwt_keys" { missing.set("auth.methods=jwt") } else { missing };
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let checked = missing.command_of("check-config").output().expect("the binary was built");
        assert_eq!(checked.status.code(), Some(2), "{key}: {}", said(&checked));
        assert!(said(&checked).contains(named) && said(&checked).contains("nowhere"), "{}", said(&checked));
        let mut alone = missing.command_of("check-config");
        let alone = alone.arg("--without-files").output().expect("the binary was built");
        assert_eq!(alone.status.code(), Some(0), "{key}: {}", said(&alone));
    }
    let tls = DoctorRun::new("check-tls");
    let listener = "[[listeners]]\nname = \"secure\"\naddress = \"127.0.0.1:0\"\ntls.certificates = [{ certificate = \"cert.pem\", key = \"key.pem\" }]\n";
    tls.write("homing.toml", listener);
    let mut command = tls.command_of("check-config");
    let checked = command.args(["--config", "homing.toml"]).output().expect("the binary was built");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(
        checked.status.code() == Some(2) && said.contains("cert.pem") && said.contains("secure"),
        "{said}"
    );
}

#[test]
fn check_config_reads_the_files_of_bridges_sinks_and_the_cluster() {
    let run = DoctorRun::new("check-tables").set("store.durability=commit");
    run.write(
        "homing.toml",
        "[[bridges]]\nname = \"b\"\naddresses = [\"mqtt://127.0.0.1:1\"]\nuser = \"u\"\npassword_file = \"no-password\"\n\
         [[bridges.topics]]\ndirection = \"out\"\nfilter = \"t\"\n\
         [[bridges]]\nname = \"c\"\naddresses = [\"tls://127.0.0.1:1\"]\nca = \"no-ca\"\n\
         [[bridges.topics]]\ndirection = \"out\"\nfilter = \"t\"\n\
         [[sinks]]\nname = \"s\"\nurl = \"http://127.0.0.1:1/\"\nfilters = [\"t\"]\nheader_files = { X-A = \"no-header\" }\n\
         [cluster]\nname = \"p\"\nnode = \"a\"\nnodes = [\"a\"]\nnats = [\"nats://127.0.0.1:1\"]\nnats_user = \"u\"\n\
         nats_password_file = \"no-secret\"\n",
    );
    let mut command = run.command_of("check-config");
    let checked = command.args(["--config", "homing.toml"]).output().expect("the binary was built");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    for (file, key) in [
        ("no-password", "bridge \"b\" of [[bridges]]"),
        ("no-ca", "bridge \"c\" of [[bridges]]"),
        ("no-header", "sink \"s\" of [[sinks]]"),
        ("no-secret", "cluster.nats_password_file"),
    ] {
        let is_named = said.lines().any(|line| line.contains(file) && line.contains(key));
        assert!(is_named, "{file}, {key}: {said}");
    }
}

#[test]
fn check_config_and_doctor_refuse_a_cluster_that_the_start_refuses() {
    for command in ["check-config", "doctor"] {
        let run = DoctorRun::new("check-node").set("cluster.name=plant");
        let output = run.command_of(command).output().expect("the binary was built");
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("cluster.nodes is needed") && said.contains("cluster.nats is needed"),
            "{said}"
        );
    }
}

#[test]
fn check_config_refuses_what_only_the_start_would_refuse() {
    let check = |run: &DoctorRun, arguments: &[&str]| {
        let mut command = run.command_of("check-config");
        let output = command.args(arguments).output().expect("the binary was built");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let plain = DoctorRun::new("check-plain").set("admin.addresses=0.0.0.0:0");
    let (code, said) = check(&plain, &[]);
    assert!(code == Some(2) && said.contains("admin.addresses: 0.0.0.0:0 can be reached"), "{said}");
    let file = DoctorRun::new("check-data");
    file.write("taken", "");
    for below in ["taken", "taken/data"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
        command.current_dir(&file.folder).env_clear().args(["check-config", "--data-dir", below]);
        let output = command.output().expect("the binary was built");
        let said = String::from_utf8(output.stderr).expect("text");
        let expected =
            format!("homing: the data directory {below}: not a directory (store.path, or --data-dir)\n");
        assert_eq!((output.status.code(), said), (Some(2), expected));
    }
    let emptied = DoctorRun::new("check-emptied");
    emptied.write("data/homing.db", "");
    emptied.write("data/homing.lock", "pid 1\n");
    let (code, said) = check(&emptied, &[]);
    assert!(code == Some(2) && said.contains("is empty, and there was a store in it"), "{said}");
}

#[test]
fn a_variable_that_only_looks_like_a_key_is_named() {
    let run = DoctorRun::new("variable");
    let mut command = run.command();
    let output = command.env("HOMING_VERSION", "1").output().expect("the binary was built");
    let (code, lines) = troubles(&output);
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(lines[0].contains("configuration  environment variable HOMING_VERSION is ignored"), "{lines:#?}");
    let mut check = run.command_of("check-config");
    let output = check.env("HOMING_VERSION", "1").output().expect("the binary was built");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("\nenvironment variable HOMING_VERSION is ignored: "), "{said}");
    let mut wrong = run.command_of("check-config");
    let output = wrong.env("HOMING_AUTH_ANONYMOUS", "never").output().expect("the binary was built");
    assert_eq!(output.status.code(), Some(2));
}

/// A FIFO that nobody writes to is a file that hangs.
#[test]
fn check_config_names_the_key_of_a_file_that_hangs() {
    let check = |(key, named): (&str, &str)| {
        let hung = DoctorRun::new(&format!("hung-{key}"));
        mknodat(CWD, hung.folder.join("hung"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
        let hung = if key == "acl_file" {
            hung.write("homing.toml", "[[listeners]]\naddress = \"127.0.0.1:0\"\nacl_file = \"hung\"\n");
            hung
        } else {
            hung.set(&format!("{key}=hung"))
        };
        let mut command = hung.command_of("check-config");
        let command =
            if key == "acl_file" { command.args(["--config", "homing.toml"]) } else { &mut command };
        let checked = command.output().expect("the binary was built");
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert_eq!(checked.status.code(), Some(2), "{said}");
        let needed =
            format!("hung was not read within 5 s; see if its disk or network file system hangs ({named})");
        assert!(said.contains(&needed), "{needed} is wanted: {said}");
    };
    // Each waits for the limit.
    thread::scope(|scope| {
        for key in [
            ("auth.password_file", "auth.password_file"),
            ("bans.file", "bans.file"),
            ("admin.credentials", "admin.credentials"),
            ("acl_file", "acl_file of [[listeners]]"),
        ] {
            scope.spawn(move || check(key));
        }
    });
}

#[test]
fn a_listener_that_lets_everybody_in() {
    let open = DoctorRun::new("open").set("network.listen=0.0.0.0:0").set("auth.anonymous=always");
    open.finds(0, "warn  login          0.0.0.0:0: every client");
}

#[test]
fn a_certificate_that_is_missing() {
    let tls = DoctorRun::new("tls");
    tls.write(
        "homing.toml",
        "[[listeners]]\naddress = \"127.0.0.1:0\"\ntls.certificates = [{ certificate = \"cert.pem\", key = \"key.pem\" }]\n",
    );
    let mut command = tls.command();
    let (code, lines) =
        troubles(&command.args(["--config", "homing.toml"]).output().expect("the binary was built"));
    assert_eq!((code, lines.len()), (Some(1), 1), "{lines:#?}");
    assert!(lines[0].starts_with("fail  tls "), "{lines:#?}");
}

#[test]
fn a_certificate_of_the_http_interface_that_is_missing() {
    let https = DoctorRun::new("https").set("admin.certificate=cert.pem").set("admin.key=key.pem");
    https.finds(1, "fail  tls            admin.certificate: cert.pem");
}

/// A bridge to these addresses, with a filter for each direction.
fn bridge_to(addresses: &[String], keys: &str) -> String {
    format!(
        "[[bridges]]\nname = \"cloud\"\naddresses = {addresses:?}\nconnect_timeout = \"2s\"\n{keys}\
         topics = [{{ direction = \"out\", filter = \"a/#\", qos = 2 }}, {{ direction = \"in\", filter = \"b/#\" }}, \
         {{ direction = \"in\", filter = \"c/#\" }}]\n"
    )
}

/// Another broker that answers each CONNECT with these bytes. Returns its address, and what comes to it.
fn other_broker(answer: Vec<u8>) -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("mqtt://{}", listener.local_addr().expect("an address"));
    let (to, came) = mpsc::channel();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut hello = vec![0; 1_024];
            let read = stream.read(&mut hello).unwrap_or(0);
            drop(to.send(hello[..read].to_vec()));
            drop(stream.write_all(&answer));
            open.push(stream);
        }
    });
    (address, came)
}

/// Runs the doctor with this configuration, and returns its exit code and what it says of bridges.
fn of_bridges(name: &str, configuration: &str) -> (Option<i32>, Vec<String>) {
    let run = DoctorRun::new(name);
    run.write("homing.toml", configuration);
    let output =
        run.command().arg("--config").arg(run.path("homing.toml")).output().expect("the binary was built");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter(|line| line[6..].starts_with("bridge ")).map(str::to_owned);
    (output.status.code(), lines.collect())
}

#[test]
fn a_bridge_is_tried_as_a_client_of_its_own_and_every_refusal_is_named() {
    // CONNACK with Maximum QoS 1 and without retained messages; SUBACK that refuses the second filter.
    let (address, came) =
        other_broker(vec![0x20, 7, 0, 0, 4, 0x24, 1, 0x25, 0, 0x90, 5, 0xFF, 0xFF, 0, 1, 0x87]);
    let (code, lines) = of_bridges("bridge", &bridge_to(std::slice::from_ref(&address), ""));
    let expected = [
        format!("ok    bridge         cloud: {address} accepts MQTT 5.0, and grants 1 of 2 filters"),
        format!(
            "fail  bridge         cloud: {address} does not let the bridge subscribe to c/#: 0x87 Not authorized"
        ),
        format!(
            "warn  bridge         cloud: {address} takes QoS 1 at most, so messages of QoS 2 are sent with less"
        ),
        format!("warn  bridge         cloud: {address} keeps no retained messages"),
    ];
    assert_eq!((code, lines.len()), (Some(1), expected.len()), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.to_lowercase().starts_with(&expected.to_lowercase()), "{expected}: {line}");
    }
    let connect = came.recv().expect("a CONNECT");
    let has = |text: &[u8]| connect.windows(text.len()).any(|part| part == text);
    assert!(has(b"homing-cloud-doctor") && connect[9] == 2, "Clean Start alone: {connect:?}");
}

#[test]
fn a_bridge_to_nobody_to_a_broker_that_hangs_and_to_one_that_refuses_says_so_in_time() {
    let begun = clock::now();
    let nobody = "mqtt://127.0.0.1:1".to_owned();
    let (hangs, _came) = other_broker(Vec::new());
    let (refuses, _came_too) = other_broker(vec![0x20, 3, 0, 0x87, 0]);
    let (accepts, _came_last) = other_broker(vec![0x20, 3, 0, 0, 0, 0x90, 5, 0xFF, 0xFF, 0, 1, 1]);
    let (hangs_later, _came_later) = other_broker(vec![0x20, 3, 0, 0, 0]);
    let bad = [
        (nobody.clone(), "cannot connect: Connection refused"),
        (hangs, "no CONNACK within connect_timeout"),
        (refuses, "the other broker refuses CONNECT: "),
        (hangs_later, "no SUBACK within connect_timeout"),
    ];
    let addresses: Vec<String> = bad.iter().map(|(address, _)| address.clone()).collect();
    let (code, lines) = of_bridges("bridge-down", &bridge_to(&addresses, ""));
    assert_eq!((code, lines.len()), (Some(1), bad.len()), "{lines:#?}");
    for ((address, reason), line) in bad.iter().zip(&lines) {
        assert!(
            line.starts_with(&format!("fail  bridge         cloud: {address}: {reason}")),
            "{reason}: {line}"
        );
        assert!(line.ends_with("This was tried as the client homing-cloud-doctor"), "{line}");
    }
    // A name server that does not answer takes the whole time.
    let unknown = ["mqtt://no-such-host.invalid:1883".to_owned()];
    let (code, lines) = of_bridges("bridge-name", &bridge_to(&unknown, ""));
    let begins =
        |reason: &str| lines[0].starts_with(&format!("fail  bridge         cloud: {}: {reason}", unknown[0]));
    assert_eq!((code, lines.len()), (Some(1), 1), "{lines:#?}");
    assert!(begins("the name cannot be resolved: ") || begins("the name is not resolved"), "{lines:#?}");
    let (code, lines) = of_bridges("bridge-second", &bridge_to(&[nobody, accepts], ""));
    assert_eq!(code, Some(0), "{lines:#?}");
    assert!(lines[0].starts_with("warn  bridge ") && lines[1].starts_with("ok    bridge "), "{lines:#?}");
    let took = clock::now().since(begun);
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_bridge_whose_files_or_certificates_are_wrong_says_which() {
    let (plain, _came) = other_broker(Vec::new());
    let tls = [plain.replace("mqtt:", "tls:")];
    let (code, lines) = of_bridges("bridge-ca", &bridge_to(&tls, "ca = \"nowhere.pem\"\n"));
    assert!(code == Some(1) && lines.len() == 1 && lines[0].contains("nowhere.pem"), "{lines:#?}");
    let (_, lines) = of_bridges("bridge-tls", &bridge_to(&tls, ""));
    assert!(lines.len() == 1 && lines[0].starts_with("fail  bridge "), "{lines:#?}");
}
