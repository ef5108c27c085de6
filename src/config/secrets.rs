//! Values for operators: on one line, and without possible secrets.

use super::service_url::ServiceUrl;
use super::value::{text, written};
use config::{Value, ValueKind};

/// The key with the address of a service. The query of the address may have a password.
const SERVICE: &str = "auth.http_url";

/// The key with the sinks: addresses, and headers for them.
const SINKS: &str = "sinks";

/// The key with the address of a collector, which has no secret once it is valid.
const COLLECTOR: &str = "otlp.endpoint";

/// The keys with addresses of the engine of a cluster. They have no secret once they are valid.
const ENGINE: [&str; 2] = ["cluster.nats", "cluster.monitor"];

/// Returns the value of a key as one would write it in the file, tables in full. `...` replaces a
/// part that may be a secret.
pub(super) fn without_secrets(path: &str, value: &Value) -> String {
    match (path, text(value)) {
        (SERVICE, Some("off")) => in_full(value),
        (SERVICE, address) => without_query(address),
        (COLLECTOR, Some(address)) if !address.contains(['@', '?']) => in_full(value),
        (COLLECTOR, _) => "\"...\"".to_owned(),
        (SINKS, None) => in_full(&sinks_without_secrets(value)),
        (path, _) if ENGINE.contains(&path) && value.to_string().contains('@') => "\"...\"".to_owned(),
        _ => in_full(value),
    }
}

/// Returns sinks without the queries of their addresses, and without the values of their headers.
fn sinks_without_secrets(value: &Value) -> Value {
    let hidden = |value: &Value| match &value.kind {
        ValueKind::Table(headers) => {
            let names = headers.keys().map(|name| (name.clone(), Value::new(None, "...")));
            Value::new(None, ValueKind::Table(names.collect()))
        }
        _ => Value::new(None, "..."),
    };
    let mut value = value.clone();
    let ValueKind::Array(sinks) = &mut value.kind else { return value };
    for sink in sinks {
        let ValueKind::Table(fields) = &mut sink.kind else { continue };
        if let Some(url) = fields.get_mut("url") {
            let shown = without_query(text(url));
            *url = Value::new(None, shown.trim_matches('"'));
        }
        if let Some(headers) = fields.get_mut("headers") {
            *headers = hidden(headers);
        }
    }
    value
}

fn without_query(address: Option<&str>) -> String {
    match address.and_then(ServiceUrl::parse) {
        Some(service) if service.target.contains('?') => format!("\"{service}?...\""),
        Some(service) => format!("\"{service}\""),
        // A text that is no address may have a secret anywhere.
        None => "\"...\"".to_owned(),
    }
}

/// Returns a value with its tables. Their keys are in alphabetical order.
pub(super) fn in_full(value: &Value) -> String {
    match &value.kind {
        ValueKind::Array(items) => format!("[{}]", items.iter().map(in_full).collect::<Vec<_>>().join(", ")),
        ValueKind::Table(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let fields: Vec<String> =
                fields.into_iter().map(|(name, value)| format!("{name} = {}", in_full(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        _ => written(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn the_address_of_a_service_is_shown_without_its_secrets() {
        let shown = |text: &str| without_secrets(SERVICE, &Value::new(None, text));
        assert_eq!(shown("off"), "\"off\"");
        assert_eq!(shown("https://login.example/mqtt"), "\"https://login.example/mqtt\"");
        assert_eq!(shown("https://login.example/mqtt?key=secret"), "\"https://login.example/mqtt?...\"");
        assert_eq!(shown("https://ann:secret@login.example/"), "\"...\"");
        assert_eq!(shown("login.example/mqtt?key=secret"), "\"...\"");
    }

    #[test]
    fn a_refusal_shows_no_secret_of_the_address_whatever_is_wrong_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        for written in [
            "\"https://ann:secret@hidden.example/\"",
            "\"hidden.example/mqtt?key=secret\"",
            "[\"https://hidden.example/mqtt?key=secret\"]",
            "[{ url = \"https://hidden.example/mqtt?key=secret\" }]",
            "https://hidden.example/mqtt?key=secret",
            "\"https://hidden.example/mqtt?key=secret",
            "\"https://hidden.example/mqtt?key=secret\" \"more\"",
        ] {
            std::fs::write(&file, format!("[auth]\nhttp_url = {written}\n")).expect("a file");
            let refusal = Sources::new().file(&file).load().expect_err(written).to_string();
            let places = ["auth.http_url", "not valid TOML: line 2, column "];
            assert!(places.iter().any(|place| refusal.contains(place)), "{refusal}");
            assert_eq!(refusal.lines().count(), 1, "{refusal}");
            assert!(!refusal.contains("secret") && !refusal.contains("hidden.example"), "{refusal}");
        }
    }

    #[test]
    fn a_sink_is_shown_without_the_query_of_its_address_and_the_values_of_its_headers() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        let text = "[[sinks]]\nname = \"a\"\nurl = \"https://b/c?key=secret\"\nfilters = [\"d\"]\nheaders = { X-Key = \"secret\" }\n";
        std::fs::write(&file, text).expect("a file");
        let loaded = Sources::new().file(&file).load().expect("a valid file");
        let sinks = loaded.changed.iter().find(|setting| setting.key == "sinks").expect("changed");
        let shown =
            "[{ filters = [\"d\"], headers = { X-Key = \"...\" }, name = \"a\", url = \"https://b/c?...\" }]";
        assert_eq!(sinks.value, shown);
    }

    #[test]
    fn a_list_of_tables_is_shown_with_its_fields() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        std::fs::write(&file, "[[redelivery.rules]]\ntopic = \"a\"\ninterval = \"7s\"\n").expect("a file");
        let loaded = Sources::new().file(&file).load().expect("a valid file");
        let rules = loaded.changed.iter().find(|setting| setting.key == "redelivery.rules").expect("changed");
        assert_eq!(rules.value, "[{ interval = \"7s\", topic = \"a\" }]");
    }
}
