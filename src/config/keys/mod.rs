//! Every key of the configuration, with its type, default, values and documentation: one table,
//! with a file for each section. No key is declared anywhere else.
//!
//! From the table come the structs, their defaults, the checks, `config/homing.toml` and
//! `docs/configuration.md`. A test compares both files with the table; `HOMING_RENEW=1 cargo test
//! --test program config` writes them.
//!
//! In Rust, a key that takes a word holds the zero of its type for that word: `runtime.threads` is
//! 0 for "auto".
//!
//! A key is added in the file of its section, with `reload:` if it changes without a restart. A
//! rule between two keys is checked in `contradictions` in `sources.rs`. A section is added as a file
//! of its own, and in both lists below.

mod acl;
mod admin;
mod auth;
mod bans;
mod bridges;
mod cluster;
mod expiry;
mod keep_alive;
mod limits;
mod listeners;
mod log;
mod network;
mod otlp;
mod paths;
pub(in crate::config) mod redelivery;
mod runtime;
mod sinks;
mod slo;
mod store;
mod sys;

use super::bridge::Bridge;
use super::listener::Listener;
use super::sink::Sink;
use super::table::{Key, Section, SectionFields, configuration};
use crate::session::authentication::AuthMethod;
use crate::session::objectives::Objective;
use config::{Value, ValueKind};

pub use acl::Acl;
pub use admin::Admin;
pub use auth::Auth;
pub use bans::Bans;
pub use cluster::Cluster;
pub use expiry::Expiry;
pub use keep_alive::KeepAlive;
pub use limits::Limits;
pub use log::Log;
pub use network::Network;
pub use otlp::Otlp;
pub use redelivery::Redelivery;
pub use runtime::Runtime;
pub use store::Store;
pub use sys::Sys;

configuration! {
    runtime: Runtime,
    network: Network,
    auth: Auth,
    acl: Acl,
    bans: Bans,
    limits: Limits,
    keep_alive: KeepAlive,
    expiry: Expiry,
    redelivery: Redelivery,
    store: Store,
    cluster: Cluster,
    sys: Sys,
    log: Log,
    admin: Admin,
    otlp: Otlp,
    listeners: Vec<Listener>,
    slo: Vec<Objective>,
    bridges: Vec<Bridge>,
    sinks: Vec<Sink>,
}

impl Config {
    /// Returns the settings of authentication for the clients of a listener. Files and methods that
    /// the listener does not use are left out.
    pub fn auth_of(&self, listener: &Listener) -> Auth {
        let mut auth = self.auth.clone();
        auth.anonymous = listener.anonymous.unwrap_or(auth.anonymous);
        if let Some(file) = &listener.password_file {
            auth.password_file.clone_from(file);
        }
        if let Some(methods) = &listener.auth {
            auth.methods.clone_from(methods);
            if !methods.iter().any(|method| method.reads_passwords()) {
                auth.password_file.clear();
            }
            if !methods.contains(&AuthMethod::Jwt) {
                auth.jwt_keys.clear();
            }
            if !methods.contains(&AuthMethod::Http) {
                auth.http_url.clear();
            }
        }
        auth
    }

    /// Returns all listeners: those of `network.listen`, then those of `[[listeners]]`.
    pub fn all_listeners(&self) -> Vec<Listener> {
        let quick = self.network.listen.iter().map(|address| Listener::plain(*address));
        quick.chain(self.listeners.iter().cloned()).collect()
    }
}

/// Returns every key, in the order of the file.
pub(super) fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// Returns the key with this dotted path.
pub(super) fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_allowed_and_reads_back() {
        let mut read =
            Config { log: Log { level: "warn".to_owned(), ..Log::default() }, ..Config::default() };
        for key in keys() {
            let default = Config::default().value(key);
            assert!(key.rule.admits(&default), "{} = {default}", key.path);
            assert!(read.set(key, &default), "{} = {default}", key.path);
        }
        assert_eq!(read, Config::default());
    }

    #[test]
    fn each_key_sets_its_own_field_and_no_other() {
        for key in keys().filter(|key| key.rule.word.is_some()) {
            let word = key.rule.word.map(|word| word.text).unwrap();
            let mut config = Config::default();
            assert!(config.set(key, &Value::new(None, word)), "{}", key.path);
            let changed = keys().filter(|other| {
                config.value(other).to_string() != Config::default().value(other).to_string()
            });
            assert!(changed.map(|other| other.path).all(|path| path == key.path), "{}", key.path);
        }
    }
}
