//! The page that describes the interface for programs: its OpenAPI document as tables.

use super::entry::{PageReader, login_of};
use super::frame::{PageFrame, theme_of};
use super::page::{PageResult, render};
use crate::admin::access::Scope;
use crate::admin::problem_kind::{ProblemFacts, ProblemKind};
use crate::admin::routes::api_paths;
use crate::admin::routes::openapi::description;
use crate::admin::state::State;
use actix_web::HttpRequest;
use actix_web::web::ReqData;
use askama::Template;
use serde_json::Value;

#[derive(Template)]
#[template(path = "docs.html", config = "src/admin/askama.toml")]
struct DocsPage {
    frame: PageFrame,
    version: &'static str,
    operations: Vec<OperationView>,
    schemas: Vec<SchemaView>,
    problems: Vec<ProblemFacts>,
}

/// One method of one path.
struct OperationView {
    method: &'static str,
    path: &'static str,
    scope: &'static str,
    summary: String,
    parameters: Vec<ParameterView>,
    /// The schema of the body of the request.
    body: Option<String>,
    answers: Vec<AnswerView>,
}

/// A parameter of an operation.
struct ParameterView {
    name: String,
    /// Its place: `path`, `query` or `header`.
    place: String,
    values: String,
    text: String,
}

/// An answer of an operation that is no error.
struct AnswerView {
    status: String,
    text: String,
    schema: Option<String>,
}

/// The schema of a body, as JSON.
struct SchemaView {
    name: String,
    text: String,
}

/// Shows the document. A tool with a token sees it without the frame of a login.
pub(crate) async fn page(request: HttpRequest, reader: ReqData<PageReader>, state: State) -> PageResult {
    let frame = match &*reader {
        PageReader::Login(_) => {
            PageFrame::of(&request, &state, &login_of(&request, &state)?, "/api/v1/docs").await
        }
        PageReader::Caller(_) => PageFrame::plain(theme_of(&request)),
    };
    Ok(render(&DocsPage {
        frame,
        version: env!("CARGO_PKG_VERSION"),
        operations: operations(description()),
        schemas: schemas(description()),
        problems: ProblemKind::ALL.iter().map(|kind| kind.facts()).collect(),
    }))
}

fn operations(document: &Value) -> Vec<OperationView> {
    let view = |(method, path, least): (&'static str, &'static str, Option<Scope>)| {
        let operation = &document["paths"][path][method.to_ascii_lowercase()];
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let answers = operation["responses"].as_object().into_iter().flatten();
        OperationView {
            method,
            path,
            scope: least.map_or("none", Scope::name),
            summary: text(&operation["summary"]),
            parameters: parameters.map(|one| ParameterView::of(resolved(document, one))).collect(),
            body: schema_name(&operation["requestBody"]),
            answers: answers
                .filter(|(status, _)| status.starts_with('2'))
                .map(|(status, answer)| AnswerView {
                    status: status.clone(),
                    text: text(&answer["description"]),
                    schema: schema_name(answer),
                })
                .collect(),
        }
    };
    api_paths().map(view).collect()
}

impl ParameterView {
    fn of(parameter: &Value) -> ParameterView {
        ParameterView {
            name: text(&parameter["name"]),
            place: text(&parameter["in"]),
            values: values(&parameter["schema"]),
            text: text(&parameter["description"]),
        }
    }
}

/// Returns the values that a parameter can have, as one short text.
fn values(schema: &Value) -> String {
    let of_list = schema["enum"].as_array().map(|all| all.iter().map(text).collect::<Vec<_>>().join(", "));
    let kind = of_list.unwrap_or_else(|| match schema["$ref"].as_str() {
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
        text: serde_json::to_string_pretty(schema).unwrap_or_default(),
    };
    all.map(view).collect()
}

/// Returns the name of the schema of a body; `None` if it has none of its own.
fn schema_name(part: &Value) -> Option<String> {
    let content = part["content"].as_object()?.values().next()?;
    let (_, name) = content["schema"]["$ref"].as_str()?.rsplit_once('/')?;
    Some(name.to_owned())
}

/// Returns the part itself, or the one that it refers to.
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
    fn every_path_is_shown_with_its_scope_and_a_summary() {
        let shown = operations(description());
        assert_eq!(shown.len(), api_paths().count());
        assert!(shown.iter().all(|one| one.summary.ends_with('.') && !one.answers.is_empty()));
        let top = shown.iter().find(|one| one.path == "/api/v1/clients/top").expect("the path");
        assert_eq!(top.scope, "viewer");
        assert_eq!(top.parameters[0].values, "oldest_unacked, queued, queued_bytes, in_flight");
        assert_eq!(top.answers[0].schema.as_deref(), Some("TopClients"));
    }

    #[test]
    fn the_values_of_a_parameter_are_one_short_text() {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 256, "default": 100 });
        assert_eq!(values(&limit), "integer, 1 to 256; default 100");
        assert_eq!(values(&json!({ "$ref": "#/components/schemas/Duration" })), "duration");
        assert_eq!(values(&json!({ "type": "string" })), "string");
    }
}
