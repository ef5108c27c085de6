//! The `homing` command: parses arguments, reads the configuration, starts the log, and runs one
//! command.
//!
//! The broker itself is in the library.

#[cfg(feature = "admin")]
mod administration;
mod banner;
mod manual;

#[cfg(feature = "admin")]
use administration::{AdminPart, StoreOpened};
use banner::{banner, plain_addresses, warn_of_entrances};
use clap::{Args, Parser, Subcommand};
#[cfg(feature = "admin")]
use homing::admin::ctl::trace::TraceArguments;
#[cfg(feature = "admin")]
use homing::admin::ctl::{self, CtlArguments, CtlError};
#[cfg(feature = "admin")]
use homing::admin::token_command::{self, TokenArguments};
use homing::auth::passwd::{self, PasswdArguments, PasswdError};
use homing::broker::{Broker, Signals};
use homing::clock;
use homing::config::{Config, DEFAULT_FILES, Durability, Loaded, Refusal, Sources, duration};
use homing::health;
use homing::health::command::HealthArguments;
use homing::import::mosquitto;
#[cfg(feature = "load")]
use homing::load::{self, LoadArguments};
use homing::log::{self, stderr};
use homing::service;
use homing::store::sqlite::inspect::StoreInspection;
use homing::store::sqlite::{self, Sqlite};
use homing::store::{Moment, Store, StoreError};
use manual::CompletedShell;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Thousands of connections hold messages of many sizes. jemalloc returns free memory to the system
/// and reports its use.
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The exit code for wrong arguments or configuration; nothing was started. clap uses the same
/// code.
const REFUSED: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  homing                                     listen on 127.0.0.1:1883
  homing --listen 127.0.0.1:0                ... on a free port, which is printed
  homing --listen 0.0.0.0:1883 --listen '[::]:1883'
                                             ... on all interfaces; nobody may connect from there
                                             before auth.password_file or auth.anonymous is set
  homing --set redelivery.interval=5s        resend to 3.x clients after 5 s
  HOMING_LOG__LEVEL=debug homing             see redeliveries in the log
  homing --data-dir /var/lib/homing          store sessions, queues and retained messages there
  homing --ephemeral                         ... or store nothing
  homing check-config --config my.toml       check a file, and list what it changes
  homing store dump                          list sessions and queues, also of a running broker
  homing store backup copy.db                a copy of one moment, also while the broker runs
  homing health                              check a running broker; exit code 0 or 1
  homing passwd FILE USER                    set the password of a user
  homing ctl clients --stuck 10s             who has not acknowledged a message for 10 s, and why
  homing admin-token FILE NAME               make a token for the HTTP interface
  homing import mosquitto.conf > my.toml     translate a configuration of mosquitto

Configuration, a later layer wins: built-in defaults; one file,
the first of --config FILE, HOMING_CONFIG, config/homing.toml in the working
directory and /etc/homing/homing.toml; environment HOMING_SECTION__KEY; flags.
config/homing.toml and docs/configuration.md explain every key.

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
    #[command(flatten)]
    Broker(BrokerCommand),
    /// Make and change a password file; files of mosquitto_passwd work, too
    Passwd(PasswdArguments),
    /// Translate a mosquitto.conf; the result goes to standard output, every difference to
    /// standard error
    Import {
        /// mosquitto's file
        #[arg(value_name = "MOSQUITTO.CONF")]
        file: PathBuf,
        /// Print the result and exit with 0 even where something would be lost
        #[arg(long)]
        lenient: bool,
    },
    /// Make a token for the HTTP interface, and print it
    #[cfg(feature = "admin")]
    AdminToken(TokenArguments),
    #[cfg(feature = "load")]
    Load(Box<LoadArguments>),
    /// Print the script that completes the arguments in a shell
    Completions { shell: CompletedShell },
    /// Print the manual page, homing(1), as troff
    Manual,
}

/// The commands that read the broker's configuration first.
#[derive(Subcommand)]
enum BrokerCommand {
    /// Run the broker; the default without a command
    Serve,
    /// Check the configuration and list what differs from the defaults; start nothing
    CheckConfig,
    /// Connect to a running broker as a client, and check that it answers
    Health(HealthArguments),
    /// Ask a running broker about its clients, and act on them
    #[cfg(feature = "admin")]
    Ctl(CtlArguments),
    /// Follow the packets of clients and the way of messages through a running broker
    #[cfg(feature = "admin")]
    Trace(TraceArguments),
    /// Inspect the data directory; reads only, also while a broker uses it
    Store {
        #[command(subcommand)]
        query: StoreQuery,
    },
}

#[derive(Subcommand)]
enum StoreQuery {
    /// Check that the store is sound; reads all of it; exit code 0 or 1
    Check,
    /// List totals, then for each session its state, queue, messages in flight and the oldest one
    Dump,
    /// Copy the store, as it is at one moment, into a new file
    Backup {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args, Clone)]
