//! Every normative statement by its number: at least one test for each row of the lists beside this file that can be
//! tested from outside, over real sockets, with raw packets, against a real broker in this process.
//!
//! A test is a function of a [`Target`](harness::Target), named `<version>_<id>_<behaviour>` (one id or more:
//! `mqtt311_3_1_2_24_...` is \[MQTT-3.1.2-24] of 3.1.1), and listed in its module's `cases!`, which makes it a `#[test]`
//! against the broker and an entry in a table. Over that table
//!
//! - [`coverage`] pairs the tests with the lists, both ways, and keeps `COVERAGE.md`;
//! - [`fake`] runs them all against two listeners that are no brokers: a test that passes there shows nothing, and fails
//!   the run. So a test that waits for a close, or for nothing to come, begins with an exchange that must succeed.

#[path = "../support/mod.rs"]
mod support;

mod coverage;
mod fake;
mod harness;

mod v3;
mod v5;

use coverage::Suite;

/// What is paired with what.
const SUITES: &[Suite] = &[
    Suite {
        title: "MQTT 3.1.1",
        version: "3.1.1",
        prefix: "mqtt311_",
        // 3.1 numbers no statements; its differences are tested beside what they differ from.
        unnumbered: &["mqtt31_"],
        statements: include_str!("mqtt-3.1.1.csv"),
        cases: v3::CASES,
    },
    Suite {
        title: "MQTT 5.0",
        version: "5.0",
        prefix: "mqtt5_",
        unnumbered: &["mqtt5_unnumbered_"],
        statements: include_str!("mqtt-5.0.csv"),
        cases: v5::CASES,
    },
];
