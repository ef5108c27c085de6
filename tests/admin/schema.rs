//! Checks JSON against a schema of the interface's own description.
//!
//! Knows the keywords that the description uses, and refuses others: a rule that is not checked
//! would look like one that holds.

use serde_json::Value;

/// Returns each place at which a value is not as its schema says. `document` has the schemas that
/// are referred to.
pub fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "", &mut found);
    found
}

/// Returns the part of a document that a reference such as `#/components/schemas/Client` names.
pub fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        None => part,
        Some(path) => {
            let pointer = path.strip_prefix('#').expect("a reference into the document");
            document.pointer(pointer).unwrap_or_else(|| panic!("{path} leads nowhere"))
        }
    }
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let schema = resolved(document, schema);
    let mut fault = |what: String| found.push(format!("{at}: {what}"));
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        match keyword.as_str() {
            "description" | "properties" | "default" | "example" => {}
            "type" if !types(rule).any(|name| is_of(name, value)) => fault(format!("{value} is no {rule}")),
            "enum" if !rule.as_array().is_some_and(|all| all.contains(value)) => {
                fault(format!("{value} is none of {rule}"));
            }
            "minimum" if value.as_f64() < rule.as_f64() && value.is_number() => {
                fault(format!("{value} is below {rule}"));
            }
            "maximum" if value.as_f64() > rule.as_f64() && value.is_number() => {
                fault(format!("{value} is above {rule}"));
            }
            "maxItems"
                if value.as_array().is_some_and(|items| items.len() as u64 > rule.as_u64().unwrap_or(0)) =>
            {
                fault(format!("more than {rule} items"));
            }
            "required" if value.is_object() => {
                let missing = rule.as_array().into_iter().flatten().filter_map(Value::as_str);
                missing
                    .filter(|name| value.get(name).is_none())
                    .for_each(|name| fault(format!("{name} is missing")));
            }
            "type" | "enum" | "minimum" | "maximum" | "maxItems" | "required" => {}
            "items" | "additionalProperties" | "anyOf" => {}
            other => panic!("{at}: the keyword {other} is not known here"),
        }
    }
    if let (Some(rule), Some(items)) = (schema.get("items"), value.as_array()) {
        for (index, item) in items.iter().enumerate() {
            check(document, rule, item, &format!("{at}/{index}"), found);
        }
    }
    if let Some(fields) = value.as_object() {
        for (name, field) in fields {
            let at = format!("{at}/{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(rule), _) => check(document, rule, field, &at, found),
                (None, Some(Value::Bool(false))) => found.push(format!("{at}: no such field")),
                (None, Some(rule @ Value::Object(_))) => check(document, rule, field, &at, found),
                (None, _) => {}
            }
        }
    }
    if let Some(rules) = schema.get("anyOf").and_then(Value::as_array) {
        let all: Vec<Vec<String>> = rules.iter().map(|rule| faults(document, rule, value)).collect();
        if all.iter().all(|faults| !faults.is_empty()) {
            found.push(format!("{at}: none of the schemas fits: {all:?}"));
        }
    }
}

/// Returns the names of the types that a schema allows.
fn types(rule: &Value) -> impl Iterator<Item = &str> {
    rule.as_str().into_iter().chain(rule.as_array().into_iter().flatten().filter_map(Value::as_str))
}

fn is_of(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type {other} is not known here"),
    }
}

#[test]
fn a_value_is_held_to_each_rule_of_its_schema() {
    let document = serde_json::json!({ "parts": { "Row": {
        "type": "object",
        "properties": { "n": { "type": "integer", "minimum": 1, "maximum": 3 }, "is": { "enum": ["a"] } },
        "required": ["n"],
        "additionalProperties": false,
    } } });
    let schema = serde_json::json!({ "type": "array", "maxItems": 2, "items": {
        "anyOf": [{ "$ref": "#/parts/Row" }, { "type": "null" }],
    } });
    let count = |value: Value| faults(&document, &schema, &value).len();
    assert_eq!(count(serde_json::json!([null, { "n": 1, "is": "a" }])), 0);
    for wrong in [
        serde_json::json!({}),
        serde_json::json!([1]),
        serde_json::json!([null, null, null]),
        serde_json::json!([{}]),
        serde_json::json!([{ "n": 0 }]),
        serde_json::json!([{ "n": 4 }]),
        serde_json::json!([{ "n": 1.5 }]),
        serde_json::json!([{ "n": 1, "is": "b" }]),
        serde_json::json!([{ "n": 1, "other": 1 }]),
    ] {
        assert_eq!(count(wrong.clone()), 1, "{wrong}");
    }
}
