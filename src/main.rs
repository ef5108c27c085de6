//! The `homing` command: parses arguments, reads the configuration, starts the log, and runs one
//! command.
//!
//! The broker itself is in the library.

mod program;

use clap::{Parser, Subcommand};
#[cfg(feature = "admin")]
use homing::admin::credentials::token_command::TokenArguments;
#[cfg(feature = "admin")]
use homing::admin::credentials::user_command::UserArguments;
#[cfg(feature = "admin")]
use homing::admin::ctl::CtlArguments;
#[cfg(feature = "admin")]
use homing::admin::ctl::trace::TraceArguments;
use homing::auth::passwd::PasswdArguments;
use homing::health::command::HealthArguments;
#[cfg(feature = "load")]
use homing::load::{self, LoadArguments};
use program::cluster::ClusterQuery;
use program::commands::{ImportArguments, change_passwords, check_health, translate};
use program::data::{StoreQuery, inspect_store};
use program::doctor::{check, check_refused, check_with_files};
use program::manual::{self, CompletedShell};
use program::output::{complain, printed, refuse, say};
use program::serve::{running_address, serve};
use program::settings::{Settings, check_config, read_configuration, read_without_file};
use std::process::ExitCode;

/// Thousands of connections hold messages of many sizes. jemalloc returns free memory to the system
/// and reports its use.
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
  homing doctor                              look for trouble before users do
  homing health                              check a running broker; exit code 0 or 1
  homing passwd FILE USER                    set the password of a user
  homing ctl clients --stuck 10s             who has not acknowledged a message for 10 s, and why
  homing ctl where --topic pumps/7/set       where the messages of a topic are, and why they wait
  homing ctl dashboard                       print a link that logs a browser in to the pages
  homing admin-user FILE NAME                add a user of the HTTP interface and its pages
  homing admin-token FILE NAME               make a token for a program that uses it
  homing import mosquitto.conf > my.toml     translate a configuration of mosquitto

Configuration, a later layer wins: built-in defaults; one file,
the first of --config FILE, HOMING_CONFIG, config/homing.toml in the working
directory and /etc/homing/homing.toml; environment HOMING_SECTION__KEY; flags.
config/homing.toml and docs/configuration.md explain every key.

Exit codes: 0 stopped in order; 1 could not start, is not healthy, the store
is not sound, or the doctor found a fault; 2 arguments or configuration refused.";

#[derive(Parser)]
#[command(version, about = "An MQTT 3.1, 3.1.1 and 5.0 broker that keeps trying until the message is home")]
#[command(after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Option<HomingCommand>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum HomingCommand {
    #[command(flatten)]
    Broker(Box<BrokerCommand>),
    /// Make and change a password file; files of mosquitto_passwd work, too
    Passwd(PasswdArguments),
    /// Translate a mosquitto.conf; the result goes to standard output, every difference to
    /// standard error
    Import(ImportArguments),
    /// Make a token for the HTTP interface, and print it
    #[cfg(feature = "admin")]
    AdminToken(TokenArguments),
    /// Add a user of the HTTP interface, or change the password
    #[cfg(feature = "admin")]
    AdminUser(UserArguments),
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
    /// Check the configuration and the files that it names, and list what differs from the
    /// defaults; start nothing
    CheckConfig {
        /// Check the configuration alone, as for another machine
        #[arg(long)]
        without_files: bool,
    },
    /// Look for trouble: the configuration, the machine, the data directory, a running broker
    Doctor {
        /// Ask the services of sinks by a POST with an empty batch; by OPTIONS without this flag,
        /// to which a service does nothing
        #[arg(long)]
        post_to_sinks: bool,
    },
    /// Connect to a running broker as a client, and check that it answers
    Health(HealthArguments),
    /// Ask a running broker about its clients, and act on them
    #[cfg(feature = "admin")]
    Ctl(CtlArguments),
    /// Follow the packets of clients and the way of messages through a running broker
    #[cfg(feature = "admin")]
    Trace(TraceArguments),
    /// Make a cluster of several machines, and look at it
    Cluster {
        #[command(subcommand)]
        query: ClusterQuery,
    },
    /// Inspect the data directory; reads only, also while a broker uses it
    Store {
        #[command(subcommand)]
        query: StoreQuery,
    },
}

