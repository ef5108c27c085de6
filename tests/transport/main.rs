//! The broker behind TLS, WebSocket, the PROXY protocol and Unix sockets, with real sockets.
//!
//! Each test starts a broker in this process. The clients are rustls, tungstenite and plain
//! sockets. Certificates are made for each test.

#[path = "../support/mod.rs"]
mod support;

mod bans;
mod health;
mod http_service;
mod kit;
mod listeners;
mod proxy;
mod recipes;
mod refusals;
mod reload;
mod terms;
mod tls;
mod unix;
mod websocket;
