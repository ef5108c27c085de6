//! Threads that hang: a tracer stops them, and /readyz names them.

use crate::http::{LOCAL, request, serve_with};
use crate::kit::Pki;
use crate::support::passwords::password_file;
use crate::support::process::{Process, homing_serve};
use crate::support::{now, until};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::ptr::null_mut;
use std::thread;
use std::time::Duration;

/// A thread of another process that this thread has stopped. It goes on when the value is dropped.
pub struct StoppedThread(libc::pid_t);

impl StoppedThread {
    /// Stops a thread where it waits. Between two instructions it may have a lock of the allocator,
    /// and then everybody would wait; what hangs in a real broker is a call to the system.
    pub fn stop(thread: libc::pid_t) -> StoppedThread {
        until("a thread that waits", || {
            let stat = fs::read_to_string(format!("/proc/{thread}/stat")).expect("it runs");
            let (_, state) = stat.rsplit_once(") ")?;
            state.starts_with('S').then_some(())
        });
        ptrace(libc::PTRACE_SEIZE, thread);
        ptrace(libc::PTRACE_INTERRUPT, thread);
        wait_for(thread);
        StoppedThread(thread)
    }

    /// Waits for the end of a thread whose process exits. The kernel lets nobody else see the end of the
    /// process before.
    fn ends(self) {
        wait_for(self.0);
        std::mem::forget(self);
    }
}

/// Waits until a thread stops or ends.
fn wait_for(thread: libc::pid_t) {
    // SAFETY: the status is not wanted, and the kernel accepts a null pointer for it.
    #[expect(unsafe_code, reason = "rustix waits for whole processes, and not for single threads")]
    let waited = unsafe { libc::waitpid(thread, null_mut(), libc::__WALL) };
    assert_eq!(waited, thread);
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        ptrace(libc::PTRACE_DETACH, self.0);
    }
}

fn ptrace(request: libc::c_uint, thread: libc::pid_t) {
    // SAFETY: these requests take no address, and no data but a signal, which is none here.
    #[expect(unsafe_code, reason = "nothing but ptrace stops a single thread of another process")]
    let done =
        unsafe { libc::ptrace(request, thread, null_mut::<libc::c_void>(), null_mut::<libc::c_void>()) };
    assert_eq!(done, 0, "ptrace {request:#x} of {thread}: {}", std::io::Error::last_os_error());
}

/// Starts a broker that has every thread, two of them for the shards.
fn serve(pki: &Pki) -> (Process, SocketAddr) {
    pki.server("server", &["localhost"]);
    pki.write("passwords", &password_file(&[("ann", "sesame")]));
    let listener = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[listeners.tls]\ncertificates = [{{ certificate = {:?}, key = {:?} }}]\n",
        pki.text_path("server.pem"),
        pki.text_path("server.key")
    );
    pki.write("homing.toml", &listener);
    let mut command = Command::new(env!("CARGO_BIN_EXE_homing"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(pki.path("homing.toml"));
    command.arg("--data-dir").arg(pki.path("data"));
    let passwords = format!("auth.password_file={}", pki.text_path("passwords"));
    let socket = format!("admin.socket={}", pki.text_path("s"));
    let settings = [
        "admin.addresses=127.0.0.1:0",
        "runtime.threads=2",
        "runtime.handshake_threads=1",
        "auth.workers=1",
        "auth.http_url=http://127.0.0.1:9/",
        &passwords,
        &socket,
    ];
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    let (process, _, admin) = serve_with(&mut command);
    (process, admin)
}

/// Returns the identifier of the thread of a name.
pub fn thread_of(process: &Process, name: &str) -> libc::pid_t {
    thread_named(process, name).unwrap_or_else(|| panic!("no thread {name}"))
}

fn thread_named(process: &Process, name: &str) -> Option<libc::pid_t> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
    let named =
        |path: &std::path::Path| fs::read_to_string(path.join("comm")).is_ok_and(|is| is.trim() == name);
    let found = tasks.filter_map(Result::ok).find(|task| named(&task.path()))?;
    found.file_name().to_str()?.parse().ok()
}