impl BrokerCommand {
    /// Returns true if the command only asks a broker that runs already.
    fn asks_running_broker(&self) -> bool {
        match self {
            #[cfg(feature = "admin")]
            BrokerCommand::Ctl(_) | BrokerCommand::Trace(_) => true,
            BrokerCommand::Health(_) => true,
            BrokerCommand::Serve
            | BrokerCommand::CheckConfig { .. }
            | BrokerCommand::Doctor { .. }
            | BrokerCommand::Cluster { .. }
            | BrokerCommand::Store { .. } => false,
        }
    }
}

fn main() -> ExitCode {
    let Arguments { command, settings } = match Arguments::try_parse() {
        // A load test is often one line of a script, so its refusal is one line, too. Without a
        // scenario, the "error" is the help.
        #[cfg(feature = "load")]
        Err(error)
            if error.use_stderr()
                && error.kind() != clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                && std::env::args().nth(1).is_some_and(|first| first == "load") =>
        {
            complain(&format!("load: {}", load::one_line(&error)));
            return ExitCode::from(program::output::REFUSED);
        }
        parsed => parsed.unwrap_or_else(|error| error.exit()),
    };
    match command {
        None => run(BrokerCommand::Serve, &settings),
        Some(HomingCommand::Broker(command)) => run(*command, &settings),
        Some(HomingCommand::Passwd(arguments)) => change_passwords(&arguments),
        Some(HomingCommand::Import(arguments)) => translate(&arguments),
        #[cfg(feature = "admin")]
        Some(HomingCommand::AdminToken(arguments)) => program::commands::make_token(&arguments),
        #[cfg(feature = "admin")]
        Some(HomingCommand::AdminUser(arguments)) => program::commands::change_user(&arguments),
        #[cfg(feature = "load")]
        Some(HomingCommand::Load(arguments)) => {
            program::serve::raise_descriptor_limit();
            load::run(&arguments)
        }
        Some(HomingCommand::Completions { shell }) => {
            printed(|output| manual::completions::<Arguments>(shell, output))
        }
        Some(HomingCommand::Manual) => printed(manual::manual_page::<Arguments>),
    }
}

/// Reads the configuration and carries out one command with it.
fn run(command: BrokerCommand, settings: &Settings) -> ExitCode {
    let loaded = match read_configuration(settings) {
        Ok(loaded) => loaded,
        Err(refusal) if matches!(command, BrokerCommand::Doctor { .. }) => return check_refused(&refusal),
        // The broker runs with the earlier file. `homing ctl` must work while the file is broken:
        // to see the broker's state, and for `ctl reload`, so that the broker itself refuses.
        Err(refusal) if command.asks_running_broker() => match read_without_file(settings) {
            Ok(loaded) => {
                complain(&format!("the configuration file has a mistake and is left out: {refusal}"));
                loaded
            }
            Err(_) => return refuse(&refusal),
        },
        Err(refusal) => return refuse(&refusal),
    };
    match command {
        BrokerCommand::Serve => serve(loaded, settings),
        BrokerCommand::Doctor { post_to_sinks } => check(&loaded, post_to_sinks),
        BrokerCommand::CheckConfig { without_files: false } => check_with_files(&loaded),
        BrokerCommand::CheckConfig { without_files: true } => {
            say(&check_config(&loaded, "not read (--without-files)"));
            ExitCode::SUCCESS
        }
        #[cfg(feature = "admin")]
        BrokerCommand::Ctl(arguments) => program::control::control(&arguments, &loaded.config),
        #[cfg(feature = "admin")]
        BrokerCommand::Trace(arguments) => program::control::follow(&arguments, &loaded.config),
        BrokerCommand::Cluster { query } => program::cluster::query(&query, &loaded.config),
        BrokerCommand::Store { query } => inspect_store(&query, &loaded.config),
        BrokerCommand::Health(arguments) => {
            // An address on the command line wins over the address that a broker has written to its
            // file.
            let running = if settings.names_listener() { None } else { running_address(&loaded.config) };
            check_health(&arguments, running, &loaded.config)
        }
    }
}
