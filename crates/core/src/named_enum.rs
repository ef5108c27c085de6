//! Enums whose values have names.

/// Defines an enum from a table of values and names, such as `Refuse = "refuse"`. A value may have
/// a number of its own: `V5(5) = "5.0"`. The list of the values and the names come from the same
/// table, so neither can miss a value.
#[doc(hidden)]
#[macro_export]
macro_rules! __named_enum {
    ($($(#[$meta:meta])* $visible:vis enum $name:ident {
        $($(#[$of:meta])* $value:ident $(($number:literal))? = $word:literal,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name { $($(#[$of])* $value $(= $number)?,)* }

        impl $name {
            /// Every value, in the order of its definition.
            $visible const ALL: [$name; [$($word),*].len()] = [$($name::$value),*];

            /// Returns the name of the value in settings, topics, metrics and logs.
            $visible const fn name(self) -> &'static str {
                match self { $($name::$value => $word,)* }
            }
        }

        impl $crate::named_enum::Named for $name {
            const NAMES: &'static [&'static str] = &[$($word),*];

            fn of_name(name: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                use $crate::named_enum::Named;
                let name = <String as serde::Deserialize>::deserialize(from)?;
                $name::of_name(&name).ok_or_else(|| serde::de::Error::unknown_variant(&name, $name::NAMES))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

pub use __named_enum as named_enum;

/// An enum whose values have names. The macro `named_enum!` implements it.
pub trait Named: Sized {
    /// The names, in the order of the values.
    const NAMES: &'static [&'static str];

    /// Returns the value with this name.
    fn of_name(name: &str) -> Option<Self>;
}