/// Returns the status of /readyz, and the threads that its reasons name, in order.
fn ready(admin: SocketAddr) -> (u16, Vec<String>) {
    let (status, answer) = request(admin, "GET", "/readyz", LOCAL);
    let body: Value = serde_json::from_str(answer.lines().last().unwrap_or_default()).expect("JSON");
    let word = |reason: &Value| reason.as_str()?.split(' ').nth(2).map(str::to_owned);
    let reasons = body["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names: Vec<String> = reasons.iter().filter_map(word).collect();
    names.sort();
    (status, names)
}

/// Stops these threads of a broker, which /readyz has to name, and no others.
fn names_and_forgets(names: &[&str]) {
    let pki = Pki::new();
    let (mut process, admin) = serve(&pki);
    until("a ready broker", || (ready(admin) == (200, Vec::new())).then_some(()));
    let stopped: Vec<_> = names.iter().map(|name| StoppedThread::stop(thread_of(&process, name))).collect();
    let began = now();
    until("the names of all", || {
        (ready(admin) == (503, names.iter().map(|name| (*name).to_owned()).collect())).then_some(())
    });
    let took = now() - began;
    assert!(took < Duration::from_secs(5), "{took:?}");
    // Nobody logs while the thread hangs that looks each second.
    let is_logged = !names.contains(&"homing-admin");
    if is_logged {
        process.line("event=broker.thread_hangs thread=").expect("a line while they hang");
    }
    drop(stopped);
    until("a ready broker again", || (ready(admin).0 == 200).then_some(()));
    if is_logged {
        process.line("event=broker.thread_works_again thread=").expect("a line when they work");
    }
}

/// The shard cannot look at its clients, and cannot take new settings either.
#[test]
fn a_reload_answers_with_the_count_so_far_while_a_thread_hangs() {
    let pki = Pki::new();
    let (process, admin) = serve(&pki);
    let stopped = StoppedThread::stop(thread_of(&process, "homing-shard-1"));
    let began = now();
    let socket = pki.path("s");
    let (code, text) = crate::api::ctl(&socket, &["--json", "reload"]);
    let took = now() - began;
    assert_eq!(code, Some(0), "{text}");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["disconnected"]["complete"], false, "{text}");
    assert!(took < Duration::from_secs(8), "{took:?}");
    drop(stopped);
    until("a ready broker again", || (ready(admin).0 == 200).then_some(()));
    let (_, text) = crate::api::ctl(&socket, &["--json", "reload"]);
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(answer["disconnected"]["complete"], true, "{text}");
}

/// The thread that stops all others is the one that hangs.
#[test]
fn a_broker_whose_stop_hangs_exits_without_the_thread() {
    let pki = Pki::new();
    let (mut process, _) = serve(&pki);
    let stopped = StoppedThread::stop(thread_of(&process, "homing-main"));
    process.signal(Signal::TERM);
    process.line("event=broker.stop_hangs").expect("it says why it exits");
    stopped.ends();
    let (code, said) = process.end();
    assert_eq!(code, Some(1), "{said:#?}");
}

/// A FIFO without a writer, in place of a file of the store, is a disk that hangs.
#[test]
fn a_signal_ends_a_start_whose_disk_hangs() {
    for file in ["log/00000000000000000001.log", "scram.secret"] {
        let directory = tempfile::tempdir().expect("a directory");
        let serve = || {
            let mut command = homing_serve();
            command.arg("--data-dir").arg(directory.path());
            command
        };
        let (mut process, _) = Process::serve(&mut serve());
        process.signal(Signal::TERM);
        assert_eq!(process.end().0, Some(0), "it makes a store");
        let file = directory.path().join(file);
        fs::remove_file(&file).expect("a file of the store");
        assert!(Command::new("mkfifo").arg(&file).status().expect("it runs").success());

        let mut process = Process::spawn(&mut serve());
        until("it reads the store", || thread_named(&process, "homing-start").map(drop));
        process.signal(Signal::TERM);
        let (code, said) = process.end();
        assert_eq!(code, Some(0), "{file:?}: {said:#?}");
        let is_said = said.iter().any(|line| line.contains("event=broker.stopped_at_start signal=SIGTERM"));
        assert!(is_said, "{file:?}: {said:#?}");
    }
}

/// Two brokers, each with a half of its threads stopped at once, because each wait takes seconds.
#[test]
fn readiness_names_each_thread_that_hangs_within_five_seconds_and_comes_back() {
    let halves = [
        ["homing-auth-0", "homing-main", "homing-shake-0", "homing-shard-0", "homing-store"].as_slice(),
        ["homing-admin", "homing-expiry", "homing-http", "homing-read", "homing-shard-1"].as_slice(),
    ];
    thread::scope(|scope| {
        for names in halves {
            scope.spawn(move || {
                let mut names = names.to_vec();
                names.sort_unstable();
                names_and_forgets(&names);
            });
        }
    });
}
