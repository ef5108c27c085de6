//! From a value that an operator wrote to the type of its field, and back.

use super::rule::ValueRule;
use super::{ByteSize, duration};
use config::{Value, ValueKind};
use std::net::SocketAddr;
use std::time::Duration;

/// A type that a key can have.
pub(super) trait Field: Sized {
    /// Returns the field with this value. Returns `None` where it has another type; bounds are the
    /// rule's.
    fn read(value: &Value) -> Option<Self>;

    /// Returns the value as one would write it in the file.
    fn write(&self) -> ValueKind;
}

/// Reads a value that `rule` admits. The word of a key is the zero of its type.
pub(super) fn read<T: Field + Default>(rule: &ValueRule, value: &Value) -> Option<T> {
    if rule.is_word(value) { Some(T::default()) } else { T::read(value) }
}

/// Returns the zero of a type, for keys with a word for zero; `None` if the type has no zero.
pub(super) fn zero<T: Field>() -> Option<T> {
    let written = [ValueKind::I64(0), ValueKind::String("0B".to_owned()), ValueKind::String("0s".to_owned())];
    written.into_iter().find_map(|zero| T::read(&Value::new(None, zero)))
}

/// Sets a field to a value that `rule` admits. Returns false, and sets nothing, where the value has
/// another type.
pub(super) fn set<T: Field + Default>(rule: &ValueRule, value: &Value, field: &mut T) -> bool {
    match read(rule, value) {
        Some(value) => {
            *field = value;
            true
        }
        None => false,
    }
}

/// The reverse of [`read`].
pub(super) fn write<T: Field + Default + PartialEq>(rule: &ValueRule, field: &T) -> ValueKind {
    match &rule.word {
        Some(word) if *field == T::default() => ValueKind::String(word.text.to_owned()),
        _ => field.write(),
    }
}

/// Returns true for a text of 1 to 1,024 bytes that can be a string of MQTT: without U+0000.
pub(super) fn is_mqtt_text(value: &Value) -> bool {
    text(value).is_some_and(|text| (1..=1_024).contains(&text.len()) && !text.contains('\0'))
}

/// Returns true for a text of 1 to 256 characters.
pub(super) fn is_label(value: &Value) -> bool {
    text(value).is_some_and(|text| (1..=256).contains(&text.chars().count()))
}

/// Returns the text of a string, and `None` for a value of another type.
pub(super) fn text(value: &Value) -> Option<&str> {
    match &value.kind {
        ValueKind::String(text) => Some(text),
        _ => None,
    }
}

/// The name of the source of a default.
pub(super) const BUILT_IN: &str = "built-in default";

/// Returns the name of the source that a value came from: a file, a variable, a flag or
/// [`BUILT_IN`].
pub(super) fn origin(value: &Value) -> String {
    value.origin().unwrap_or(BUILT_IN).to_owned()
}

/// Returns a value as one would write it in the file.
pub(super) fn written(value: &Value) -> String {
    match &value.kind {
        ValueKind::String(text) => format!("{text:?}"),
        ValueKind::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        ValueKind::Float(number) => format!("{number:?}"),
        ValueKind::Table(_) => "{...}".to_owned(),
        _ => value.to_string(),
    }
}

/// A setting whose values have names is written as the name.
macro_rules! named_fields {
    ($($name:ident),* $(,)?) => {$(
        impl $crate::config::value::Field for $name {
            fn read(value: &config::Value) -> Option<$name> {
                $crate::named_enum::Named::of_name($crate::config::value::text(value)?)
            }

            fn write(&self) -> config::ValueKind {
                config::ValueKind::String(self.name().to_owned())
            }
        }
    )*};
}
pub(super) use named_fields;

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn read(value: &Value) -> Option<$type> {
                match value.kind {
                    ValueKind::I64(n) => n.try_into().ok(),
                    _ => None,
                }
            }

            fn write(&self) -> ValueKind {
                ValueKind::I64(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }
    )*};
}

whole_numbers!(u16, u32, usize);

impl Field for bool {
    fn read(value: &Value) -> Option<bool> {
        match value.kind {
            ValueKind::Boolean(is) => Some(is),
            _ => None,
        }
    }

    fn write(&self) -> ValueKind {
        ValueKind::Boolean(*self)
    }
}

impl Field for f64 {
    fn read(value: &Value) -> Option<f64> {
        match value.kind {
            ValueKind::Float(n) => Some(n),
            #[expect(clippy::cast_precision_loss, reason = "bounds of numbers are far below 2^52")]
            ValueKind::I64(n) => Some(n as f64),
            _ => None,
        }
    }

    fn write(&self) -> ValueKind {
        ValueKind::Float(*self)
    }
}

impl Field for String {
    fn read(value: &Value) -> Option<String> {
        text(value).map(str::to_owned)
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.clone())
    }
}

impl Field for Duration {
    fn read(value: &Value) -> Option<Duration> {
        duration::parse(text(value)?).ok()
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(duration::format(*self))
    }
}

impl Field for ByteSize {
    fn read(value: &Value) -> Option<ByteSize> {
        text(value)?.parse().ok()
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.to_string())
    }
}

impl Field for SocketAddr {
    fn read(value: &Value) -> Option<SocketAddr> {
        text(value)?.parse().ok()
    }

    fn write(&self) -> ValueKind {
        ValueKind::String(self.to_string())
    }
}

impl<T: Field> Field for Vec<T> {
    fn read(value: &Value) -> Option<Vec<T>> {
        match &value.kind {
            ValueKind::Array(items) => items.iter().map(T::read).collect(),
            _ => None,
        }
    }

    fn write(&self) -> ValueKind {
        ValueKind::Array(self.iter().map(|item| Value::new(None, item.write())).collect())
    }
}
