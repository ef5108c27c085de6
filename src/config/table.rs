//! The macros that turn the table of keys in [`super::keys`] into structs, defaults, rules and
//! documents: [`section`] for the keys of one section, [`configuration`] for the order of the
//! sections.

use super::rule::ValueRule;
use crate::named_enum::named_enum;
use config::{Value, ValueKind};

/// One section of the file, in the order of the file.
pub(super) struct Section {
    pub(super) name: &'static str,
    /// The lines of its doc comment.
    pub(super) about: &'static [&'static str],
    pub(super) keys: &'static [Key],
    /// TOML lines without `#`; empty for none. The file has them as a comment behind the keys, and
    /// the document as they are.
    pub(super) example: &'static str,
}

impl Section {
    /// Returns true if the section is a list of tables, `[[name]]`. Such a section has one key. The
    /// path of the key is the name of the section.
    pub(super) fn is_list(&self) -> bool {
        self.keys.iter().any(|key| key.path == self.name)
    }
}

named_enum! {
    /// The effect of a changed key when the configuration of a running broker is read again. The
    /// names are the words that `homing ctl reload` prints.
    pub enum ReloadEffect {
        /// The new value holds at once, for existing connections and sessions, too.
        Live = "live",
        /// The new value holds for connections that begin from now on.
        NewConnections = "new",
        /// The old value holds until the next start.
        Restart = "restart",
    }
}

impl ReloadEffect {
    /// Returns the words of the documents.
    pub fn title(self) -> &'static str {
        match self {
            ReloadEffect::NewConnections => "new connections",
            ReloadEffect::Live | ReloadEffect::Restart => self.name(),
        }
    }
}

/// What a key has to be like on the nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyScope {
    /// The same on all nodes, because each of them may serve. Of a path it is the content of the
    /// file that has to be the same.
    Cluster,
    /// Each node's own: addresses, folders, threads, the log.
    Node,
}

/// One key: its path, values and documents.
pub(super) struct Key {
    /// Its dotted path, `section.key`; for a list of tables its name alone.
    pub(super) path: &'static str,
    pub(super) rule: ValueRule,
    /// The effect of a change when the configuration is read again.
    pub(super) effect: ReloadEffect,
    pub(super) scope: KeyScope,
    /// The lines of its doc comment: its effect, and the behaviour at the bound.
    pub(super) help: &'static [&'static str],
    /// The reason for the default; may be empty.
    pub(super) why: &'static str,
    /// The rule of the standard; empty without one.
    pub(super) standard: &'static str,
    /// The names of the key in other brokers, for operators who know those; may be empty.
    pub(super) elsewhere: &'static str,
}

impl Key {
    /// The name without its section.
    pub(super) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The section of the key. A list of tables is a section of its own.
    pub(super) fn section(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(section, _)| section)
    }
}

/// The fields of one section, by their keys.
pub(super) trait SectionFields {
    /// Sets the field of this key. Returns false, and sets nothing, where the value has another
    /// type or the section does not have the key.
    fn set(&mut self, key: &Key, value: &Value) -> bool;

    /// Returns the field of this key as one would write it in the file; nil where the section does
    /// not have the key.
    fn value(&self, key: &Key) -> ValueKind;

    /// Copies the field of this key from another section of the same kind.
    fn copy(&mut self, key: &Key, from: &Self);
}

