//! Tests every normative statement of MQTT 3.1.1 and 5.0 that can be tested from outside.
//!
//! The lists of statements are the CSV files beside this file. The tests use real sockets and raw
//! packets, against a real broker in this process.
//!
//! A test is a function of a [`Target`](harness::Target). Its name states the behaviour. The
//! module's `cases!` lists it with the ids of its statements, and makes it a `#[test]` and an entry
//! of a table. Two checks read the table:
//!
//! - [`coverage`] pairs the tests with the lists, both ways, and writes `COVERAGE.md`.
//! - [`fake`] runs all tests against two listeners that are no brokers. A test that passes there
//!   shows nothing, so the run fails. Therefore a test that waits for a close, or for silence,
//!   begins with an exchange that must succeed.

#[path = "../support/mod.rs"]
mod support;

mod coverage;
mod fake;
mod harness;
mod websocket;

mod v3;
mod v5;

use coverage::Suite;

/// The tests of 3.1 belong to 3.1.1: 3.1 numbers no statements, and its tests stand beside those it
/// differs from.
const SUITES: &[Suite] = &[
    Suite {
        title: "MQTT 3.1.1",
        version: "3.1.1",
        statements: include_str!("mqtt-3.1.1.csv"),
        cases: v3::CASES,
    },
    Suite { title: "MQTT 5.0", version: "5.0", statements: include_str!("mqtt-5.0.csv"), cases: v5::CASES },
];
