//! The macro that turns the table of keys in [`super::keys`] into structs, defaults, rules and
//! documents.

use super::Config;
use super::rule::ValueRule;
use config::{Value, ValueKind};

/// One section of the file, in the order of the file.
pub(super) struct Section {
    pub(super) name: &'static str,
    /// The lines of its doc comment.
    pub(super) about: &'static [&'static str],
    pub(super) keys: &'static [Key],
    /// Lines that follow the keys in the file, commented out.
    pub(super) example: &'static str,
}

impl Section {
    /// True for a section that is a list of tables, `[[name]]`, and has no keys of its own.
    pub(super) fn is_list(&self) -> bool {
        self.keys.iter().any(|key| key.path == self.name)
    }
}

/// One key: its path, values, documents, and access to its field.
pub(super) struct Key {
    /// Its dotted path, `section.key`.
    pub(super) path: &'static str,
    pub(super) rule: ValueRule,
    /// The lines of its doc comment: what it does, and what happens at the bound.
    pub(super) help: &'static [&'static str],
    /// Why the default is what it is.
    pub(super) why: &'static str,
    /// The rule of the standard, if there is one.
    pub(super) standard: &'static str,
    /// The names of the key in other brokers, for operators who know those.
    pub(super) elsewhere: &'static str,
    read: fn(&ValueRule, &mut Config, &Value) -> bool,
    write: fn(&ValueRule, &Config) -> ValueKind,
}

impl Key {
    pub(super) const fn new(
        path: &'static str,
        rule: ValueRule,
        help: &'static [&'static str],
        [why, standard, elsewhere]: [&'static str; 3],
        read: fn(&ValueRule, &mut Config, &Value) -> bool,
        write: fn(&ValueRule, &Config) -> ValueKind,
    ) -> Key {
        Key { path, rule, help, why, standard, elsewhere, read, write }
    }

    /// The name without its section.
    pub(super) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The section that the key stands in.
    pub(super) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Sets the field of this key. Returns false, and sets nothing, where the value has another
    /// type.
    pub(super) fn set(&self, config: &mut Config, value: &Value) -> bool {
        (self.read)(&self.rule, config, value)
    }

    /// Returns the field of this key as one would write it in the file.
    pub(super) fn value(&self, config: &Config) -> Value {
        Value::new(None, (self.write)(&self.rule, config))
    }
}

/// Makes a struct for each section, `Config` with a field for each section, and `SECTIONS`. Behind
/// the word `tables` stand the lists of tables, whose struct is elsewhere.
///
/// A doc comment is the documentation of the Rust field, of the key in `config/homing.toml` and of
/// the key in `docs/configuration.md`. Below the key stand, in this order and where there is
/// something to say: `why` the default, what the `standard` says, and what it is called
/// `elsewhere`.
macro_rules! configuration {
    ($(
        $(#[doc = $about:literal])*
        [$section:ident] $Section:ident {$(
            $(#[doc = $help:literal])*
            $key:ident: $type:ty = $default:expr, $rule:expr
                $(, why: $why:literal)? $(, standard: $standard:literal)? $(, elsewhere: $elsewhere:literal)?;
        )*}
        $(example: $example:literal;)?
    )* tables $(
        $(#[doc = $list_help:literal])*
        [[$list:ident]] $List:ty, $list_rule:expr, example: $list_example:literal;
    )*) => {
        $(
            $(#[doc = $about])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $Section {
                $($(#[doc = $help])* pub $key: $type,)*
            }

            impl Default for $Section {
                fn default() -> $Section {
                    $Section { $($key: $default,)* }
                }
            }
        )*

        /// Everything that an operator can set; one field for each section of the file.
        /// `Config::default()` has the built-in defaults.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($(#[doc = $about])* pub $section: $Section,)*
            $($(#[doc = $list_help])* pub $list: Vec<$List>,)*
        }

        /// Every section with its keys.
        pub(super) const SECTIONS: &[Section] = &[$(
            Section {
                name: stringify!($section),
                about: &[$($about),*],
                keys: &[$(
                    Key::new(
                        concat!(stringify!($section), ".", stringify!($key)),
                        $rule,
                        &[$($help),*],
                        [concat!("" $(, $why)?), concat!("" $(, $standard)?), concat!("" $(, $elsewhere)?)],
                        |rule, config, value| match value::read(rule, value) {
                            Some(value) => {
                                config.$section.$key = value;
                                true
                            }
                            None => false,
                        },
                        |rule, config| value::write(rule, &config.$section.$key),
                    ),
                )*],
                example: concat!("" $(, $example)?),
            },
        )*$(
            Section {
                name: stringify!($list),
                about: &[],
                keys: &[Key::new(
                    stringify!($list),
                    $list_rule,
                    &[$($list_help),*],
                    ["", "", ""],
                    |rule, config, value| match value::read(rule, value) {
                        Some(value) => {
                            config.$list = value;
                            true
                        }
                        None => false,
                    },
                    |rule, config| value::write(rule, &config.$list),
                )],
                example: $list_example,
            },
        )*];
    };
}

pub(super) use configuration;
