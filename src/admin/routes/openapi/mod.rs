//! /api/v1/openapi.json: the description of all paths for programs, as OpenAPI 3.1.
//!
//! The source is the table of routes. Each row gives the summary, the answers and the scope; its
//! handler gives the parameters and the types of the bodies. The errors follow from these.
//! `tests/admin/openapi.rs` compares the description with real answers.

pub(in crate::admin::routes) mod body_schema;
mod words;

use crate::admin::access::Scope;
use crate::admin::operator::NOTE;
use crate::admin::pages::docs;
use crate::admin::pages::entry::PageReader;
use crate::admin::pages::page::PageResult;
use crate::admin::problem::ProblemAnswer;
use crate::admin::routes::ROUTES;
use crate::admin::routes::api_route::{ApiRoute, Content, RouteAnswer, Taken};
use actix_web::web::ReqData;
use actix_web::{HttpRequest, HttpResponse};
use body_schema::{BodySchema, one_line};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

/// The description. Made at the first request, because it takes some milliseconds.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(whole);

/// Returns the description of all paths for programs.
pub(crate) fn description() -> &'static Value {
    &DESCRIPTION
}

/// Answers with the description.
pub(crate) async fn document() -> HttpResponse {
    HttpResponse::Ok().json(description())
}

/// Answers with the description as a page.
pub(crate) async fn page(request: HttpRequest, reader: ReqData<PageReader>) -> PageResult {
    docs::page(&request, &reader, description()).await
}

/// The parameters of an operation, with the places of their values in another answer.
type Values = &'static [(&'static str, &'static str)];

