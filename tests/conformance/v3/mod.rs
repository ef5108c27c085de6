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
    will::CASES,
];
