//! The fields of the rows of a listing of clients.

use crate::admin::failed::Failed;
use crate::admin::request::named_once;
use crate::admin::rows::client::ClientRow;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::LazyLock;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The fields that every client has, by the type of the row.
static FIELDS: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| row_schema().properties.into_keys().map(|name| &*name.leak()).collect());

/// Returns the schema of a row with all its fields. The messages of a client are not in a row.
fn row_schema() -> Object {
    let RefOr::T(Schema::Object(mut client)) = ClientRow::schema() else {
        unreachable!("a client is an object")
    };
    let required = std::mem::take(&mut client.required);
    client.properties.retain(|name, _| required.contains(name));
    client
}

/// A client without its messages. With `fields`, a row has these fields and no other.
#[derive(Serialize)]
pub(crate) struct PartialClient(Map<String, Value>);

impl PartialSchema for PartialClient {
    fn schema() -> RefOr<Schema> {
        let mut row = row_schema();
        let text = "A client without its messages. With `fields`, a row has these fields and no other.";
        row.description = Some(text.to_owned());
        Schema::Object(row).into()
    }
}

impl ToSchema for PartialClient {
    fn schemas(others: &mut Vec<(String, RefOr<Schema>)>) {
        ClientRow::schemas(others);
    }
}

/// The fields that a request wants.
pub(super) struct ClientFields(Option<Vec<&'static str>>);

impl ClientFields {
    /// Reads names with commas between them; `None` for all fields. Errors: a name is not that of a
    /// field, or comes twice.
    pub(super) fn read(names: Option<&str>) -> Result<ClientFields, Failed> {
        let read = |names| named_once("fields", names, &FIELDS, |field| field);
        names.map(read).transpose().map(ClientFields)
    }

    /// Returns a row with the wanted fields.
    pub(super) fn of(&self, client: &impl Serialize) -> PartialClient {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(client) else {
            unreachable!("a client is an object")
        };
        if let Some(wanted) = &self.0 {
            fields.retain(|name, _| wanted.contains(&name.as_str()));
        }
        PartialClient(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_the_wanted_fields_and_all_if_none_is_named() {
        let row = json!({ "client_id": "pump", "queued": 3, "state": "away" });
        let of = |names| ClientFields::read(names).map(|fields| Value::Object(fields.of(&row).0)).ok();
        assert_eq!(of(Some("queued,client_id")), Some(json!({ "client_id": "pump", "queued": 3 })));
        assert_eq!(of(None), Some(row.clone()));
    }

    #[test]
    fn an_unknown_field_is_refused_with_the_names_of_all() {
        assert!(FIELDS.contains(&"client_id") && FIELDS.len() > 20, "{FIELDS:?}");
        for names in ["", "queued,", "queue", "client_id, queued"] {
            let refused = ClientFields::read(Some(names)).err().map(|failed| failed.to_string());
            let refused = refused.unwrap_or_else(|| panic!("{names} is admitted"));
            assert!(FIELDS.iter().all(|field| refused.contains(field)), "{refused}");
        }
    }
}