/// A link of an answer: its operation, its name, and the target operation with its parameters.
type Link = (&'static str, &'static str, &'static str, Values);

/// The first session of a page.
const CLIENT: Values = &[("id", "$response.body#/clients/0/client_id")];

/// The first message of a page of the same session.
const MESSAGE: Values = &[("id", "$request.path.id"), ("mid", "$response.body#/messages/0/mid")];

/// The first dead letter of a page.
const LETTER: Values = &[("letter", "$response.body#/dead_letters/0/id")];

/// The trace that has begun.
const TRACE: Values = &[("number", "$response.body#/trace")];

/// The links of answers.
const LINKS: &[Link] = &[
    ("POST /api/v1/traces", "steps", "GET /api/v1/traces/{number}", TRACE),
    ("POST /api/v1/traces", "end", "DELETE /api/v1/traces/{number}", TRACE),
    ("GET /api/v1/clients", "next", "GET /api/v1/clients", &[("cursor", "$response.body#/next")]),
    ("GET /api/v1/clients", "client", "GET /api/v1/clients/{id}", CLIENT),
    ("GET /api/v1/clients", "inflight", "GET /api/v1/clients/{id}/inflight", CLIENT),
    ("GET /api/v1/clients", "queue", "GET /api/v1/clients/{id}/queue", CLIENT),
    ("GET /api/v1/clients", "redeliver", "POST /api/v1/clients/{id}/redeliver", CLIENT),
    ("GET /api/v1/clients", "disconnect", "POST /api/v1/clients/{id}/disconnect", CLIENT),
    ("GET /api/v1/clients", "end", "DELETE /api/v1/clients/{id}", CLIENT),
    ("GET /api/v1/clients/{id}/inflight", "skip", "POST /api/v1/clients/{id}/messages/{mid}/skip", MESSAGE),
    ("GET /api/v1/clients/{id}/inflight", "park", "POST /api/v1/clients/{id}/messages/{mid}/park", MESSAGE),
    ("GET /api/v1/clients/{id}/queue", "skip", "POST /api/v1/clients/{id}/messages/{mid}/skip", MESSAGE),
    ("GET /api/v1/clients/{id}/queue", "park", "POST /api/v1/clients/{id}/messages/{mid}/park", MESSAGE),
    (
        "GET /api/v1/delayed",
        "delete",
        "DELETE /api/v1/delayed/{delayed}",
        &[("delayed", "$response.body#/delayed/0/id")],
    ),
    ("GET /api/v1/dead-letters", "letter", "GET /api/v1/dead-letters/{letter}", LETTER),
    ("GET /api/v1/dead-letters", "republish", "POST /api/v1/dead-letters/{letter}/republish", LETTER),
    ("GET /api/v1/dead-letters", "delete", "DELETE /api/v1/dead-letters/{letter}", LETTER),
];

/// The parameters of several operations: the name, the place, the description and an example. A
/// parameter of a query that has no description of its own is one of them.
const SHARED_PARAMETERS: &[(&str, &str, &str, &str)] = &[
    (
        "id",
        "path",
        "The client id. A `/` in it is written as `%2F`. For a client id that is too long, `-` \
            and the parameter `ref`.",
        "pump-7",
    ),
    ("mid", "path", "The message, as `inflight` and `queue` name it.", "e1"),
    ("number", "path", "The number of the trace.", "1"),
    ("name", "path", "The name.", "ann"),
    ("slug", "path", "The end of the `type` of an error.", "busy"),
    ("delayed", "path", "The `id` of the delayed message, as the listing has it.", "0-7530-40-5a"),
    ("letter", "path", "The `id` of the dead letter, as the listing has it.", "18c2f3a1b00-40"),
    ("ref", "query", "The `ref` of the session. It wins over the client id of the path.", ""),
    ("note", "query", "A note for the audit log.", "the pump is broken"),
    ("cursor", "query", "The `next` of the page before.", "AAAAAAAAAAAA"),
    ("topic", "query", "The topic name.", "pumps/7/set"),
    ("Last-Event-ID", "header", "The id of the last event that the reader has.", ""),
];

fn shared_parameters() -> Map<String, Value> {
    let described = |(name, place, text, example): &(&str, &str, &str, &str)| {
        let mut parameter = json!({ "name": name, "in": place, "description": text });
        if *place == "path" {
            parameter["required"] = true.into();
        }
        parameter["schema"] = match *name {
            "number" => json!({ "type": "integer", "minimum": 0 }),
            "note" => json!({ "type": "string", "maxLength": NOTE }),
            _ if *place == "path" => json!({ "type": "string", "minLength": 1 }),
            _ => json!({ "type": "string" }),
        };
        if !example.is_empty() {
            let number = example.parse::<u64>().ok().filter(|_| *name == "number");
            parameter["example"] = number.map_or_else(|| (*example).into(), Value::from);
        }
        (name.to_ascii_lowercase(), parameter)
    };
    SHARED_PARAMETERS.iter().map(described).collect()
}

fn whole() -> Value {
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Homing",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "The HTTP interface of an MQTT broker.",
            "description": "docs/http.md explains it. Each operation has its least scope as \
             `x-scope`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": {},
        "components": {
            "parameters": shared_parameters(),
            "responses": { "Problem": {
                "description": "The request is refused; `detail` says why.",
                "content": { "application/problem+json": { "schema": reference("schemas", "Problem") } },
            } },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `homing admin-token`. The Unix socket needs none.",
                },
                "login": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "homing_login_11883",
                    "description": "The login of a browser. The number is the port of the interface; with \
                        HTTPS, the name begins with `__Host-`. A request that changes something needs the \
                        header `X-CSRF-Token` with the text `csrf` of /api/v1/login or /api/v1/me.",
                },
            },
        },
    });
    let mut schemas = Map::new();
    BodySchema::of_answer::<ProblemAnswer>().add_to(&mut schemas);
    for row in ROUTES.iter() {
        document["paths"][row.path][row.method.to_ascii_lowercase()] = operation(row);
        let answers = row.answers.iter().filter_map(|answer| match answer.content {
            Content::Json(schema) => Some(schema),
            Content::Text(_) | Content::Document => None,
        });
        answers.chain(row.body).for_each(|schema| schema.add_to(&mut schemas));
    }
    document["components"]["schemas"] = schemas.into();
    document
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

