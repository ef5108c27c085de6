//! The commands about topics: places of messages, subscribers, and retained, slow or delayed
//! messages.

use super::dropped::dropped_tables;
use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, path_with, request};
use super::listings::{self, listing, pages};
use super::text::Print;
use crate::admin::payloads::MOST;
use crate::admin::segment::segment;
use clap::{ArgGroup, Subcommand};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum TopicsCommand {
    /// Say where the messages of a topic or of a receiver are, and why they wait
    #[command(group(ArgGroup::new("about").required(true).multiple(true)))]
    Where {
        /// The topic name, or a topic filter such as 'pumps/#'
        #[arg(long, group = "about")]
        topic: Option<String>,
        /// The client identifier of the publisher
        #[arg(long, group = "about")]
        publisher: Option<String>,
        /// The client identifier of the receiver
        #[arg(long, group = "about")]
        receiver: Option<String>,
    },
    /// List the last dropped messages, and the requests of clients that were refused, with the
    /// reason
    Dropped {
        /// Only this topic name, or the topics that a filter matches
        #[arg(long)]
        topic: Option<String>,
    },
    /// List who is subscribed to a topic, who has a filter, or the subscriptions of a client
    #[command(group(ArgGroup::new("of").required(true)))]
    Subscriptions {
        /// The topic name
        #[arg(long, group = "of")]
        topic: Option<String>,
        /// The topic filter, as the clients subscribed with it
        #[arg(long, group = "of")]
        filter: Option<String>,
        /// The client identifier
        #[arg(long, group = "of")]
        client: Option<String>,
    },
    /// List the shared groups with their numbers of members
    SharedGroups {
        /// Number of groups at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// List retained messages, or delete one
    Retained {
        /// A topic filter
        #[arg(default_value = "#")]
        filter: String,
        /// Number of messages at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Show the beginnings of the payloads of up to 16 messages, too; the audit log notes each
        #[arg(long)]
        payload: bool,
        /// Delete the retained message of this topic
        #[arg(long, value_name = "TOPIC", conflicts_with = "filter")]
        delete: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// List clients and topics with deliveries of more than a second in the last hour
    Slow {
        /// Only deliveries of this topic name
        #[arg(long)]
        topic: Option<String>,
        /// Only deliveries to this client identifier
        #[arg(long)]
        receiver: Option<String>,
        /// Number of rows at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// List delayed messages of the next minute, or delete one
    Delayed {
        /// Only messages of this topic name, or of the topics that a filter matches
        #[arg(long, conflicts_with = "delete")]
        topic: Option<String>,
        /// Number of messages at most
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
        /// Delete this message, as the listing names it
        #[arg(long, value_name = "ID")]
        delete: Option<String>,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output.
pub(super) fn run(
    command: &TopicsCommand,
    broker: &BrokerEndpoint,
    print: Print,
) -> Result<String, CtlError> {
    let get = |path: &str| request(broker, "GET", path);
    Ok(match command {
        TopicsCommand::Where { topic, publisher, receiver } => {
            let parameters = [("topic", topic), ("publisher", publisher), ("receiver", receiver)];
            let body = get(&path_with("/api/v1/messages/where", &parameters))?;
            print.answer(body, listings::verdicts)?
        }
        TopicsCommand::Dropped { topic } => {
            let body = get(&path_with("/api/v1/messages/dropped", &[("topic", topic)]))?;
            print.answer(body, dropped_tables)?
        }
        TopicsCommand::Subscriptions { topic, filter, client } => {
            let parameters = [("matches", topic), ("filter", filter), ("client", client)];
            print.answer(
                get(&path_with("/api/v1/subscriptions", &parameters))?,
                listings::subscribers_tables,
            )?
        }
        TopicsCommand::SharedGroups { limit } => {
            let rows = pages(broker, "/api/v1/shared-groups?", "shared_groups", (*limit, 256))?;
            print.answer(rows, listings::groups_table)?
        }
        TopicsCommand::Retained { delete: Some(topic), note, .. } => {
            act(broker, "DELETE", &format!("/api/v1/retained?topic={}", segment(topic)), note)?;
            "the retained message is deleted".to_owned()
        }
        TopicsCommand::Retained { filter, limit, payload, delete: None, .. } => {
            let (limit, payload) =
                if *payload { ((*limit).min(MOST), "&payload=true") } else { (*limit, "") };
            let path = format!("/api/v1/retained?filter={}{payload}", segment(filter));
            let found = listing(broker, &path, "retained", (limit, 1_000))?;
            print.answer(found, listings::retained_table)?
        }
        TopicsCommand::Slow { topic, receiver, limit } => {
            let parameters = [("topic", topic), ("receiver", receiver), ("limit", &Some(limit.to_string()))];
            let body = get(&path_with("/api/v1/deliveries/slow", &parameters))?;
            print.answer(body, listings::slow_table)?
        }
        TopicsCommand::Delayed { delete: Some(id), note, .. } => {
            act(broker, "DELETE", &format!("/api/v1/delayed/{}", segment(id)), note)?;
            "the delayed message is deleted".to_owned()
        }
        TopicsCommand::Delayed { topic, limit, delete: None, .. } => {
            let path = path_with("/api/v1/delayed", &[("topic", topic)]);
            print.answer(listing(broker, &path, "delayed", (*limit, 256))?, listings::delayed_table)?
        }
    })
}
