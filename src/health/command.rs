//! The arguments of `homing health`, and the listener that it checks.

use super::{HealthTarget, ProxyStart};
use crate::broker::OpenListener;
use crate::broker::bind::reachable;
use crate::config::{Config, Listener, ListenerAddress, ListenerProtocol, duration};
use crate::net::tls::client;
use clap::Args;
use rustls::pki_types::ServerName;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `homing health`.
#[derive(Args, Clone, Debug)]
pub struct HealthArguments {
    /// The broker's address [default: that of its first listener, from network.addresses_file if
    /// the broker writes one]
    #[arg(long, value_name = "ADDR:PORT|unix:/PATH")]
    pub address: Option<ListenerAddress>,
    /// Maximum time for each step
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    pub timeout: Duration,
    /// Use TLS [default: as the listener of the configuration, without --address]
    #[arg(long)]
    pub tls: bool,
    /// Trust the authorities in this file (PEM); implies --tls [default: those of the system with
    /// --address, else any certificate: the listener is the broker's own]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Name that the broker's certificate must have; implies --tls [default: the IP address]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Use MQTT over WebSocket at this path [default: as the listener, without --address]
    #[arg(long, value_name = "PATH")]
    pub websocket_path: Option<String>,
}

impl HealthArguments {
    /// Returns the target of the check. `running` is the first IP address of the running broker, if
    /// the broker has written it down.
    ///
    /// # Errors
    /// There is no address, or TLS cannot be set up; the text names the argument that helps.
    pub fn target(&self, running: Option<SocketAddr>, config: &Config) -> Result<HealthTarget, String> {
        let listener = self.listener(running, config)?;
        let address = listener.address.clone().ok_or("no listener is configured; name one with --address")?;
        if let ListenerAddress::Ip(ip) = &address
            && ip.port() == 0
        {
            return Err(format!(
                "{ip} stands for a free port, which only the running broker knows; name it with --address"
            ));
        }
        let has_tls = self.tls || self.ca.is_some() || self.server_name.is_some() || listener.tls.is_some();
        let tls = if has_tls {
            let config = match self.takes_any_certificate() {
                true => client::config_for_any_certificate(),
                false => client::client_config(self.ca.as_deref(), None),
            };
            Some((config.map_err(|error| error.to_string())?, self.server_name(&address)?))
        } else {
            None
        };
        let of_listener = (listener.protocol == Some(ListenerProtocol::WebSocket)).then(|| {
            listener.websocket_path.clone().filter(|path| path != "*").unwrap_or_else(|| "/mqtt".to_owned())
        });
        let proxy = ProxyStart::of(&listener);
        Ok(HealthTarget { address, proxy, tls, websocket_path: self.websocket_path.clone().or(of_listener) })
    }

    /// Returns true if any certificate will do: the address is that of the configuration, and no
    /// argument says what the certificate must be. The check sends no secret, and a broker with a
    /// certificate of its own authority is no less healthy.
    fn takes_any_certificate(&self) -> bool {
        self.address.is_none() && self.ca.is_none() && self.server_name.is_none()
    }

    /// Returns the listener to check: one at `--address`, or the first of the configuration.
    fn listener(&self, running: Option<SocketAddr>, config: &Config) -> Result<Listener, String> {
        if let Some(address) = &self.address {
            return Ok(Listener { address: Some(address.clone()), ..Listener::default() });
        }
        let all = config.all_listeners();
        let first = match running {
            Some(running) => written_first(config, &all, running),
            None => all.first(),
        };
        let mut listener = first.ok_or("no listener is configured; name one with --address")?.clone();
        if let Some(running) = running {
            listener.address = Some(ListenerAddress::Ip(running));
        }
        Ok(listener)
    }

    fn server_name(&self, address: &ListenerAddress) -> Result<ServerName<'static>, String> {
        match (&self.server_name, address) {
            (Some(name), _) => ServerName::try_from(name.clone())
                .map_err(|_| format!("--server-name must be a DNS name or an IP address, not {name:?}")),
            (None, ListenerAddress::Ip(address)) => Ok(ServerName::from(reachable(*address).ip())),
            (None, ListenerAddress::Unix(_)) if self.takes_any_certificate() => {
                ServerName::try_from("localhost").map_err(|error| error.to_string())
            }
            (None, ListenerAddress::Unix(_)) => {
                Err("TLS over a Unix socket needs the name in the certificate: --server-name".to_owned())
            }
        }
    }
}

/// Returns the listener whose address a running broker wrote down first: the listener at this
/// address, else the first for plain MQTT, else the first with an IP address. A port 0 is at no
/// address of the configuration.
fn written_first<'a>(config: &Config, all: &'a [Listener], running: SocketAddr) -> Option<&'a Listener> {
    let open = |listener: &Listener| Some(OpenListener::of(config, listener, listener.address.clone()?));
    let is_plain = |listener: &&Listener| open(listener).is_some_and(|open| open.plain_address().is_some());
    let has_ip = |listener: &&Listener| matches!(listener.address, Some(ListenerAddress::Ip(_)));
    let is_there = |listener: &&Listener| listener.address == Some(ListenerAddress::Ip(running));
    all.iter().find(is_there).or_else(|| all.iter().find(is_plain)).or_else(|| all.iter().find(has_ip))
}
