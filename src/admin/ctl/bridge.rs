//! The commands of `homing ctl` that act on one bridge.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, act, client_path};
use crate::admin::segment::segment;
use crate::bridge::client_id;
use clap::Subcommand;

#[derive(Clone, Debug, Subcommand)]
pub(super) enum BridgeCommand {
    /// Connect a bridge now, whatever its `connect` says
    Connect {
        /// The name of the bridge
        name: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// Disconnect a bridge, until it is told to connect; its session stays
    Disconnect {
        /// The name of the bridge
        name: String,
        #[command(flatten)]
        note: NoteFlag,
    },
    /// End the session of a bridge, with its queue; a bridge of the configuration begins a new one
    End {
        /// The name of the bridge; the configuration may have it no more
        name: String,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output.
pub(super) fn run(command: &BridgeCommand, broker: &BrokerEndpoint) -> Result<String, CtlError> {
    let path = |name: &str, verb: &str| format!("/api/v1/bridges/{}/{verb}", segment(name));
    Ok(match command {
        BridgeCommand::Connect { name, note } => {
            act(broker, "POST", &path(name, "connect"), note)?;
            "the bridge connects; `homing ctl bridges` says how it goes".to_owned()
        }
        BridgeCommand::Disconnect { name, note } => {
            act(broker, "POST", &path(name, "disconnect"), note)?;
            "the bridge disconnects, until `homing ctl bridge connect`".to_owned()
        }
        BridgeCommand::End { name, note } => {
            act(broker, "DELETE", &client_path(&client_id(name), ""), note)?;
            "the session has ended".to_owned()
        }
    })
}
