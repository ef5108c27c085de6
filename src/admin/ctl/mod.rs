//! `homing ctl`: asks a running broker through its Unix socket or a URL, and acts on clients.

mod acl;
mod actions;
mod bans;
mod bridge;
mod client;
mod dead_letters;
mod dropped;
mod endpoint;
mod error;
mod http;
mod listings;
mod messages;
mod publish;
mod settings;
mod status;
mod text;
mod tokens;
mod topics;
pub mod trace;
mod users;
mod wheel;

pub(crate) use super::routes::doctor::{CheckRow, DoctorAnswer};
pub(crate) use http::{checks, overview};
pub(crate) use settings::pending_restart;

use super::routes::login::LoginCodeAnswer;
use crate::cluster::report::ClusterReport;
use crate::escape;
use actions::ActionCommand;
use clap::{Args, Subcommand};
use dead_letters::DeadLettersCommand;
pub use endpoint::{BrokerEndpoint, EndpointArguments, EndpointDefaults};
pub use error::CtlError;
use http::{client_path, read, request};
use listings::{ClientsFlags, clients};
use messages::MessageFlags;
use settings::SettingsCommand;
use text::{Print, pretty};
use topics::TopicsCommand;

/// Flags of `homing ctl`.
#[derive(Args, Clone, Debug)]
pub struct CtlArguments {
    /// The broker that is asked.
    #[command(flatten)]
    pub endpoint: EndpointArguments,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum CtlCommand {
    /// Totals of the broker
    Status,
    /// List what is open: listeners with their protocol, TLS and connections
    Listeners,
    /// List clients
    Clients(ClientsFlags),
    /// Show a client: its messages in flight, its queue, and why it waits
    Client {
        /// The client identifier
        id: String,
    },
    /// List the messages of a client that are not acknowledged, with the reason why each waits
    Inflight(MessageFlags),
    /// List the queue of a client, with the reason why each message waits
    Queue(MessageFlags),
    /// Publish a message, and say what its PUBACK would say
    Publish(publish::PublishFlags),
    /// List, republish or delete stored dead letters
    #[command(subcommand)]
    DeadLetters(DeadLettersCommand),
    /// List, set or remove the users of clients
    #[command(subcommand)]
    Users(users::UsersCommand),
    /// Show, check or replace the rules for clients
    #[command(subcommand)]
    Acl(acl::AclCommand),
    /// List, add or remove bans
    #[command(subcommand)]
    Bans(bans::BansCommand),
    /// List, add or remove the tokens of the HTTP interface
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// Print a link that logs a browser in, once and within a minute
    Dashboard,
    /// Show the deadlines by the time in which they are due
    Wheel,
    /// List the bridges to other brokers: state, last error, messages
    Bridges,
    /// Connect or disconnect a bridge, or end its session
    #[command(subcommand)]
    Bridge(bridge::BridgeCommand),
    /// List the HTTP services that get messages: state, last error, messages
    Sinks,
    /// Delivery objectives: the share in time, and what is left of the error budget
    Slo,
    /// List the last actions of operators
    Audit {
        /// Number of actions at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// The requests that published messages, which are left out otherwise
        #[arg(long)]
        published: bool,
    },
    #[command(flatten)]
    Actions(ActionCommand),
    #[command(flatten)]
    Topics(TopicsCommand),
    #[command(flatten)]
    Settings(SettingsCommand),
}

/// Runs a command, and returns its output.
///
/// # Errors
/// Nobody answers, the broker refuses, or the answer cannot be read.
pub fn run(arguments: &CtlArguments, broker: &BrokerEndpoint) -> Result<String, CtlError> {
    let print = if arguments.json { Print::Json } else { Print::Text };
    let get = |path: &str| request(broker, "GET", path);
    Ok(match &arguments.command {
        CtlCommand::Status => return status(broker, print),
        CtlCommand::Listeners => print.answer(get("/api/v1/listeners")?, listings::listeners_table)?,
        CtlCommand::Clients(flags) => return clients(broker, flags, print),
        CtlCommand::Client { id } => print.answer(get(&client_path(id, ""))?, client::client_text)?,
        CtlCommand::Inflight(flags) => return messages::run(flags, "inflight", broker, print),
        CtlCommand::Queue(flags) => return messages::run(flags, "queue", broker, print),
        CtlCommand::Audit { limit, published } => print.answer(
            get(&format!("/api/v1/audit?limit={limit}&published={published}"))?,
            listings::audit_table,
        )?,
        CtlCommand::DeadLetters(command) => return dead_letters::run(command, broker, print),
        CtlCommand::Publish(flags) => return publish::run(flags, broker, print),
        CtlCommand::Users(command) => return users::run(command, broker, print),
        CtlCommand::Acl(command) => return acl::run(command, broker, print),
        CtlCommand::Bans(command) => return bans::run(command, broker, print),
        CtlCommand::Tokens(command) => return tokens::run(command, broker, print),
        CtlCommand::Dashboard => return dashboard(broker, print),
        CtlCommand::Wheel => print.answer(get("/api/v1/expiry")?, wheel::text)?,
        CtlCommand::Bridges => print.answer(get("/api/v1/bridges")?, listings::bridges_table)?,
        CtlCommand::Bridge(command) => return bridge::run(command, broker),
        CtlCommand::Sinks => print.answer(get("/api/v1/sinks")?, listings::sinks_table)?,
        CtlCommand::Slo => print.answer(get("/api/v1/slo")?, listings::objectives_table)?,
        CtlCommand::Actions(command) => return actions::run(command, broker, print),
        CtlCommand::Topics(command) => return topics::run(command, broker, print),
        CtlCommand::Settings(command) => return settings::run(command, broker, print),
    })
}

/// Returns the totals of a broker, or the cluster if the node stands by: then it has no totals.
fn status(broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    let refused = match overview(broker) {
        Ok(totals) => return print.answer(totals, status::totals),
        Err(CtlError::Refused(why)) => why,
        Err(error) => return Err(error),
    };
    let cluster = request(broker, "GET", "/api/v1/cluster")?;
    if cluster["cluster"].is_null() {
        return Err(CtlError::Refused(refused));
    }
    print.answer(cluster, |report: ClusterReport| {
        let text = format!("{refused}\n\n{report}");
        text.lines().map(escape::visible).collect::<Vec<_>>().join("\n")
    })
}

/// Asks for a code, and returns the link that logs a browser in.
fn dashboard(broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    let body = request(broker, "POST", "/api/v1/login/code")?;
    if print == Print::Json {
        return Ok(pretty(&body));
    }
    let LoginCodeAnswer { code, urls, .. } = read(body)?;
    let none = || CtlError::Refused("admin.addresses is off, so there are no pages".to_owned());
    // A browser reaches the broker by the URL that this command has used.
    let url = broker.url().or_else(|| urls.into_iter().next()).ok_or_else(none)?;
    Ok(format!("{url}login#code={code}"))
}