struct Settings {
    /// Listen here instead of on network.listen; repeat for several. Port 0 takes a free port
    #[arg(long, value_name = "ADDR:PORT", global = true)]
    listen: Vec<String>,
    /// Read this file [default: HOMING_CONFIG, else config/homing.toml here, else
    /// /etc/homing/homing.toml]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of the store [default: systemd's STATE_DIRECTORY, else homing-data here]
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "ephemeral")]
    data_dir: Option<String>,
    /// Store nothing: sessions and messages end with the process
    #[arg(long, global = true)]
    ephemeral: bool,
    /// Set any key of the configuration; repeat for several
    #[arg(long, value_name = "SECTION.KEY=VALUE", global = true)]
    set: Vec<String>,
    /// Log level: error, warn, info, debug, trace, or directives such as info,homing::broker=debug
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    /// Log format on standard error: auto, text, json or journal
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<String>,
}

fn main() -> ExitCode {
    let Arguments { command, settings } = match Arguments::try_parse() {
        // A load test is often one line of a script, so its refusal is one line, too.
        #[cfg(feature = "load")]
        Err(error) if error.use_stderr() && std::env::args().nth(1).is_some_and(|first| first == "load") => {
            complain(&format!("load: {}", load::one_line(&error)));
            return ExitCode::from(REFUSED);
        }
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    match command {
        None => run(BrokerCommand::Serve, &settings),
        Some(Command::Broker(command)) => run(command, &settings),
        Some(Command::Passwd(arguments)) => change_passwords(&arguments),
        Some(Command::Import { file, lenient }) => import(&file, lenient),
        #[cfg(feature = "admin")]
        Some(Command::AdminToken(arguments)) => make_token(&arguments),
        #[cfg(feature = "load")]
        Some(Command::Load(arguments)) => {
            raise_descriptor_limit();
            load::run(&arguments)
        }
        Some(Command::Completions { shell }) => {
            printed(|output| manual::completions::<Arguments>(shell, output))
        }
        Some(Command::Manual) => printed(manual::manual_page::<Arguments>),
    }
}

/// Reads the configuration and carries out one command with it.
fn run(command: BrokerCommand, settings: &Settings) -> ExitCode {
    let loaded = match read_configuration(settings) {
        Ok(loaded) => loaded,
        Err(refusal) => return refuse(&refusal),
    };
    match command {
        BrokerCommand::Serve => serve(loaded, settings.clone()),
        BrokerCommand::CheckConfig => {
            say(&check_config(&loaded));
            ExitCode::SUCCESS
        }
        #[cfg(feature = "admin")]
        BrokerCommand::Ctl(arguments) => control(&arguments, &loaded.config),
        #[cfg(feature = "admin")]
        BrokerCommand::Trace(arguments) => follow(&arguments, &loaded.config),
        BrokerCommand::Store { query } => match inspect_store(&query, &loaded.config) {
            Ok(code) => code,
            Err(error) => {
                complain(&error.to_string());
                ExitCode::FAILURE
            }
        },
        BrokerCommand::Health(arguments) => {
            // An address on the command line wins over the address that a broker has written to its
            // file.
            let running = if settings.listen.is_empty() { running_address(&loaded.config) } else { None };
            check_health(&arguments, running, &loaded.config)
        }
    }
}

/// Reads all layers of the configuration. A flag such as `--listen` wins over `--set`.
///
/// # Errors
/// All problems of all layers, each with its source.
fn read_configuration(settings: &Settings) -> Result<Loaded, Refusal> {
    let named = std::env::var_os("HOMING_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let sources = match settings.config.clone().or(named) {
        Some(path) => Sources::new().file(path),
        None => Sources::new().first_file_of(&DEFAULT_FILES),
    };
    let mut sources = sources.environment(std::env::vars_os());
    for text in &settings.set {
        sources = sources.assignment(text);
    }
    if !settings.listen.is_empty() {
        sources = sources.flag("--listen", "network.listen", &settings.listen.join(","));
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

fn serve(loaded: Loaded, settings: Settings) -> ExitCode {
    log::start(&loaded.config.log);
    raise_descriptor_limit();
    service::starts();
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
    // Before the store is opened, so that a probe learns that the broker is starting. The socket of
    // a new data directory comes with the directory.
    #[cfg(feature = "admin")]
    let (mut admin, socket) = (AdminPart::Waits, socket_path(&loaded.config));
    #[cfg(feature = "admin")]
    if let Err(error) = admin.start(&loaded.config, socket.as_deref(), StoreOpened::No) {
        complain(&error.to_string());
        return ExitCode::FAILURE;
    }
    let store = match open_store(&loaded.config) {
        Ok(store) => store,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    #[cfg(feature = "admin")]
    if let Err(error) = admin.start(&loaded.config, socket.as_deref(), StoreOpened::Yes) {
        complain(&error.to_string());
        return ExitCode::FAILURE;
    }
    let broker = match Broker::start_with(loaded.config, store) {
        Ok(broker) => broker,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    broker.read_again_by(Box::new(move || read_configuration(&settings)));
    warn_of_entrances(&broker);
    if let Some(file) = &addresses_file {
        // `homing health` asks the first address, and speaks plain MQTT.
        let is_plain = |address: &&SocketAddr| plain_addresses(&broker).any(|plain| plain == **address);
        let others = broker.addresses().iter().filter(|address| !is_plain(address)).copied();
        let addresses: String =
            plain_addresses(&broker).chain(others).map(|address| format!("{address}\n")).collect();
        if let Err(error) = std::fs::write(file, addresses) {
            let file = file.display();
            tracing::warn!(event = "broker.addresses_file_failed", %file, %error, "network.addresses_file cannot be written, so `homing health` needs --address; check the path and its permissions");
        }
    }
    #[cfg(feature = "admin")]
    let administration = admin.started(&broker);
    #[cfg(not(feature = "admin"))]
    let administration: Option<String> = None;
    say(&banner(&broker, &configuration, &storage, administration.as_deref()));
    let observer = broker.observer();
    service::is_ready(move || observer.statistics().is_alive(clock::now()));
    let code = broker.run(signals);
    if let Some(file) = &addresses_file {
        // The file may not exist, if it could not be written.
        drop(std::fs::remove_file(file));
    }
    stderr::flush();
    code
}

fn addresses_file(config: &Config) -> Option<PathBuf> {
    let file = &config.network.addresses_file;
    (!file.is_empty()).then(|| PathBuf::from(file))
}

/// Returns the first address in `network.addresses_file`, or `None` without such a file.
fn running_address(config: &Config) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(addresses_file(config)?).ok()?;
    text.lines().next()?.parse().ok()
}

/// Opens the store that the configuration names. Returns `None` with `store.durability = "none"`.
///
/// # Errors
/// The directory or the database cannot be used.
fn open_store(config: &Config) -> Result<Option<Box<dyn Store>>, StoreError> {
    let Some(directory) = data_directory(config) else { return Ok(None) };
    let limit = config.store.size_limit.bytes();
    let size_limit = (limit > 0).then_some(limit);
    let options = sqlite::SqliteOptions { durability: config.store.durability, size_limit };
    Ok(Some(Box::new(Sqlite::open(&directory, options)?)))
}

fn data_directory(config: &Config) -> Option<PathBuf> {
    config.store.directory(std::env::var_os("STATE_DIRECTORY").as_deref())
}

/// Returns the path of the Unix socket of the HTTP interface; `None` for none.
#[cfg(feature = "admin")]
fn socket_path(config: &Config) -> Option<PathBuf> {
    let data = data_directory(config);
    config.admin.socket_path(std::env::var_os("RUNTIME_DIRECTORY").as_deref(), data.as_deref())
}

/// Returns the line of the banner that says where the store is, and what an acknowledgement
/// promises.
fn storage_line(config: &Config) -> String {
    let Some(directory) = data_directory(config) else {
        return "memory: sessions, queued and retained messages end with this process".to_owned();
    };
    let promise = match config.store.durability {
        Durability::Commit => "an acknowledged message is on the disk".to_owned(),
        Durability::Interval => {
            format!(
                "an acknowledged message is on the disk within {}",
                duration::format(config.store.sync_interval)
            )
        }
        Durability::Os | Durability::None => {
            "an acknowledged message survives a crash of the process, not of the machine".to_owned()
        }
    };
    format!("{}: {promise}", directory.display())
}

fn inspect_store(query: &StoreQuery, config: &Config) -> Result<ExitCode, StoreError> {
    let Some(directory) = data_directory(config) else {
        return Err(StoreError::Failed(
            "store.durability is none, so there is no store; name one with --data-dir".to_owned(),
        ));
    };
    let inspection = StoreInspection::open(&directory)?;
    match query {
        StoreQuery::Check => {
            let faults = inspection.check()?;
            if faults.is_empty() {
                say(&format!("the store in {} is sound", directory.display()));
                return Ok(ExitCode::SUCCESS);
            }
            faults.iter().for_each(|fault| complain(fault));
            return Ok(ExitCode::FAILURE);
        }
        StoreQuery::Dump => inspection.dump(Moment::now(), say)?,
        StoreQuery::Backup { file } => {
            inspection.backup(file)?;
            say(&format!("copied {} to {}", directory.display(), file.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Translates a mosquitto.conf. Prints nothing to standard output where protection would be lost,
/// so that a redirected file is not started by mistake.
fn import(file: &Path, lenient: bool) -> ExitCode {
    let imported = match mosquitto::import(file) {
        Ok(imported) => imported,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    imported.notes.iter().for_each(|note| complain(note));
    if imported.lost > 0 && !lenient {
        let lost = imported.lost;
        complain(&format!(
            "nothing is printed, because {lost} settings would be lost; --lenient prints it all the same"
        ));
        return ExitCode::FAILURE;
    }
    say(imported.toml.trim_end());
    ExitCode::SUCCESS
}

#[cfg(feature = "admin")]
fn make_token(arguments: &TokenArguments) -> ExitCode {
    match token_command::run(arguments) {
        Ok(token) => {
            say(&token.unwrap_or_else(|| "deleted".to_owned()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Exit codes: 0 done, 1 refused, 2 arguments, 3 not reachable.
#[cfg(feature = "admin")]
fn control(arguments: &CtlArguments, config: &Config) -> ExitCode {
    let outcome = ask_by_socket(arguments.socket.as_deref(), config, |socket| ctl::run(arguments, socket));
    outcome.map_or_else(
        |code| code,
        |text| {
            say(&text);
            ExitCode::SUCCESS
        },
    )
}

/// Prints the steps of a new trace until it ends. Exit codes as of `control`.
#[cfg(feature = "admin")]
fn follow(arguments: &TraceArguments, config: &Config) -> ExitCode {
    let run = |socket: &Path| ctl::trace::run(arguments, socket);
    ask_by_socket(arguments.socket.as_deref(), config, run).map_or_else(|code| code, |()| ExitCode::SUCCESS)
}

/// Runs a command on the Unix socket of the broker.
///
/// # Errors
/// The exit code of a failure, which was printed.
#[cfg(feature = "admin")]
fn ask_by_socket<T>(
    named: Option<&Path>,
    config: &Config,
    run: impl FnOnce(&Path) -> Result<T, CtlError>,
) -> Result<T, ExitCode> {
    let Some(socket) = named.map(Path::to_path_buf).or_else(|| socket_path(config)) else {
        complain("there is no Unix socket: set admin.socket, or name it with --socket");
        return Err(ExitCode::from(REFUSED));
    };
    run(&socket).map_err(|error| {
        complain(&error.to_string());
        match error {
            CtlError::NotReachable { .. } => ExitCode::from(3),
            CtlError::Configuration(_) => ExitCode::from(REFUSED),
            CtlError::Refused(_) | CtlError::Answer(_) => ExitCode::FAILURE,
        }
    })
}

fn change_passwords(arguments: &PasswdArguments) -> ExitCode {
    match passwd::run(arguments) {
        Ok(report) => {
            report.lines.iter().for_each(|line| say(line));
            report.warnings.iter().for_each(|line| complain(line));
            if report.is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&error.to_string());
            match error {
                PasswdError::Arguments(_) | PasswdError::UserName(_) => ExitCode::from(REFUSED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Raises the soft limit of descriptors to the hard limit, because each connection takes one
/// descriptor.
///
/// The usual soft limit of 1,024 protects programs that use `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(event = "broker.descriptors_limited", %error, soft = ?limit.current, hard = ?limit.maximum, "the descriptor limit cannot be raised: it bounds the number of connections");
    }
}

/// Returns the sources of the configuration, lowest layer first. A file without a single key is
/// named, too.
fn configuration_line(loaded: &Loaded) -> String {
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    let others = loaded.sources.iter().filter(|name| Some(*name) != file.as_ref()).cloned();
    let read: Vec<String> = file.iter().cloned().chain(others).collect();
    match (&file, read.is_empty()) {
        (None, true) => {
            let [here, system] = DEFAULT_FILES;
            format!("built-in defaults; neither {here} nor {system} exists")
        }
        _ => format!("built-in defaults, {}", read.join(", ")),
    }
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

fn check_health(arguments: &HealthArguments, running: Option<SocketAddr>, config: &Config) -> ExitCode {
    let target = match arguments.target(running, config) {
        Ok(target) => target,
        Err(refused) => {
            complain(&refused);
            return ExitCode::from(REFUSED);
        }
    };
    let address = &target.address;
    match health::check(&target, arguments.timeout) {
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

/// Writes a line to standard output. A missing reader (`homing | head -1`) does not stop the
/// broker.
fn say(text: &str) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Lets `print` write to standard output. A reader that closes it early, as `head` does, is no
/// failure.
fn printed(print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> ExitCode {
    let mut output = io::stdout().lock();
    match print(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes the line by which the command fails to standard error, behind all log lines.
fn complain(text: &str) {
    stderr::flush();
    drop(writeln!(io::stderr().lock(), "homing: {text}"));
}
