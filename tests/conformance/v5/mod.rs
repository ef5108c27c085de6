//! MQTT 5.0 by its statements, and by the rules that have no number.

mod authentication;
mod closing;
mod connack;
mod connect;
mod flow_control;
mod header;
mod keep_alive;
mod properties;
mod publish;
mod retained;
mod session;
mod shared;
mod size_limit;
mod stage;
mod subscribe;
mod table;
mod topic;
mod topic_alias;
mod unsubscribe;
mod utf8;
mod websocket;
mod will;

use crate::harness::Case;

pub const CASES: &[&[Case]] = &[
    authentication::CASES,
    closing::CASES,
    connack::CASES,
    connect::CASES,
    flow_control::CASES,
    header::CASES,
    keep_alive::CASES,
    properties::CASES,
    publish::CASES,
    retained::CASES,
    session::CASES,
    shared::CASES,
    size_limit::CASES,
    subscribe::CASES,
    table::CASES,
    topic::CASES,
    topic_alias::CASES,
    unsubscribe::CASES,
    utf8::CASES,
    websocket::CASES,
    will::CASES,
];

/// Lists the tests of a module, each with the statements that it is for: `[]` is a rule without a
/// number.
///
/// Every listed function becomes a `#[test]` on a [`stage::Stage`] of the broker and an entry of
/// `CASES`. A function that is written and not listed is dead code, which the compiler reports.
macro_rules! cases {
    ($($name:ident: $statements:tt),+ $(,)?) => {
        pub const CASES: &[$crate::harness::Case] = &[$($crate::harness::Case {
            module: module_path!(),
            name: stringify!($name),
            version: $crate::support::V5,
            statements: &$statements,
            run: |target| $name(&$crate::v5::stage::Stage::of(target)),
        }),+];

        mod v5 {
            $(#[test] fn $name() {
                super::$name(&$crate::v5::stage::Stage::of(&$crate::harness::Target::broker()));
            })+
        }
    };
}
use cases;
