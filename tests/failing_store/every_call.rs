//! Each call to the store fails once, in a process of its own: it ends with exit code 1 and says
//! why, and a broker that is started on what it left keeps every promise that it made.
//!
//! The child runs the broker as the command does, on the store that the command uses, without
//! syncs: it is the process that ends here, not the machine.

use crate::support::faulty_store::{Call, Fault, Faults, Faulty};
use crate::support::process::Process;
use crate::support::{Connect, Message, RawClient, V5, V311};
use crate::traffic::{self, MESSAGES, Promised};
use homing::broker::{Broker, Signals};
use homing::config::{Config, DurabilityLevel};
use homing::store::Store;
use homing::store::logged::{LoggedStore, StoreOptions};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Mutex;

const CALLS: [Call; 8] = [
    Call::Recover,
    Call::Commit,
    Call::Heartbeat,
    Call::Sync,
    Call::Tidy,
    Call::HasRoom,
    Call::Reader,
    Call::ReadEntries,
];
const FAULTS: [Fault; 3] = [Fault::Failed, Fault::FailedAfter, Fault::Full];

/// The call that fails, and its fault.
type Plan = (Call, usize, Fault);

fn named<T: Copy + std::fmt::Debug>(all: &[T], name: &str) -> T {
    *all.iter().find(|one| format!("{one:?}") == name).expect("a name")
}

fn on_disk(directory: &Path) -> Box<dyn Store> {
    let options = StoreOptions { durability: DurabilityLevel::Os, size_limit: None };
    Box::new(LoggedStore::open(directory, options).expect("opened"))
}

fn config() -> Config {
    let mut config = Config::default();
    config.runtime.threads = 2;
    config.network.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    config
}

/// The child. Ends as the command does, and says which calls there were if it ends in order.
#[test]
#[ignore = "the process whose store fails; the test beside it starts it"]
fn serve_on_a_failing_store() {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let directory = std::env::var("FAILING_STORE_DIRECTORY").expect("started by a test");
    let faults = Faults::default();
    if let Ok(plan) = std::env::var("FAILING_STORE_PLAN") {
        let words: Vec<&str> = plan.split(' ').collect();
        let nth = words[1].parse().expect("a number");
        faults.plan(named(&CALLS, words[0]), nth, named(&FAULTS, words[2]));
    }
    let signals = Signals::catch().expect("signals");
    let store = Faulty::new(on_disk(Path::new(&directory)), faults.clone());
    let code = match Broker::start_with(config(), Some(Box::new(store))) {
        Ok(broker) => {
            println!("\nlistening on {}", broker.addresses()[0]);
            broker.run(signals)
        }
        Err(error) => {
            println!("\nhoming: {error}");
            ExitCode::FAILURE
        }
    };
    println!("\ncalls {:?}", faults.calls());
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

/// The outcome of a run.
struct Outcome {
    promised: Promised,
    finished: bool,
    code: Option<i32>,
    said: Vec<String>,
}

impl Outcome {
    fn says(&self, words: &str) -> bool {
        self.said.iter().any(|line| line.contains(words))
    }

    /// Returns the number of calls of this kind, from the lines of an orderly end.
    fn count(&self, call: Call) -> Option<usize> {
        let calls = self.said.iter().rev().find(|line| line.starts_with("calls "))?;
        let (_, rest) = calls.split_once(&format!("({call:?}, "))?;
        rest.split(')').next()?.parse().ok()
    }
}

fn run(directory: &Path, plan: Option<Plan>) -> Outcome {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "every_call::serve_on_a_failing_store", "--ignored", "--nocapture"])
        .env("FAILING_STORE_DIRECTORY", directory);
    if let Some((call, nth, fault)) = plan {
        command.env("FAILING_STORE_PLAN", format!("{call:?} {nth} {fault:?}"));
    }
    let mut child = Process::spawn(&mut command);
    let (mut promised, mut finished) = (Promised::default(), false);
    if let Some(address) = child.address() {
        finished = !matches!(traffic::run(address, &mut promised), Err(traffic::End::Gone));
        child.signal(Signal::TERM);
    }
    let (code, said) = child.end();
    Outcome { promised, finished, code, said }
}

/// A broker on what was left keeps what was promised.
fn keeps(directory: &Path, mut promised: Promised) {
    let broker = Broker::start_with(config(), Some(on_disk(directory))).expect("it starts again");
    let address = broker.addresses()[0];
    let mut publisher = RawClient::connect(address, &Connect::new(V5, "marker"));
    let mut back = RawClient::connect(address, &Connect::persistent(V5, "away"));
    assert!(!promised.subscribed || back.session_present());
    if promised.subscribed {
        publisher.deliver(&Message::new("t", MESSAGES.to_string()).qos(1));
        let (before, released) = (std::mem::take(&mut promised.received), promised.released.clone());
        promised.released.clear();
        traffic::receive(&mut back, &mut promised, |p| p.received.contains(&MESSAGES)).expect("it lives");
        let again: Vec<_> = released.intersection(&promised.received).collect();
        assert!(again.is_empty(), "completed at QoS 2, and sent again: {again:?}");
        let all: std::collections::BTreeSet<_> = before.union(&promised.received).copied().collect();
        let lost: Vec<_> = promised.taken.difference(&all).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
    if promised.retained {
        back.subscribe(&[("kept", 1)]);
        assert_eq!(back.expect_publish().text(), "x");
    }
    if promised.deleted {
        assert!(!RawClient::connect(address, &Connect::persistent(V311, "here")).session_present());
    }
}

fn check((call, nth, fault): Plan) {
    let directory = tempfile::tempdir().expect("a directory");
    let outcome = run(directory.path(), Some((call, nth, fault)));
    let context = format!("{call:?} {nth} {fault:?}: {:?} {:#?}", outcome.code, outcome.said);
    // Their number is not the same in every run.
    let happened = outcome.count(call).is_none_or(|count| count > nth);
    if happened && fault != Fault::Full {
        assert_eq!(outcome.code, Some(1), "{context}");
        assert!(outcome.says("the store failed") || outcome.says("the store cannot be used"), "{context}");
    } else {
        assert!(outcome.finished && outcome.code == Some(0), "{context}");
    }
    println!("{call:?} {nth} {fault:?}: {} taken", outcome.promised.taken.len());
    keeps(directory.path(), outcome.promised);
}

#[test]
fn whichever_call_fails_the_process_ends_loudly_and_its_promises_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let all_well = run(directory.path(), None);
    assert!(all_well.finished && all_well.code == Some(0), "{:#?}", all_well.said);
    assert_eq!(all_well.promised.taken.len(), MESSAGES);
    let mut plans: Vec<Plan> = Vec::new();
    for call in CALLS {
        let count = all_well.count(call).unwrap_or_else(|| panic!("no {call:?}: {:#?}", all_well.said));
        for nth in 0..count {
            plans.push((call, nth, Fault::Failed));
            if matches!(call, Call::Commit | Call::Recover) {
                plans.push((call, nth, Fault::FailedAfter));
            }
            if matches!(call, Call::Commit | Call::Recover | Call::Heartbeat) {
                plans.push((call, nth, Fault::Full));
            }
        }
    }
    keeps(directory.path(), all_well.promised);
    println!("{} runs", plans.len());
    let plans = Mutex::new(plans.into_iter());
    let next = || plans.lock().expect("no poison").next();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(plan) = next() {
                    check(plan);
                }
            });
        }
    });
}
