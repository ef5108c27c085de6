//! Payloads of messages for operators: who may see them, how much of them, and the audit of each
//! view.

use super::access::{Caller, Scope};
use super::audit::{AuditedAction, arguments};
use super::failed::Failed;
use super::request::permit;
use super::state::AdminState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of a payload that an operator sees at most.
const SHOWN: usize = 4 << 10;

/// Messages with their payloads in one answer at most: 400 KiB of JSON.
pub(super) const MOST: usize = 16;

/// The permission of a caller to see payloads. Nothing else shows one.
pub(super) struct PayloadPermit<'a> {
    state: &'a AdminState,
    caller: &'a Caller,
}

/// The first 4 KiB of a payload: as text, or as base64 if they are no text.
#[derive(Deserialize, Serialize, ToSchema)]
#[schema(as = Payload)]
pub(crate) struct PayloadView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// In place of the text, if some bytes are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base64: Option<String>,
    /// False if there is more.
    #[serde(rename = "complete")]
    pub(crate) is_complete: bool,
}

impl<'a> PayloadPermit<'a> {
    /// Returns the permission of a caller. Errors: the caller's scope is too small, or nobody may
    /// see payloads.
    pub(super) fn of(state: &'a AdminState, caller: &'a Caller) -> Result<PayloadPermit<'a>, Failed> {
        permit(caller, Scope::Operator)?;
        if state.hides_payloads() { Err(Failed::PayloadsHidden) } else { Ok(PayloadPermit { state, caller }) }
    }

    /// Returns the beginning of a payload. Writes a line of the audit log: `target` names the
    /// message.
    pub(super) fn view(&self, target: &str, payload: &[u8]) -> PayloadView {
        self.note(target, String::new());
        PayloadView::of(payload)
    }

    /// Returns the beginnings of the payloads of messages of one client, each given with its `mid`.
    /// Writes one line of the audit log, so that a long queue does not push the other actions out.
    pub(super) fn view_page(&self, client: &str, messages: &[(&str, &[u8])]) -> Vec<PayloadView> {
        if let Some(arguments) = page_arguments(messages) {
            self.note(client, arguments);
        }
        messages.iter().map(|(_, payload)| PayloadView::of(payload)).collect()
    }

    fn note(&self, target: &str, arguments: String) {
        let action = AuditedAction { action: "view_payload", target, arguments, result: "shown".to_owned() };
        self.state.audit.note(self.caller, &action);
    }
}

/// Returns the arguments of a view of a page; `None` if it has no message. Only the first and the
/// last message are named, because all names do not fit into an entry of the audit log.
fn page_arguments(messages: &[(&str, &[u8])]) -> Option<String> {
    let ((first, _), (last, _)) = (messages.first()?, messages.last()?);
    let named = |name, mid: &str| Some((name, mid.to_owned()));
    Some(match messages.len() {
        1 => arguments(&[named("mid", first)]),
        several => {
            arguments(&[named("messages", &several.to_string()), named("first", first), named("last", last)])
        }
    })
}

impl PayloadView {
    fn of(payload: &[u8]) -> PayloadView {
        let is_complete = payload.len() <= SHOWN;
        let shown = &payload[..payload.len().min(SHOWN)];
        let text = match std::str::from_utf8(shown) {
            Ok(text) => Some(text.to_owned()),
            // The cut may be in the midst of a character of 4 bytes at most.
            Err(error) if !is_complete && error.error_len().is_none() => {
                Some(String::from_utf8_lossy(&shown[..error.valid_up_to()]).into_owned())
            }
            Err(_) => None,
        };
        let base64 = text.is_none().then(|| STANDARD.encode(shown));
        PayloadView { text, base64, is_complete }
    }
}

/// Returns the number of rows at most, of which there are fewer with payloads: `given` of the
/// request, or `default`. Errors: the number is not 1 to `most`, or not 1 to [`MOST`] with
/// payloads.
pub(super) fn limit_of(
    given: Option<usize>,
    (default, most): (usize, usize),
    permit: Option<&PayloadPermit<'_>>,
) -> Result<usize, Failed> {
    match permit {
        None => super::request::limit_of(given, default, most),
        Some(_) => super::request::limit_of(given, MOST, MOST)
            .map_err(|failed| Failed::Parameter(format!("{failed} with payloads"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_page_is_noted_with_its_number_of_messages_and_the_first_and_the_last() {
        let page = [("q1", &b"on"[..]), ("q2", b"off"), ("held", b"on")];
        assert_eq!(page_arguments(&page).as_deref(), Some("messages=3, first=q1, last=held"));
        assert_eq!(page_arguments(&page[..1]).as_deref(), Some("mid=q1"));
        assert_eq!(page_arguments(&[]), None);
    }

    fn shown(payload: &[u8]) -> Value {
        serde_json::to_value(PayloadView::of(payload)).expect("JSON")
    }

    #[test]
    fn text_is_shown_as_text_and_other_bytes_as_base64() {
        assert_eq!(shown("21 \u{b0}C".as_bytes()), json!({ "text": "21 \u{b0}C", "complete": true }));
        assert_eq!(shown(&[0xff, 1]), json!({ "base64": "/wE=", "complete": true }));
        assert_eq!(shown(b""), json!({ "text": "", "complete": true }));
    }

    #[test]
    fn the_first_4_kib_are_shown_and_a_text_is_cut_between_two_characters() {
        let long = "x".repeat(SHOWN) + "y";
        assert_eq!(shown(long.as_bytes()), json!({ "text": "x".repeat(SHOWN), "complete": false }));
        let across = "x".repeat(SHOWN - 1) + "\u{e9}";
        assert_eq!(shown(across.as_bytes()), json!({ "text": "x".repeat(SHOWN - 1), "complete": false }));
        let text = shown(&[0xff; SHOWN + 1])["base64"].as_str().map(str::len);
        assert_eq!(text, Some(SHOWN.div_ceil(3) * 4));
    }
}
