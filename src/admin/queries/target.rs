//! The session that a request is about.

use crate::admin::failed::Failed;
use crate::admin::names::SessionPlace;
use crate::admin::state::AdminState;
use crate::broker::observer::Observer;
use crate::operators::query::SessionName;
use serde::Deserialize;
use utoipa::ToSchema;

/// The parameters of one session.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneParameters {
    #[serde(rename = "ref")]
    pub(crate) reference: Option<String>,
}

/// The session that a request is about.
#[derive(Clone, Debug)]
pub(crate) struct ClientTarget {
    pub(crate) session: SessionName,
    /// The client identifier, or the `ref` of the request.
    pub(crate) shown: String,
    /// The shard of a session that is named by its place; `None`: the shard of the client `shown`.
    shard: Option<usize>,
}

impl ClientTarget {
    pub(crate) fn client(client_id: &str) -> ClientTarget {
        ClientTarget {
            session: SessionName::Client(client_id.into()),
            shown: client_id.to_owned(),
            shard: None,
        }
    }

    /// Reads the target of a path. A `ref` wins over the client identifier in the path. Errors: the
    /// `ref` is invalid or of another process.
    pub(crate) fn read(
        client_id: &str,
        reference: Option<&str>,
        state: &AdminState,
    ) -> Result<ClientTarget, Failed> {
        let Some(reference) = reference else { return Ok(ClientTarget::client(client_id)) };
        let SessionPlace { shard, id } = state.process.session(reference).ok_or(Failed::NoSuchClient)?;
        let (session, shown) = (SessionName::At(id), reference.to_owned());
        Ok(ClientTarget { session, shown, shard: Some(shard.into()) })
    }

    /// Returns the number of the session's shard.
    pub(crate) fn shard(&self, observer: &Observer) -> usize {
        self.shard.unwrap_or_else(|| observer.shard_of(&self.shown))
    }
}
