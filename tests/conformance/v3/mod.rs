//! MQTT 3.1.1 by its statements, and where MQTT 3.1 differs.

mod connect;
mod connect_payload;
mod format;
mod keep_alive;
mod packet_id;
mod publish;
mod qos;
mod redelivery;
mod retained;
mod session;
mod subscribe;
mod topic;
mod unsubscribe;
mod websocket;
mod will;

use crate::harness::Case;

pub const CASES: &[&[Case]] = &[
    connect::CASES,
    connect_payload::CASES,
    format::CASES,
    keep_alive::CASES,
    packet_id::CASES,
    publish::CASES,
    qos::CASES,
    redelivery::CASES,
    retained::CASES,
    session::CASES,
    subscribe::CASES,
    topic::CASES,
    unsubscribe::CASES,
    websocket::CASES,
    will::CASES,
];

/// Lists the tests of a module by version, each with the statements of 3.1.1 that it is for.
///
/// Every listed function becomes a `#[test]` against the broker and an entry of `CASES`. A function
/// of `v311_and_v31` is run twice, with the version as its second argument. 3.1 numbers no
/// statements. A function that is written and not listed is dead code, which the compiler reports.
macro_rules! cases {
    (
        $(v311 { $($new:ident: $new_ids:tt),+ $(,)? })?
        $(v311_and_v31 { $($both:ident: $both_ids:tt),+ $(,)? })?
        $(v31 { $($old:ident),+ $(,)? })?
    ) => {
        pub const CASES: &[$crate::harness::Case] = &[
            $($($crate::v3::case!($new, V311, &$new_ids, $new),)+)?
            $($($crate::v3::case!($both, V311, &$both_ids, |target| $both(target, $crate::support::V311)),)+)?
            $($($crate::v3::case!($both, V31, &[], |target| $both(target, $crate::support::V31)),)+)?
            $($($crate::v3::case!($old, V31, &[], $old),)+)?
        ];

        mod v311 {
            $($(#[test] fn $new() { super::$new(&$crate::harness::Target::broker()); })+)?
            $($(#[test] fn $both() {
                super::$both(&$crate::harness::Target::broker(), $crate::support::V311);
            })+)?
        }

        mod v31 {
            $($(#[test] fn $both() {
                super::$both(&$crate::harness::Target::broker(), $crate::support::V31);
            })+)?
            $($(#[test] fn $old() { super::$old(&$crate::harness::Target::broker()); })+)?
        }
    };
}
use cases;

/// One entry of `CASES`.
macro_rules! case {
    ($name:ident, $version:ident, $statements:expr, $run:expr) => {
        $crate::harness::Case {
            module: module_path!(),
            name: stringify!($name),
            version: $crate::support::$version,
            statements: $statements,
            run: $run,
        }
    };
}
use case;
