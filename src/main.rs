//! The `homing` command: arguments, configuration, log, run. What a broker is, the library knows.

use clap::{Args, Parser, Subcommand};
use homing::broker::{Broker, Signals, stderr};
use homing::config::{Config, DEFAULT_FILE, Durability, Loaded, LogFormat, Refusal, Sources, duration};
use homing::health;
use homing::load::LoadArguments;
use homing::store::sqlite::inspect::Inspection;
use homing::store::sqlite::{self, Sqlite};
use homing::store::{Moment, Store, StoreError};
use std::backtrace::Backtrace;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// Thousands of connections of many sizes of message: jemalloc gives back what it can, and says what it holds.
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What the operator wrote is wrong; nothing was started. clap answers wrong arguments with the same code.
const REFUSED: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  homing                                     listen on 127.0.0.1:1883
  homing --listen 127.0.0.1:0                ... on a free port, which is printed
  homing --listen 0.0.0.0:1883 --listen '[::]:1883'
                                             ... on all interfaces (nothing is authenticated!)
  homing --set redelivery.interval=5s        resend to 3.x clients after 5 s
  HOMING_LOG__LEVEL=debug homing             see redeliveries in the log
  homing --data-dir /var/lib/homing          keep sessions, queues and retained messages there
  homing --ephemeral                         ... or keep nothing
  homing check-config --config my.toml       is this file right, and what does it change?
  homing store dump                          who waits for what? also while the broker runs
  homing store backup copy.db                a copy of one moment, also while the broker runs
  homing health                              does the broker answer? exit code 0 or 1

Configuration, each layer beating the one before: built-in defaults;
config/homing.toml in the working directory, or HOMING_CONFIG, or --config
FILE; environment HOMING_SECTION__KEY; flags. config/homing.toml explains every key.

Exit codes: 0 stopped in order; 1 could not start, is not healthy, or the
store is not sound; 2 arguments or configuration refused.";

#[derive(Parser)]
#[command(version, about = "An MQTT 3.1, 3.1.1 and 5.0 broker that keeps trying until the message is home")]
#[command(after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum Command {
    /// Run the broker; what `homing` does without a command
    Serve,
    /// Check the configuration and say what differs from the defaults; starts nothing
    CheckConfig,
    /// Ask a running broker for an answer, as a client would
    Health {
        /// The broker's address [default: the first in listeners.addresses_file, else of listeners.addresses]
        #[arg(long, value_name = "ADDR:PORT")]
        address: Option<SocketAddr>,
        /// How long each step may take
        #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
        timeout: Duration,
    },
    /// Look into the data directory; reads only, also while a broker uses it
    Store {
        #[command(subcommand)]
        question: Question,
    },
    Load(LoadArguments),
}

