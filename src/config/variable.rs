//! The names of environment variables: keys, and names that only look like a key.

use super::keys::{self, key};
use std::ffi::OsStr;

/// Variables of keys are `HOMING_SECTION__KEY`.
const PREFIX: &str = "HOMING_";
const SEPARATOR: &str = "__";

/// Variables that commands read, and that are no keys.
const OF_COMMANDS: [&str; 3] = ["CONFIG", "TOKEN_FILE", "LOAD_PASSWORD"];

/// What the name of a variable stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VariableMeaning {
    /// A key, which may be unknown: its dotted path.
    Key(String),
    /// No key, but nearly the variable of one, which is given.
    Misspelt(String),
    /// Nothing, although the name begins as a key does.
    Unknown,
    /// Something else: a variable of a command, of a service of Kubernetes, or without the prefix.
    Other,
}

/// Returns what the name of a variable stands for.
pub(super) fn named_by(name: &str, value: &OsStr) -> VariableMeaning {
    let Some(rest) = name.strip_prefix(PREFIX) else { return VariableMeaning::Other };
    // A list of tables has a path of one word.
    let path = rest.replacen(SEPARATOR, ".", 1).to_ascii_lowercase();
    match meant_by(rest) {
        _ if key(&path).is_some() => VariableMeaning::Key(path),
        _ if OF_COMMANDS.contains(&rest) || is_of_service(rest, value) => VariableMeaning::Other,
        Some(meant) => VariableMeaning::Misspelt(meant),
        None if path.contains('.') => VariableMeaning::Key(path),
        None => VariableMeaning::Unknown,
    }
}

/// Returns the variable whose name is `rest` but for underscores and few typing mistakes: one in
/// four letters, and two at most.
fn meant_by(rest: &str) -> Option<String> {
    let plain = |text: &str| text.replace(['_', '.'], "").to_ascii_lowercase();
    let given = plain(rest);
    let distance = |path: &str| strsim::damerau_levenshtein(&plain(path), &given);
    let nearest = keys::keys().map(|key| (distance(key.path), key.path)).min_by_key(|(edits, _)| *edits);
    let (_, path) = nearest.filter(|(edits, path)| *edits <= (path.len() / 4).min(2))?;
    Some(format!("{PREFIX}{}", path.replace('.', SEPARATOR).to_ascii_uppercase()))
}

/// Returns true for the variables that Kubernetes and Docker give to every container beside a
/// service whose name begins with "homing": its host, and its ports as URLs.
fn is_of_service(rest: &str, value: &OsStr) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let words: Vec<&str> = rest.split('_').collect();
    let has =
        |first: &str, is: &dyn Fn(&str) -> bool| words.windows(2).any(|pair| pair[0] == first && is(pair[1]));
    has("SERVICE", &|word| word == "HOST" || word == "PORT")
        || has("PORT", &is_number)
        || (words.last() == Some(&"PORT") && value.to_string_lossy().contains("://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, value: &str) -> VariableMeaning {
        named_by(name, OsStr::new(value))
    }

    #[test]
    fn a_variable_with_wrong_underscores_is_no_key_and_names_the_one_meant() {
        assert_eq!(named("HOMING_AUTH__ANONYMOUS", ""), VariableMeaning::Key("auth.anonymous".to_owned()));
        let anonymous = || VariableMeaning::Misspelt("HOMING_AUTH__ANONYMOUS".to_owned());
        for name in [
            "HOMING_AUTH_ANONYMOUS",
            "HOMING__AUTH__ANONYMOUS",
            "HOMING_AUTH_ANONYMUS",
            "HOMING_auth_anonymous",
        ] {
            assert_eq!(named(name, "never"), anonymous(), "{name}");
        }
        assert_eq!(named("HOMING_LISTENERS", "[]"), VariableMeaning::Key("listeners".to_owned()));
        let size = || VariableMeaning::Misspelt("HOMING_LIMITS__PACKET_SIZE".to_owned());
        assert_eq!(named("HOMING_LIMITS_PACKET_SIZE", ""), size());
        assert_eq!(named(&["HOMING_LIMITS", "PACKETSIZE"].join("__"), ""), size());
        assert_eq!(named("HOMING_LIMITS_PACKET__SIZE", ""), size());
        assert_eq!(
            named("HOMING_AUTHENTICATION__SECRET", ""),
            VariableMeaning::Key("authentication.secret".to_owned())
        );
    }

    #[test]
    fn the_variables_of_commands_and_of_services_are_no_keys() {
        for name in ["HOMING_CONFIG", "HOMING_TOKEN_FILE", "HOMING_LOAD_PASSWORD", "HOMING", "PATH"] {
            assert_eq!(named(name, "x"), VariableMeaning::Other, "{name}");
        }
        for (name, value) in [
            ("HOMING_SERVICE_HOST", "10.0.0.1"),
            ("HOMING_SERVICE_PORT", "1883"),
            ("HOMING_SERVICE_PORT_MQTT", "1883"),
            ("HOMING_ADMIN_SERVICE_HOST", "10.0.0.1"),
            ("HOMING_PORT", "tcp://10.0.0.1:1883"),
            ("HOMING_PORT_1883_TCP_ADDR", "10.0.0.1"),
            ("HOMING_ADMIN_PORT_11883_TCP", "tcp://10.0.0.1:11883"),
        ] {
            assert_eq!(named(name, value), VariableMeaning::Other, "{name}");
        }
        assert_eq!(named("HOMING_PORT", "1883"), VariableMeaning::Unknown);
        assert_eq!(named("HOMING_VERSION", "1.2"), VariableMeaning::Unknown);
    }
}
