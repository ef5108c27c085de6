//! Changes of the files about clients, with their lines of the audit log.

use super::access::Scope;
use super::audit::Parameter;
use super::failed::Failed;
use super::operator::Operator;
use super::problem_kind::ProblemKind;
use super::state::State;
use crate::broker::file_edits::{
    ClientFile, ClientFileContent, ContentChange, FileEdit, FileEdited, NotEdited,
};
use crate::broker::reload::ReloadMode;
use crate::clock;
use crate::file_thread::NotRead;
use std::time::Duration;
use tokio::time::timeout;

/// Time for the answer to a change: less than a request has.
const CHANGE: Duration = Duration::from_secs(8);

/// A change of a file, as the audit log has it.
pub(super) struct FileAction {
    pub(super) file: ClientFile,
    pub(super) mode: ReloadMode,
    /// The scope that the operator needs.
    pub(super) needed: Scope,
    pub(super) action: &'static str,
    pub(super) target: String,
    pub(super) parameter: Option<Parameter>,
}

/// Changes a file about clients, puts it in force, and writes a line of the audit log. Errors: the
/// operator's scope is too small, or the file is not changed. If the disk hangs, nobody knows.
pub(super) async fn edit(
    operator: &Operator,
    what: FileAction,
    change: ContentChange,
) -> Result<FileEdited, Failed> {
    operator.permit(what.needed)?;
    let end = clock::now() + CHANGE;
    // A change is made to its end, so those that wait are bounded here.
    let turn = timeout(CHANGE, operator.state.files.turn()).await;
    let turn = turn.ok().flatten().ok_or(Failed::Busy)?;
    let observer = operator.state.running()?.clone();
    let FileAction { file, mode, action, target, parameter, .. } = what;
    let of = file.listener.clone().map(|listener| ("listener", listener));
    let work = async move {
        let _turn = turn;
        let done = observer.edit_file(FileEdit { file, change, mode }).await;
        done.map_err(|_| Failed::Unconfirmed)?.map_err(Failed::from)
    };
    let (named, parameters) = ((action, &*target), [parameter, of]);
    let edit = operator.act_or_check(mode, named, &parameters, work, |_| "done".to_owned());
    timeout(end.since(clock::now()), edit).await.unwrap_or(Err(Failed::Unconfirmed))
}

/// Returns the content of a file about clients. Errors: the configuration names none, or it cannot
/// be read.
pub(super) async fn content(state: &State, file: ClientFile) -> Result<ClientFileContent, Failed> {
    let observer = state.running()?;
    let read = timeout(CHANGE, observer.read_file(file)).await.map_err(|_| Failed::Busy)?;
    read.map_err(|_| Failed::Busy)?.map_err(|why| match why {
        NotEdited::Hangs(_) => Failed::Busy,
        other => other.into(),
    })
}

impl From<NotEdited> for Failed {
    fn from(why: NotEdited) -> Failed {
        let conflict = |kind, why: &NotEdited| Failed::Conflict(kind, why.to_string());
        match why {
            NotEdited::Mistakes(mistakes) => Failed::Mistakes(mistakes),
            NotEdited::NoEntry => conflict(ProblemKind::NoSuchEntry, &why),
            NotEdited::OtherVersion => conflict(ProblemKind::OtherVersion, &why),
            NotEdited::NoFile(_) => conflict(ProblemKind::NoFile, &why),
            NotEdited::NotSynced(_) | NotEdited::Hangs(NotRead::Late(..)) => {
                conflict(ProblemKind::Unconfirmed, &why)
            }
            // Nothing has begun.
            NotEdited::Hangs(NotRead::Busy(_) | NotRead::NoThread(_)) => Failed::Busy,
            NotEdited::NotWritten(_) | NotEdited::Missing(_) | NotEdited::NotRead(_) => {
                conflict(ProblemKind::FileUnusable, &why)
            }
        }
    }
}
