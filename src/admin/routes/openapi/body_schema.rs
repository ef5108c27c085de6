//! The schemas of bodies, made from the types that handlers answer with and read.

use serde_json::map::Entry;
use serde_json::{Map, Value};
use std::borrow::Cow;
use utoipa::ToSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

/// The schema of one type of bodies.
#[derive(Clone, Copy)]
pub(in crate::admin::routes) struct BodySchema {
    side: BodySide,
    name: fn() -> Cow<'static, str>,
    schema: fn() -> RefOr<Schema>,
    /// Adds the schemas that it refers to.
    add_others: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// The side of an exchange.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BodySide {
    Request,
    /// serde writes a field that is `None` as null, or leaves it out.
    Answer,
}

impl BodySchema {
    /// Returns the schema of an answer.
    pub(in crate::admin::routes) const fn of_answer<T: ToSchema>() -> BodySchema {
        BodySchema::of::<T>(BodySide::Answer)
    }

    /// Returns the schema of the body of a request.
    pub(in crate::admin::routes) const fn of_request<T: ToSchema>() -> BodySchema {
        BodySchema::of::<T>(BodySide::Request)
    }

    const fn of<T: ToSchema>(side: BodySide) -> BodySchema {
        BodySchema { side, name: T::name, schema: T::schema, add_others: T::schemas }
    }

    /// Returns the name of the schema among the parts of the document.
    pub(super) fn name(self) -> Cow<'static, str> {
        (self.name)()
    }

    /// Adds the schema, and those that it refers to, to the parts of the document.
    pub(super) fn add_to(self, parts: &mut Map<String, Value>) {
        let mut all = vec![(self.name().into_owned(), (self.schema)())];
        (self.add_others)(&mut all);
        for (name, schema) in all {
            let schema = strict(super::to_json(&schema), self.side);
            debug_assert!(parts.get(&name).is_none_or(|other| *other == schema), "{name} has two schemas");
            parts.insert(name, schema);
        }
    }
}

/// Returns a schema that admits what serde writes or reads, and nothing else. In an answer, a field
/// that may be missing is never null, except where no field of its object is required. An object
/// admits no fields beside its own. The size of a number in memory is left out.
fn strict(schema: Value, side: BodySide) -> Value {
    match schema {
        Value::Array(all) => all.into_iter().map(|one| strict(one, side)).collect(),
        Value::Object(rules) => {
            let mut rules: Map<String, Value> = joined(rules)
                .into_iter()
                .filter(|(keyword, _)| !matches!(keyword.as_str(), "format" | "propertyNames"))
                .map(|(keyword, rule)| match keyword.as_str() {
                    // Its keys are names of fields, and no keywords.
                    "properties" => (keyword, each_strict(rule, side)),
                    "examples" => ("example".to_owned(), rule[0].clone()),
                    "oneOf" => ("anyOf".to_owned(), strict(rule, side)),
                    "description" if rule.is_string() => (keyword, one_line(&rule).into()),
                    _ => (keyword, strict(rule, side)),
                })
                .collect();
            close(&mut rules, side);
            rules.into()
        }
        other => other,
    }
}

/// Returns the schema of an object whose fields stand in several parts as one part. Each part would
/// forbid the fields of the others.
fn joined(mut rules: Map<String, Value>) -> Map<String, Value> {
    let is_object = |part: &Value| part["properties"].is_object();
    let parts = rules.get("allOf").and_then(Value::as_array);
    if !parts.is_some_and(|parts| parts.iter().all(is_object)) {
        return rules;
    }
    let Some(Value::Array(parts)) = rules.remove("allOf") else { return rules };
    // The object's own part is the last one, and its description counts.
    for (keyword, rule) in parts.into_iter().rev().filter_map(into_object).flatten() {
        match (rules.entry(keyword), rule) {
            (Entry::Vacant(place), rule) => drop(place.insert(rule)),
            (Entry::Occupied(mut known), rule) => match (known.get_mut(), rule) {
                (Value::Object(known), Value::Object(more)) => known.extend(more),
                (Value::Array(known), Value::Array(more)) => known.extend(more),
                _ => {}
            },
        }
    }
    rules
}

fn into_object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

/// Returns the strict schemas of the fields of an object.
fn each_strict(fields: Value, side: BodySide) -> Value {
    let Value::Object(fields) = fields else { return fields };
    fields.into_iter().map(|(name, schema)| (name, strict(schema, side))).collect::<Map<_, _>>().into()
}

/// Closes the schema of an object with fields: no other fields, and in an answer no null in an
/// optional field.
fn close(rules: &mut Map<String, Value>, side: BodySide) {
    if !rules.contains_key("properties") {
        return;
    }
    rules.entry("additionalProperties").or_insert(false.into());
    let required = rules.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if side == BodySide::Request || required.is_empty() {
        return;
    }
    let fields = rules.get_mut("properties").and_then(Value::as_object_mut);
    for (name, field) in fields.into_iter().flatten() {
        if !required.iter().any(|required| required == name) {
            forbid_null(field);
        }
    }
}

/// Removes null from the values of a schema.
fn forbid_null(schema: &mut Value) {
    let Some(rules) = schema.as_object_mut() else { return };
    for keyword in ["type", "anyOf"] {
        if let Some(Value::Array(all)) = rules.get_mut(keyword) {
            all.retain(|one| *one != "null" && one["type"] != "null");
        }
    }
    if let Some(Value::Array(kinds)) = rules.get("type")
        && let [kind] = kinds.as_slice()
    {
        let kind = kind.clone();
        rules.insert("type".to_owned(), kind);
    }
}

/// Returns the lines of a comment as one.
pub(super) fn one_line(description: &Value) -> String {
    description.as_str().unwrap_or_default().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::json;

    #[derive(Serialize, ToSchema)]
    struct Row {
        /// A figure that is
        /// always there.
        #[schema(required)]
        figure: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        inner: Option<Inner>,
    }

    #[derive(Serialize, ToSchema)]
    struct Inner {
        qos: u8,
    }

    #[test]
    fn a_field_is_null_or_missing_as_serde_writes_it_and_there_are_no_others() {
        let mut parts = Map::new();
        BodySchema::of_answer::<Row>().add_to(&mut parts);
        let figure = json!({ "description": "A figure that is always there.", "type": ["integer", "null"], "minimum": 0 });
        let row = json!({
            "type": "object",
            "properties": {
                "figure": figure,
                "next": { "type": "string" },
                "inner": { "anyOf": [{ "$ref": "#/components/schemas/Inner" }] },
            },
            "required": ["figure"],
            "additionalProperties": false,
        });
        assert_eq!(parts["Row"], row);
        assert_eq!(parts["Inner"]["required"], json!(["qos"]));
        let bare = Row { figure: None, next: None, inner: None };
        assert_eq!(serde_json::to_value(bare).ok(), Some(json!({ "figure": null })));
        assert_eq!(serde_json::to_value(Inner { qos: 1 }).ok(), Some(json!({ "qos": 1 })));
    }
}
