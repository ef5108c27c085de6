//! WebSocket (RFC 6455), as MQTT 5.0 section 6 and MQTT 3.1.1 section 6 use it: server side, and the
//! frames of a client for bridges.
//!
//! No extension is offered. Compression needs a window of 32 KiB for each connection, and a small
//! frame could expand to any size.

pub mod frame;
pub mod upgrade;
