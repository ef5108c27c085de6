//! MQTT 3.1.1 by its statements, and where MQTT 3.1 differs.

mod connect;

use crate::harness::Case;

pub const CASES: &[&[Case]] = &[connect::CASES];
