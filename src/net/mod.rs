//! The codecs between a socket and MQTT: TLS records, WebSocket frames, and the PROXY header.
//!
//! Bytes go in and bytes come out. No module here has a socket, an actor, a thread or a clock; time
//! is an argument. Only `tls/config.rs` and `tls/reload.rs` read files.
//!
//! | module | content |
//! |---|---|
//! | [`layers`] | the codecs of one established connection, in their order |
//! | [`proxy`] | the PROXY protocol header, before everything else |
//! | [`tls`] | TLS 1.2 and 1.3, server side |
//! | [`websocket`] | the HTTP upgrade, and the frames after it |

pub mod layers;
pub mod proxy;
pub mod tls;
pub mod websocket;