#[derive(Subcommand)]
enum Question {
    /// Is the store sound? Reads all of it; exit code 0 or 1
    Check,
    /// Totals, then for each session its state, queue, messages in flight and the oldest one
    Dump,
    /// Copy the store, as of one moment, into a new file
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
struct Settings {
    /// Listen here instead of on listeners.addresses; repeat for several. Port 0 takes a free port
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    listen: Vec<String>,
    /// Read this file [default: HOMING_CONFIG, else config/homing.toml in the working directory, if there is one]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory for what outlives a restart [default: systemd's STATE_DIRECTORY, else homing-data here]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "ephemeral")]
    data_dir: Option<String>,
    /// Keep everything in memory: what is acknowledged ends with the process
    #[arg(long, global = true)]
    ephemeral: bool,
    /// Set any key of the configuration; repeat for several
    #[arg(long, value_name = "SECTION.KEY=VALUE", global = true)]
    set: Vec<String>,
    /// error, warn, info, debug, trace, or directives such as info,homing::broker=debug
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    /// text or json, on standard error
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<String>,
}

fn main() -> ExitCode {
    let Arguments { command, settings } = match Arguments::try_parse() {
        // A load test is often a line in a script, where a refusal should be one too.
        Err(error) if error.use_stderr() && std::env::args().nth(1).is_some_and(|first| first == "load") => {
            complain(&format!("load: {}", homing::load::one_line(&error)));
            return ExitCode::from(REFUSED);
        }
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    if let Some(Command::Load(arguments)) = &command {
        raise_descriptor_limit();
        return homing::load::run(arguments);
    }
    let loaded = match load(&settings) {
        Ok(loaded) => loaded,
        Err(refusal) => return refuse(&refusal),
    };
    match command {
        None | Some(Command::Serve | Command::Load(_)) => serve(loaded),
        Some(Command::CheckConfig) => {
            say(&check_config(&loaded));
            ExitCode::SUCCESS
        }
        Some(Command::Store { question }) => match look_into_store(&question, &loaded.config) {
            Ok(code) => code,
            Err(error) => {
                complain(&error.to_string());
                ExitCode::FAILURE
            }
        },
        Some(Command::Health { address, timeout }) => {
            // What is typed beats what a broker says of itself.
            let running = if settings.listen.is_empty() { running_address(&loaded.config) } else { None };
            check_health(address.or(running), timeout, &loaded.config)
        }
    }
}

/// The flags of their own beat `--set`: whoever types `--listen` means it.
fn load(settings: &Settings) -> Result<Loaded, Refusal> {
    let named = std::env::var_os("HOMING_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let sources = match settings.config.clone().or(named) {
        Some(path) => Sources::new().file(path),
        None => Sources::new().default_file(),
    };
    let mut sources = sources.environment(std::env::vars_os());
    for text in &settings.set {
        sources = sources.assignment(text);
    }
    if !settings.listen.is_empty() {
        sources = sources.flag("--listen", "listeners.addresses", &settings.listen.join(","));
    }
    if let Some(directory) = &settings.data_dir {
        sources = sources.flag("--data-dir", "store.path", directory);
    }
    if settings.ephemeral {
        sources = sources.flag("--ephemeral", "store.durability", "none");
    }
    if let Some(level) = &settings.log_level {
        sources = sources.flag("--log-level", "log.level", level);
    }
    if let Some(format) = &settings.log_format {
        sources = sources.flag("--log-format", "log.format", format);
    }
    sources.load()
}

fn refuse(refusal: &Refusal) -> ExitCode {
    for problem in &refusal.0 {
        complain(&problem.to_string());
    }
    ExitCode::from(REFUSED)
}

fn serve(loaded: Loaded) -> ExitCode {
    start_log(&loaded.config);
    raise_descriptor_limit();
    let configuration = configuration_line(&loaded);
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("cannot wait for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let storage = storage_line(&loaded.config);
    let addresses_file = addresses_file(&loaded.config);
    let store = match open_store(&loaded.config) {
        Ok(store) => store,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let broker = match Broker::start_with(loaded.config, store) {
        Ok(broker) => broker,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    for address in broker.addresses().iter().filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(%address, "nothing is authenticated: whoever reaches this address may publish and subscribe");
    }
    if let Some(file) = &addresses_file {
        let addresses: String = broker.addresses().iter().map(|address| format!("{address}\n")).collect();
        if let Err(error) = std::fs::write(file, addresses) {
            let file = file.display();
            tracing::warn!(%file, %error, "listeners.addresses_file cannot be written: `homing health` does not read it");
        }
    }
    say(&banner(broker.addresses(), &configuration, &storage));
    let code = broker.run(signals);
    if let Some(file) = &addresses_file {
        // Where it was never written, there is nothing to remove.
        drop(std::fs::remove_file(file));
    }
    stderr::flush();
    code
}

fn addresses_file(config: &Config) -> Option<PathBuf> {
    let file = &config.listeners.addresses_file;
    (!file.is_empty()).then(|| PathBuf::from(file))
}

/// Where the running broker listens, if it says so.
fn running_address(config: &Config) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(addresses_file(config)?).ok()?;
    text.lines().next()?.parse().ok()
}

/// The store that the configuration asks for. A broker that is started in code has none unless it is handed one.
fn open_store(config: &Config) -> Result<Option<Box<dyn Store>>, StoreError> {
    let Some(directory) = data_directory(config) else { return Ok(None) };
    let limit = config.store.size_limit.bytes();
    let size_limit = (limit > 0).then_some(limit);
    let options = sqlite::Options { durability: config.store.durability, size_limit };
    Ok(Some(Box::new(Sqlite::open(&directory, options)?)))
}

fn data_directory(config: &Config) -> Option<PathBuf> {
    config.store.directory(std::env::var_os("STATE_DIRECTORY").as_deref())
}

/// Where things are kept, and what an acknowledgement is worth.
fn storage_line(config: &Config) -> String {
    let Some(directory) = data_directory(config) else {
        return "memory: sessions, queued and retained messages end with this process".to_owned();
    };
    let promise = match config.store.durability {
        Durability::Commit => "what is acknowledged is on the disk".to_owned(),
        Durability::Interval => {
            format!("what is acknowledged is on the disk within {}", duration::format(config.store.interval))
        }
        Durability::Os | Durability::None => {
            "what is acknowledged survives this process, not the machine".to_owned()
        }
    };
    format!("{}: {promise}", directory.display())
}

fn look_into_store(question: &Question, config: &Config) -> Result<ExitCode, StoreError> {
    let Some(directory) = data_directory(config) else {
        return Err(StoreError::Failed(
            "durability is none, so there is no store; say --data-dir".to_owned(),
        ));
    };
    let inspection = Inspection::open(&directory)?;
    match question {
        Question::Check => {
            let faults = inspection.check()?;
            if faults.is_empty() {
                say(&format!("the store in {} is sound", directory.display()));
                return Ok(ExitCode::SUCCESS);
            }
            faults.iter().for_each(|fault| complain(fault));
            return Ok(ExitCode::FAILURE);
        }
        Question::Dump => inspection.dump(Moment::now(), say)?,
        Question::Backup { file } => {
            inspection.backup(file)?;
            say(&format!("copied {} to {}", directory.display(), file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn start_log(config: &Config) {
    // The configuration was checked with the same parser, so the fallback is for nobody.
    let filter = EnvFilter::builder().parse(&config.log.level).unwrap_or_default();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| stderr::Line);
    match config.log.format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    // Behind the lines that led to it, and not for ever if nobody reads them.
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("without a name");
        stderr::say_last(&format!("thread '{name}' {panic}\n{}\n", Backtrace::capture()));
    }));
}

/// Each connection is a descriptor, and the usual soft limit of 1,024 is there for programs that use `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, soft = ?limit.current, hard = ?limit.maximum, "the descriptor limit stays as it is");
    }
}

fn configuration_line(loaded: &Loaded) -> String {
    if loaded.sources.is_empty() {
        return format!("built-in defaults (no {DEFAULT_FILE} here, nothing in the environment, no flags)");
    }
    format!("built-in defaults, {}", loaded.sources.join(", "))
}

fn banner(addresses: &[SocketAddr], configuration: &str, storage: &str) -> String {
    let mut text = format!("Homing {}: MQTT 3.1, 3.1.1 and 5.0\n", env!("CARGO_PKG_VERSION"));
    for address in addresses {
        text += &format!("  listening on    {address}\n");
    }
    text += &format!("  configuration   {configuration}\n");
    text += &format!("  storage         {storage}\n");
    if let Some(address) = addresses.first() {
        let (host, port) = (health::reachable(*address).ip(), address.port());
        text += &format!("  try it          mosquitto_sub -h {host} -p {port} -q 1 -v -t 'greetings/#'\n");
        text +=
            &format!("                  mosquitto_pub -h {host} -p {port} -q 1 -t greetings/hello -m hi\n");
    }
    text + "  stop it         Ctrl-C (SIGINT) or SIGTERM; a second one stops it at once"
}

fn check_config(loaded: &Loaded) -> String {
    let mut text = format!("configuration is valid\nread: {}", configuration_line(loaded));
    if loaded.changed.is_empty() {
        return text + "\nevery key has its built-in default";
    }
    text += "\nnot at the built-in default:";
    for setting in &loaded.changed {
        text += &format!("\n  {setting}");
    }
    text
}

fn check_health(address: Option<SocketAddr>, timeout: Duration, config: &Config) -> ExitCode {
    let Some(address) = address.or_else(|| config.listeners.addresses.first().copied()) else {
        complain("no listener is configured; say --address");
        return ExitCode::from(REFUSED);
    };
    if address.port() == 0 {
        complain(&format!(
            "{address} stands for a free port, which only the running broker knows; say --address"
        ));
        return ExitCode::from(REFUSED);
    }
    match health::check(address, timeout) {
        Ok(()) => {
            say(&format!("{address} is healthy"));
            ExitCode::SUCCESS
        }
        Err(unhealthy) => {
            complain(&format!("{address} is not healthy: {unhealthy}"));
            ExitCode::FAILURE
        }
    }
}

/// To standard output. A reader that has gone away (`homing | head -1`) is no reason to stop a broker.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// To standard error, as every line by which the command fails, behind what is logged.
fn complain(text: &str) {
    stderr::flush();
    drop(writeln!(io::stderr().lock(), "homing: {text}"));
}
