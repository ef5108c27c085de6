//! The page that describes the interface for programs: its OpenAPI document as tables.

use super::entry::{PageReader, Visit};
use super::frame::{PageFrame, theme_of};
use super::page::{PageResult, render};
use super::prose::{Prose, prose};
use crate::admin::problem_kind::{ProblemFacts, ProblemKind};
use actix_web::HttpRequest;
use askama::Template;
use serde_json::Value;

#[derive(Template)]
#[template(path = "docs.html", config = "src/admin/askama.toml")]
struct DocsPage {
    frame: PageFrame,
    version: &'static str,
    operations: Vec<OperationView>,
    schemas: Vec<SchemaView>,
    /// The kinds of errors, each with its meaning.
    problems: Vec<(ProblemFacts, Prose)>,
}

/// One method of one path.
struct OperationView {
    method: String,
    path: String,
    scope: String,
    summary: Prose,
    parameters: Vec<ParameterView>,
    /// The schema of the body of the request.
    body: Option<String>,
    answers: Vec<AnswerView>,
}

struct ParameterView {
    name: String,
    /// Its place: `path`, `query` or `header`.
    place: String,
    values: String,
    text: Prose,
}

/// An answer of an operation that is no error.
struct AnswerView {
    status: String,
    text: Prose,
    schema: Option<String>,
}

/// The schema of a body, as JSON.
struct SchemaView {
    name: String,
    text: String,
}

/// Shows `document`. A tool with a token sees it without the frame of a login.
pub(crate) async fn page(request: &HttpRequest, reader: &PageReader, document: &Value) -> PageResult {
    let frame = match reader {
        PageReader::Login(_) => PageFrame::of(&Visit::of(request)?, "/api/v1/docs").await,
        PageReader::Caller(_) => PageFrame::plain(theme_of(request)),
    };
    Ok(render(&DocsPage {
        frame,
        version: env!("CARGO_PKG_VERSION"),
        operations: operations(document),
        schemas: schemas(document),
        problems: ProblemKind::ALL.iter().map(|kind| (kind.facts(), prose(kind.facts().meaning))).collect(),
    }))
}

/// Returns the operations by path.
fn operations(document: &Value) -> Vec<OperationView> {
    let paths = document["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| (method, path, operation))
    });
    operations.map(|(method, path, operation)| OperationView::of(document, method, path, operation)).collect()
}

impl OperationView {
    fn of(document: &Value, method: &str, path: &str, operation: &Value) -> OperationView {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let answers = operation["responses"].as_object().into_iter().flatten();
        OperationView {
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            scope: operation["x-scope"].as_str().unwrap_or("none").to_owned(),
            summary: prose(&text(&operation["summary"])),
            parameters: parameters.map(|one| ParameterView::of(resolved(document, one))).collect(),
            body: schema_name(&operation["requestBody"]),
            answers: answers
                .filter(|(status, _)| status.starts_with('2'))
                .map(|(status, answer)| AnswerView {
                    status: status.clone(),
                    text: prose(&text(&answer["description"])),
                    schema: schema_name(answer),
                })
                .collect(),
        }
    }
}

impl ParameterView {
    fn of(parameter: &Value) -> ParameterView {
        ParameterView {
            name: text(&parameter["name"]),
            place: text(&parameter["in"]),
            values: values(&parameter["schema"]),
            text: prose(&text(&parameter["description"])),
        }
    }
}

/// Returns the values that a parameter can have, as one short text.
fn values(schema: &Value) -> String {
    let of_list = schema["enum"].as_array().map(|all| all.iter().map(text).collect::<Vec<_>>().join(", "));
    let kind = of_list.unwrap_or_else(|| match schema["pattern"].as_str() {
        Some(_) => "duration".to_owned(),
        None => text(&schema["type"]),
    });
    let bounds = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, _) => String::new(),
        (least, Value::Null) => format!(", from {least}"),
        (least, most) => format!(", {least} to {most}"),
    };
    let default = match &schema["default"] {
        Value::Null => String::new(),
        other => format!("; default {}", text(other)),
    };
    format!("{kind}{bounds}{default}")
}

fn schemas(document: &Value) -> Vec<SchemaView> {
    let all = document["components"]["schemas"].as_object().into_iter().flatten();
    let view = |(name, schema): (&String, &Value)| SchemaView {
        name: name.clone(),
        // The descriptions in it are texts of JSON, which marks no code.
        text: serde_json::to_string_pretty(schema).unwrap_or_default().replace('`', ""),
    };
    all.map(view).collect()
}

/// Returns the name of the schema of a body; `None` if it has none of its own.
fn schema_name(part: &Value) -> Option<String> {
    let content = part["content"].as_object()?.values().next()?;
    let (_, name) = content["schema"]["$ref"].as_str()?.rsplit_once('/')?;
    Some(name.to_owned())
}

/// Returns the part, after following its `$ref` if present.
fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let at = part["$ref"].as_str().and_then(|path| document.pointer(path.strip_prefix('#')?));
    at.unwrap_or(part)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_operation_is_shown_with_its_scope_and_what_it_takes_and_gives() {
        let document = json!({
            "paths": { "/top": { "get": {
                "summary": "The first ones.",
                "x-scope": "viewer",
                "parameters": [{ "$ref": "#/components/parameters/by" }],
                "responses": {
                    "200": { "description": "They are.", "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/Top" },
                    } } },
                    "404": { "description": "None." },
                },
            } } },
            "components": { "parameters": { "by": {
                "name": "by", "in": "query", "description": "The order.",
                "schema": { "enum": ["age", "size"] },
            } } },
        });
        let shown = operations(&document);
        let top = shown.first().expect("the operation");
        assert_eq!((shown.len(), &*top.method, &*top.path, &*top.scope), (1, "GET", "/top", "viewer"));
        assert_eq!(top.summary, [(false, "The first ones.".to_owned())]);
        assert_eq!(top.parameters[0].values, "age, size");
        assert_eq!((top.answers.len(), top.answers[0].schema.as_deref()), (1, Some("Top")));
    }

    #[test]
    fn the_values_of_a_parameter_are_one_short_text() {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 256, "default": 100 });
        assert_eq!(values(&limit), "integer, 1 to 256; default 100");
        assert_eq!(values(&json!({ "type": "string", "pattern": "^([0-9]+(s|m) ?)+$" })), "duration");
        assert_eq!(values(&json!({ "type": "string" })), "string");
    }
}
