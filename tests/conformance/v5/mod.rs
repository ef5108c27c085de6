//! MQTT 5.0 by its statements, and by the rules that have no number.

mod connack;
mod connect;
mod header;
mod publish;
mod retained;
mod session;
mod stage;
mod utf8;
mod will;

use crate::harness::Case;

pub const CASES: &[&[Case]] = &[connack::CASES, connect::CASES, header::CASES, publish::CASES, retained::CASES, session::CASES, utf8::CASES, will::CASES];

/// [`crate::harness::cases`] for tests of a [`stage::Stage`]: all functions that are listed become tests and entries.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub const CASES: &[$crate::harness::Case] = &[$($crate::harness::Case {
            name: stringify!($name),
            run: |target| $name(&$crate::v5::stage::Stage::of(target)),
        }),+];

        mod on_the_broker {
            $(#[test] fn $name() {
                super::$name(&$crate::v5::stage::Stage::of(&$crate::harness::Target::broker()));
            })+
        }
    };
}
use cases;
