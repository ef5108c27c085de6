//! The commands of `homing ctl` about the rules for clients, in `acl.file` and in the files of
//! single listeners.

use super::endpoint::BrokerEndpoint;
use super::error::CtlError;
use super::http::{NoteFlag, done, noted, path_with, read, request, send};
use super::publish::content;
use super::text::{Print, pretty};
use super::users::ListenerFlag;
use crate::admin::routes::acl::{AclAnswer, AclEdited};
use crate::escape;
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Subcommand)]
pub(super) enum AclCommand {
    /// Print acl.file
    Show {
        #[command(flatten)]
        of: ListenerFlag,
    },
    /// Check a text; mistakes are named with their lines
    Check {
        /// The file with the text; - for standard input
        file: PathBuf,
        #[command(flatten)]
        of: ListenerFlag,
    },
    /// Replace acl.file by a text, and put it in force
    Set {
        /// The file with the text; - for standard input
        file: PathBuf,
        /// Only if acl.file still has this version, as `--json show` prints it
        #[arg(long)]
        version: Option<String>,
        #[command(flatten)]
        of: ListenerFlag,
        #[command(flatten)]
        note: NoteFlag,
    },
}

/// Runs a command, and returns its output. Errors: the text cannot be read or has mistakes, nobody
/// answers, or the broker refuses.
pub(super) fn run(command: &AclCommand, broker: &BrokerEndpoint, print: Print) -> Result<String, CtlError> {
    match command {
        AclCommand::Show { of } => {
            let path = path_with("/api/v1/acl", &[("listener", &of.listener)]);
            let answer = request(broker, "GET", &path)?;
            if print == Print::Json {
                return Ok(pretty(&answer));
            }
            let AclAnswer { text, .. } = read(answer)?;
            let lines: Vec<String> = text.lines().map(escape::visible).collect();
            Ok(lines.join("\n"))
        }
        AclCommand::Check { file, of } => {
            let dry_run = Some("true".to_owned());
            let path = path_with("/api/v1/acl", &[("dry_run", &dry_run), ("listener", &of.listener)]);
            let answer = put(broker, &path, file)?;
            print.answer(answer, |AclEdited { changed, .. }| {
                if changed { "the text is valid" } else { "the text is valid, and is in force" }.to_owned()
            })
        }
        AclCommand::Set { file, version, of, note } => {
            let path =
                noted(&path_with("/api/v1/acl", &[("version", version), ("listener", &of.listener)]), note);
            print.answer(put(broker, &path, file)?, |AclEdited { changed, .. }| {
                if changed { "changed, and in force" } else { "nothing changed" }.to_owned()
            })
        }
    }
}

fn put(broker: &BrokerEndpoint, path: &str, file: &Path) -> Result<serde_json::Value, CtlError> {
    let text = String::from_utf8(content(file)?);
    let text = text.map_err(|_| CtlError::Argument(format!("{}: it is not UTF-8 text", file.display())))?;
    done(send(broker, "PUT", path, &json!({ "text": text }).to_string())?)
}
