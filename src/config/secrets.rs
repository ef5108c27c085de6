//! Values for operators: on one line, and without possible secrets.

use super::service_url::ServiceUrl;
use super::value::{text, written};
use config::{Value, ValueKind};

/// The key with the address of a service. The query of the address may have a password.
const SERVICE: &str = "auth.http_url";

/// The key with the address of a collector, which has no secret once it is valid.
const COLLECTOR: &str = "otlp.endpoint";

/// Returns the value of a key as one would write it in the file, tables in full. `...` replaces a
/// part that may be a secret.
pub(super) fn without_secrets(path: &str, value: &Value) -> String {
    match (path, text(value)) {
        (SERVICE, Some("off")) => in_full(value),
        (SERVICE, address) => without_query(address),
        (COLLECTOR, Some(address)) if !address.contains(['@', '?']) => in_full(value),
        (COLLECTOR, _) => "\"...\"".to_owned(),
        _ => in_full(value),
    }
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
fn in_full(value: &Value) -> String {
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
    fn a_list_of_tables_is_shown_with_its_fields() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("homing.toml");
        std::fs::write(&file, "[[redelivery.rules]]\ntopic = \"a\"\ninterval = \"7s\"\n").expect("a file");
        let loaded = Sources::new().file(&file).load().expect("a valid file");
        let rules = loaded.changed.iter().find(|setting| setting.key == "redelivery.rules").expect("changed");
        assert_eq!(rules.value, "[{ interval = \"7s\", topic = \"a\" }]");
    }
}
