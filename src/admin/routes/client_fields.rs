//! The fields of the rows of a listing of clients.

use crate::admin::failed::Failed;
use crate::admin::request::named_once;
use serde_json::Value;

/// The fields of a row. A test compares them with those of a real one.
const FIELDS: [&str; 16] = [
    "client_id",
    "ref",
    "user",
    "version",
    "state",
    "address",
    "listener",
    "session_expiry",
    "ends_in",
    "in_flight",
    "queued",
    "queued_bytes",
    "held",
    "subscription_count",
    "oldest_unacknowledged",
    "next_deadline_in",
];

/// The fields that a request wants.
pub(super) struct ClientFields(Option<Vec<&'static str>>);

impl ClientFields {
    /// Reads names with commas between them; `None` for all fields.
    ///
    /// # Errors
    /// A name is not that of a field, or comes twice.
    pub(super) fn read(names: Option<&str>) -> Result<ClientFields, Failed> {
        let read = |names| named_once("fields", names, &FIELDS, |field| field);
        names.map(read).transpose().map(ClientFields)
    }

    /// Returns a row with the wanted fields.
    pub(super) fn of(&self, mut row: Value) -> Value {
        if let (Some(wanted), Value::Object(fields)) = (&self.0, &mut row) {
            fields.retain(|name, _| wanted.contains(&name.as_str()));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_the_wanted_fields_and_all_if_none_is_named() {
        let row = json!({ "client_id": "pump", "queued": 3, "state": "away" });
        let of = |names| ClientFields::read(names).map(|fields| fields.of(row.clone())).ok();
        assert_eq!(of(Some("queued,client_id")), Some(json!({ "client_id": "pump", "queued": 3 })));
        assert_eq!(of(None), Some(row.clone()));
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_names_of_all() {
        for names in ["", "queued,", "queue", "client_id, queued"] {
            let refused = ClientFields::read(Some(names)).err().map(|failed| failed.to_string());
            let refused = refused.unwrap_or_else(|| panic!("{names} is admitted"));
            assert!(FIELDS.iter().all(|field| refused.contains(field)), "{refused}");
        }
    }
}