/// Makes of one section: its struct with the defaults, the way from a key to its field, and the
/// constant `SECTION`. A list of tables, `[[name]]`, has its struct elsewhere.
///
/// A doc comment is the documentation of the Rust field, of the key in `config/homing.toml` and of
/// the key in `docs/configuration.md`. Below the key come, in this order and if present: the effect
/// of a `reload` that changes the key (without it, a change needs a restart), its `scope` in a cluster
/// (without it, that of the section, and without that `Cluster`), the reason for the default (`why`),
/// the rule of the `standard`, and the key's name `elsewhere`.
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        [$section:ident] $Section:ident $(, scope: $scope:ident)? {$(
            $(#[doc = $help:literal])*
            $key:ident: $type:ty = $default:expr, $rule:expr
                $(, reload: $effect:ident)? $(, scope: $own_scope:ident)?
                $(, why: $why:literal)? $(, standard: $standard:literal)? $(, elsewhere: $elsewhere:literal)?;
        )*}
        $(example: $example:literal;)?
    ) => {
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

        impl $crate::config::table::SectionFields for $Section {
            fn set(&mut self, key: &$crate::config::table::Key, value: &config::Value) -> bool {
                $(if key.name() == stringify!($key) {
                    return $crate::config::value::set(&key.rule, value, &mut self.$key);
                })*
                false
            }

            fn value(&self, key: &$crate::config::table::Key) -> config::ValueKind {
                $(if key.name() == stringify!($key) {
                    return $crate::config::value::write(&key.rule, &self.$key);
                })*
                config::ValueKind::Nil
            }

            fn copy(&mut self, key: &$crate::config::table::Key, from: &$Section) {
                $(if key.name() == stringify!($key) {
                    self.$key.clone_from(&from.$key);
                })*
            }
        }

        /// The scope of the keys that have none of their own. The first item counts.
        const SCOPE: $crate::config::table::KeyScope =
            [$($crate::config::table::KeyScope::$scope,)? $crate::config::table::KeyScope::Cluster][0];

        /// The section as the file and the documents have it.
        pub(in crate::config) const SECTION: $crate::config::table::Section = $crate::config::table::Section {
            name: stringify!($section),
            about: &[$($about),*],
            keys: &[$(
                $crate::config::table::Key {
                    path: concat!(stringify!($section), ".", stringify!($key)),
                    rule: $rule,
                    // A key without an effect has `Restart`. The first item counts.
                    effect: [$($crate::config::table::ReloadEffect::$effect,)? $crate::config::table::ReloadEffect::Restart][0],
                    scope: [$($crate::config::table::KeyScope::$own_scope,)? SCOPE][0],
                    help: &[$($help),*],
                    why: concat!("" $(, $why)?),
                    standard: concat!("" $(, $standard)?),
                    elsewhere: concat!("" $(, $elsewhere)?),
                },
            )*],
            example: concat!("" $(, $example)?),
        };
    };

    (
        $(#[doc = $help:literal])*
        [[$list:ident]] $List:ty, $rule:expr, $(reload: $effect:ident,)? example: $example:literal;
    ) => {
        impl $crate::config::table::SectionFields for Vec<$List> {
            fn set(&mut self, key: &$crate::config::table::Key, value: &config::Value) -> bool {
                $crate::config::value::set(&key.rule, value, self)
            }

            fn value(&self, key: &$crate::config::table::Key) -> config::ValueKind {
                $crate::config::value::write(&key.rule, self)
            }

            fn copy(&mut self, _: &$crate::config::table::Key, from: &Vec<$List>) {
                self.clone_from(from);
            }
        }

        /// The list as the file and the documents have it.
        pub(in crate::config) const SECTION: $crate::config::table::Section = $crate::config::table::Section {
            name: stringify!($list),
            about: &[],
            keys: &[$crate::config::table::Key {
                path: stringify!($list),
                rule: $rule,
                effect: [$($crate::config::table::ReloadEffect::$effect,)? $crate::config::table::ReloadEffect::Restart][0],
                scope: $crate::config::table::KeyScope::Cluster,
                help: &[$($help),*],
                why: "",
                standard: "",
                elsewhere: "",
            }],
            example: $example,
        };
    };
}

/// Makes `Config`, with a field for each section, and `SECTIONS`. Each section is a module with the
/// section's name. The order here is that of the file and the documents. The caller declares the
/// modules, since `cargo fmt` does not find a module that a macro declares.
macro_rules! configuration {
    ($($section:ident: $type:ty,)*) => {
        /// Everything that an operator can set; one field for each section of the file.
        /// `Config::default()` has the built-in defaults.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $(
                #[doc = concat!("The keys of `", stringify!($section), "`.")]
                pub $section: $type,
            )*
        }

        impl Config {
            /// Sets the field of this key. Returns false, and sets nothing, where the value has
            /// another type or no section has the key.
            pub(super) fn set(&mut self, key: &Key, value: &Value) -> bool {
                $(if key.section() == stringify!($section) {
                    return self.$section.set(key, value);
                })*
                false
            }

            /// Returns the field of this key as one would write it in the file.
            pub(super) fn value(&self, key: &Key) -> Value {
                $(if key.section() == stringify!($section) {
                    return Value::new(None, self.$section.value(key));
                })*
                Value::new(None, ValueKind::Nil)
            }

            /// Copies the field of this key from another configuration.
            pub(super) fn copy(&mut self, key: &Key, from: &Config) {
                $(if key.section() == stringify!($section) {
                    self.$section.copy(key, &from.$section);
                })*
            }
        }

        /// Every section with its keys.
        pub(super) const SECTIONS: &[Section] = &[$($section::SECTION),*];
    };
}

pub(super) use {configuration, section};