fn operation(row: &ApiRoute) -> Value {
    let parts = row.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = parts.map(|part| reference("parameters", part)).collect();
    let has_parts = !parameters.is_empty();
    parameters.extend(parameters_of(&row.takes));
    if row.is_resumed {
        parameters.push(reference("parameters", "last-event-id"));
    }
    let least = row.who.least();
    let mut operation = json!({ "summary": row.summary, "parameters": parameters, "responses": {} });
    operation["x-scope"] = least.map(Scope::name).into();
    if let Some(body) = row.body {
        let content = json!({ "application/json": { "schema": reference("schemas", &body.name()) } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation["security"] = match least {
        Some(_) => json!([{ "token": [] }, { "login": [] }]),
        None => json!([]),
    };
    for status in refusals(row, has_parts) {
        operation["responses"][status.to_string()] = reference("responses", "Problem");
    }
    for RouteAnswer { status, text, content } in &row.answers {
        let (kind, schema) = match content {
            Content::Json(schema) => ("application/json", reference("schemas", &schema.name())),
            Content::Text(kind) => (*kind, json!({ "type": "string" })),
            Content::Document => ("application/json", json!({ "type": "object" })),
        };
        operation["responses"][status.to_string()] =
            json!({ "description": text, "content": { kind: { "schema": schema } } });
    }
    match row.answers.first() {
        None => operation["responses"]["204"] = json!({ "description": "It is done." }),
        Some(RouteAnswer { status, .. }) => {
            let own = format!("{} {}", row.method, row.path);
            for (_, name, to, values) in LINKS.iter().filter(|(from, ..)| *from == own) {
                operation["responses"][status.to_string()]["links"][*name] = link(to, values);
            }
        }
    }
    operation
}

/// Returns the errors of a row: those named in the row, and those that follow from its other
/// fields.
fn refusals(row: &ApiRoute, has_parts: bool) -> Vec<u16> {
    // A foreign Host, a request that is not complete in time, and a body without a length.
    let mut refusals = vec![403, 408, 411];
    if row.who.least().is_some() {
        // Nobody proves who asks, and the broker starts or has too much to do.
        refusals.extend([401, 503]);
        if row.method != "GET" {
            // An action that nobody confirmed in time.
            refusals.push(504);
        }
    }
    if row.takes.query.is_some() || row.takes.has_body {
        refusals.push(400);
    }
    if row.takes.has_body {
        refusals.push(413);
    }
    if has_parts {
        refusals.push(404);
    }
    refusals.extend(row.refusals);
    refusals
}

fn link(to: &str, values: &[(&str, &str)]) -> Value {
    let (method, path) = to.split_once(' ').expect("a method and a path");
    let operation = format!("#/paths/{}/{}", path.replace('/', "~1"), method.to_ascii_lowercase());
    let values: Map<String, Value> =
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    json!({ "operationRef": operation, "parameters": values })
}

/// Returns the parameters of a query in the order of their fields.
fn parameters_of(taken: &Taken) -> Vec<Value> {
    let Some(Schema::Object(query)) = &taken.query else { return Vec::new() };
    let parameter = |(name, schema): (&String, &RefOr<Schema>)| {
        let mut schema = plain(&to_json(schema), taken);
        let Some(description) = schema.remove("description") else {
            return reference("parameters", name);
        };
        let mut parameter = json!({ "name": name, "in": "query", "description": one_line(&description) });
        if let Some(example) = schema.remove("example") {
            parameter["example"] = example;
        }
        if query.required.contains(name) {
            parameter["required"] = true.into();
        }
        parameter["schema"] = schema.into();
        parameter
    };
    query.properties.iter().map(parameter).collect()
}

fn to_json(schema: &RefOr<Schema>) -> Value {
    serde_json::to_value(schema).expect("a schema is JSON")
}

/// Returns the schema of a parameter without the parts that a query cannot have: null, references,
/// and the size of a number in memory.
fn plain(schema: &Value, taken: &Taken) -> Map<String, Value> {
    let mut kept = Map::new();
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        match (keyword.as_str(), rule) {
            ("format", _) => {}
            ("examples", Value::Array(all)) => {
                kept.insert("example".to_owned(), all.first().cloned().unwrap_or_default());
            }
            ("$ref", Value::String(path)) => {
                let name = path.rsplit('/').next().unwrap_or_default();
                let found = taken.words.iter().find(|(known, _)| known == name);
                kept.extend(found.map(|(_, words)| plain(&to_json(words), taken)).unwrap_or_default());
            }
            ("oneOf" | "allOf", Value::Array(all)) => {
                let some = all.iter().filter(|one| one["type"] != "null");
                some.for_each(|one| kept.extend(plain(one, taken)));
            }
            ("type", Value::Array(all)) => {
                let kind = all.iter().find(|kind| *kind != "null").cloned();
                kept.insert("type".to_owned(), kind.unwrap_or_default());
            }
            _ => drop(kept.insert(keyword.clone(), rule.clone())),
        }
    }
    // Words are texts.
    if kept.contains_key("enum") {
        kept.remove("type");
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::routes::api_paths;
    use std::collections::BTreeSet;

    #[test]
    fn each_operation_says_what_it_does_and_what_it_answers() {
        let document = whole();
        for (method, path, _) in api_paths() {
            let operation = &document["paths"][path][method.to_ascii_lowercase()];
            assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{method} {path}");
            let mut answers = operation["responses"].as_object().into_iter().flatten();
            assert!(answers.any(|(status, _)| status.starts_with('2')), "{method} {path}");
        }
    }

    #[test]
    fn each_part_of_a_path_in_braces_is_a_parameter_of_its_operations() {
        let document = whole();
        for (method, path, _) in api_paths() {
            let operation = &document["paths"][path][method.to_ascii_lowercase()];
            let named = operation["parameters"].as_array().into_iter().flatten();
            let named: BTreeSet<&str> = named.filter_map(|one| one["$ref"].as_str()).collect();
            for part in path.split('/').filter(|part| part.starts_with('{')) {
                let name = part.trim_matches(['{', '}']);
                let parameter = format!("#/components/parameters/{name}");
                assert!(named.contains(parameter.as_str()), "{method} {path}: {part}");
                assert_eq!(document["components"]["parameters"][name]["in"], "path", "{name}");
            }
        }
    }

    #[test]
    fn every_reference_leads_to_a_part_of_the_document_and_every_part_is_used() {
        fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|field| references(field, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let (document, mut found) = (whole(), BTreeSet::new());
        references(&document, &mut found);
        let parts = ["parameters", "responses", "schemas"].into_iter().flat_map(|kind| {
            let names = document["components"][kind].as_object().expect("an object").keys();
            names.map(move |name| format!("#/components/{kind}/{name}"))
        });
        let parts: BTreeSet<String> = parts.collect();
        let found: BTreeSet<String> = found.into_iter().map(ToOwned::to_owned).collect();
        assert_eq!(found, parts);
    }

    /// A field that the schemas do not have is found then.
    #[test]
    fn no_schema_allows_other_fields_than_it_names() {
        fn check(value: &Value) {
            match value {
                Value::Object(fields) => {
                    if fields
                        .get("type")
                        .is_some_and(|kind| *kind == "object" || kind.is_array() && kind[0] == "object")
                    {
                        assert!(fields.contains_key("additionalProperties"), "{value}");
                    }
                    fields.values().for_each(check);
                }
                Value::Array(items) => items.iter().for_each(check),
                _ => {}
            }
        }
        check(&whole()["components"]["schemas"]);
    }
}
