//! /api/v1/openapi.json: the description of all paths for programs, as OpenAPI 3.1.
//!
//! `document.json` describes each row of the table of routes with its parameters and answers, and
//! `schemas.json` has the schemas of bodies. The rest follows from the row: its scope, and the
//! errors that every row with this scope may have. `tests/admin/openapi.rs` compares both files
//! with the parameters that the handlers read, and with real answers.

use crate::admin::access::Scope;
use crate::admin::pages::docs;
use crate::admin::pages::entry::PageReader;
use crate::admin::pages::page::PageResult;
use crate::admin::routes::api_paths;
use crate::admin::state::State;
use actix_web::web::ReqData;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};
use std::sync::LazyLock;

/// The description. Made at the first request, because it takes some milliseconds.
static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| whole(api_paths()));

/// Returns the description of all paths for programs.
pub(crate) fn description() -> &'static Value {
    &DESCRIPTION
}

/// Answers with the description.
pub(crate) async fn document() -> HttpResponse {
    HttpResponse::Ok().json(description())
}

/// Answers with the description as a page.
pub(crate) async fn page(request: HttpRequest, reader: ReqData<PageReader>, state: State) -> PageResult {
    docs::page(&request, &reader, &state, description()).await
}

/// Returns a file of this folder, which the tests check.
fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("the file is JSON")
}

/// Returns the document with what follows from the rows.
fn whole(rows: impl Iterator<Item = (&'static str, &'static str, Option<Scope>)>) -> Value {
    let mut document = read(include_str!("document.json"));
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    document["components"]["schemas"] = read(include_str!("schemas.json"));
    for (method, path, least) in rows {
        complete(&mut document["paths"][path][method.to_ascii_lowercase()], method, least);
    }
    document
}

/// Adds to an operation what follows from its row.
fn complete(operation: &mut Value, method: &str, least: Option<Scope>) {
    operation["x-scope"] = least.map(Scope::name).into();
    // A foreign Host, a request that is not complete in time, and a body without a length.
    let mut refusals = vec!["403", "408", "411"];
    operation["security"] = match least {
        // Nobody proves who asks, and the broker starts or has too much to do.
        Some(_) => {
            refusals.extend(["401", "503"]);
            json!([{ "token": [] }, { "login": [] }])
        }
        None => json!([]),
    };
    if least.is_some() && method != "GET" {
        // An action that nobody confirmed in time.
        refusals.push("504");
    }
    for status in refusals {
        if operation["responses"][status].is_null() {
            operation["responses"][status] = json!({ "$ref": "#/components/responses/Problem" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Returns method and path of every operation of `document.json`.
    fn described() -> BTreeSet<(String, String)> {
        let document = read(include_str!("document.json"));
        let paths = document["paths"].as_object().expect("paths");
        let operations = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(move |method| (method.to_ascii_uppercase(), path.clone()))
        });
        operations.collect()
    }

    #[test]
    fn the_document_describes_each_row_of_the_table_and_nothing_else() {
        let rows: BTreeSet<_> =
            api_paths().map(|(method, path, _)| (method.to_owned(), path.to_owned())).collect();
        let described = described();
        let missing: Vec<_> = rows.difference(&described).collect();
        assert!(missing.is_empty(), "describe them in src/admin/routes/openapi/document.json: {missing:?}");
        let unknown: Vec<_> = described.difference(&rows).collect();
        assert!(unknown.is_empty(), "ROUTES has no such rows: {unknown:?}");
    }

    #[test]
    fn each_operation_says_what_it_does_and_what_it_answers() {
        let document = whole(api_paths());
        for (method, path, _) in api_paths() {
            let operation = &document["paths"][path][method.to_ascii_lowercase()];
            assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{method} {path}");
            let mut answers = operation["responses"].as_object().into_iter().flatten();
            assert!(answers.any(|(status, _)| status.starts_with('2')), "{method} {path}");
        }
    }

    #[test]
    fn each_part_of_a_path_in_braces_is_a_parameter_of_its_operations() {
        let document = whole(api_paths());
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
        let (document, mut found) = (whole(api_paths()), BTreeSet::new());
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
        check(&read(include_str!("schemas.json")));
    }
}
