//! The ports, and who may connect there.

use super::CheckedBroker;
use crate::access::network::{everything, network};
use crate::broker::bind::{self, BindError};
use crate::broker::{EntranceRisk, OpenListener};
#[cfg(feature = "admin")]
use crate::config::Admin;
use crate::config::{Config, Listener, ListenerAddress};
use crate::finding::{Check, Finding};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Sockets and files of the addresses tried so far. As at the start, an address is kept until all
/// are tried, because one address may block another.
#[derive(Default)]
struct TakenPorts {
    sockets: Vec<TcpListener>,
    files: Vec<PathBuf>,
}

/// `is_in_use`: a broker has the data directory, and so most likely the ports.
pub(super) fn findings(broker: &CheckedBroker<'_>, is_in_use: bool) -> Vec<Finding> {
    let config = broker.config;
    let listeners = config.all_listeners();
    let addresses = listeners.iter().filter_map(|listener| listener.address.as_ref());
    let mut findings: Vec<Finding> = match is_in_use {
        true => addresses
            .map(|address| Finding::ok(Check::Port, format!("{address}: not tried, because a broker runs")))
            .collect(),
        false => {
            let mut taken = TakenPorts::default();
            #[cfg(feature = "admin")]
            let interface = interface(broker, &mut taken);
            #[cfg(not(feature = "admin"))]
            let interface = Vec::new();
            interface.into_iter().chain(addresses.map(|address| port(address, &mut taken))).collect()
        }
    };
    findings.extend(entrances(config));
    findings
}

/// Tries the addresses and the Unix socket of the HTTP interface, which starts before the
/// listeners. A start goes on without the default addresses.
#[cfg(feature = "admin")]
fn interface(broker: &CheckedBroker<'_>, taken: &mut TakenPorts) -> Vec<Finding> {
    let options = &broker.config.admin;
    let mut findings = Vec::new();
    let sort = |is_default: bool| if is_default { Finding::warn } else { Finding::fail };
    for &address in &options.addresses {
        let finding = sort(options.addresses == Admin::default().addresses);
        findings.extend(taken.tcp(address).err().map(|error| {
            finding(Check::Port, format!("{address}: {} (admin.addresses)", error.cause))
                .advise("`ss -ltnp` names the process that has it")
        }));
    }
    if let Some(path) = &broker.socket
        && let Err(error) = taken.unix(path)
        // A start makes the data directory.
        && !(options.socket.is_empty() && error.cause.kind() == io::ErrorKind::NotFound)
    {
        let text = format!("unix:{}: {} (admin.socket)", path.display(), error.cause);
        findings.push(sort(options.socket.is_empty())(Check::Port, text));
    }
    findings
}

fn port(address: &ListenerAddress, taken: &mut TakenPorts) -> Finding {
    match address {
        ListenerAddress::Ip(ip) if ip.port() == 0 => {
            Finding::ok(Check::Port, format!("{address}: a free one is taken"))
        }
        ListenerAddress::Ip(ip) => match taken.tcp(*ip) {
            Ok(()) => Finding::ok(Check::Port, format!("{address} is free")),
            Err(error) => Finding::fail(Check::Port, format!("{address}: {}", error.cause))
                .advise("`ss -ltnp` names the process that has it, or it is twice in the configuration"),
        },
        ListenerAddress::Unix(path) => match taken.unix(path) {
            Ok(()) => Finding::ok(Check::Port, format!("{address} is free")),
            Err(error) => Finding::fail(Check::Port, format!("{address}: {}", error.cause))
                .advise("Make its folder, or remove the file that is there"),
        },
    }
}

impl TakenPorts {
    /// Errors: the system refuses the address.
    fn tcp(&mut self, address: SocketAddr) -> Result<(), BindError> {
        // The start's own function: its options decide which addresses can be taken together.
        let (socket, _) = bind::tcp(address, 1)?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Makes no file. Errors: there is a file of another kind, somebody listens there, or the
    /// folder is missing.
    fn unix(&mut self, path: &Path) -> Result<(), BindError> {
        let address = ListenerAddress::Unix(path.to_owned());
        if self.files.iter().any(|file| file == path) {
            return Err(BindError { address: address.to_string(), cause: io::ErrorKind::AddrInUse.into() });
        }
        bind::check(&address)?;
        self.files.push(path.to_owned());
        Ok(())
    }
}

/// Returns the findings about the clients that may connect.
pub(super) fn entrances(config: &Config) -> Vec<Finding> {
    let all = config.all_listeners();
    let of = |listener: &Listener| Some(OpenListener::of(config, listener, listener.address.clone()?));
    let open: Vec<OpenListener> = all.iter().filter_map(of).collect();
    let proxies = all.iter().filter_map(everybody_is_proxy);
    let entrances = open.iter().filter_map(entrance).chain(unproven_names(&open)).chain(proxies);
    #[cfg(feature = "admin")]
    let entrances = entrances.chain(plain_http(config));
    entrances.collect()
}

/// Returns a finding if every machine that reaches a listener may name the address of its client.
fn everybody_is_proxy(listener: &Listener) -> Option<Finding> {
    listener.address.as_ref().filter(|address| !address.is_local())?;
    let networks: Vec<_> =
        listener.trusted_proxies.iter().flatten().filter_map(|text| network(text).ok()).collect();
    let all = everything(&networks)?;
    let label = listener.label();
    Some(
        Finding::warn(Check::Proxies, format!("{label}: trusted_proxies has all addresses ({all}): everybody may claim any address, also one of this machine"))
            .advise("Name the addresses of the proxies alone"),
    )
}

/// Returns a finding for each address at which others can read the tokens of operators on the way.
#[cfg(feature = "admin")]
fn plain_http(config: &Config) -> impl Iterator<Item = Finding> {
    let admin = &config.admin;
    let is_plain = admin.certificate_paths().is_none();
    admin.addresses.iter().filter(move |address| is_plain && !address.ip().is_loopback()).map(|address| {
        let text =
            format!("{address}: passwords and tokens of operators can be read on the way (admin.addresses)");
        // The start refuses it.
        let finding = if admin.allow_plain_http { Finding::warn } else { Finding::fail };
        finding(Check::Http, text).advise("Set admin.certificate and admin.key, or use a loopback address")
    })
}

/// Returns a finding for each listener whose clients may send names that nothing proves, while
/// another one proves names.
fn unproven_names(all: &[OpenListener]) -> impl Iterator<Item = Finding> {
    let finding = |listener: &OpenListener| {
        let what =
            "clients may send a user name that nothing proves; they have the rules of clients without one";
        Finding::warn(Check::Login, format!("{}: {what}", listener.label()))
            .advise("Set anonymous = \"never\" for this listener, or methods of authentication")
    };
    OpenListener::with_unproven_names(all).map(finding)
}

/// Returns a finding if others can reach a listener and it lets in everybody or nobody, or carries
/// passwords in the clear.
fn entrance(open: &OpenListener) -> Option<Finding> {
    if open.address.is_local() {
        return None;
    }
    let label = open.label();
    Some(match open.risk() {
        Some(EntranceRisk::OpenToAll) => Finding::warn(
            Check::Login,
            format!("{label}: every client that reaches it may publish and subscribe"),
        )
        .advise("Set auth.password_file and auth.anonymous = \"never\""),
        Some(EntranceRisk::ClosedToAll) => {
            Finding::warn(Check::Login, format!("{label}: nobody can connect"))
                .advise("Set auth.password_file (`homing passwd` makes one)")
        }
        Some(EntranceRisk::Unencrypted) => {
            Finding::warn(Check::Login, format!("{label}: passwords and messages can be read on the way"))
                .advise("Use a listener with TLS")
        }
        Some(EntranceRisk::AnonymousToo) => {
            Finding::warn(Check::Login, format!("{label}: clients without a user name may enter, too"))
                .advise("Set auth.anonymous = \"never\"")
        }
        None => Finding::ok(Check::Login, format!("{label}: only clients that are authenticated")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Anonymous, Listener};
    use crate::finding::Severity;

    fn severity(change: impl FnOnce(&mut Config)) -> Option<Severity> {
        let mut config = Config::default();
        change(&mut config);
        let address: SocketAddr = "0.0.0.0:1883".parse().expect("an address");
        let listener = Listener::plain(address);
        entrance(&OpenListener::of(&config, &listener, ListenerAddress::Ip(address)))
            .map(|finding| finding.severity)
    }

    #[test]
    fn a_listener_that_others_reach_needs_logins_and_tls() {
        assert_eq!(severity(|_| {}), Some(Severity::Warn));
        assert_eq!(severity(|config| config.auth.anonymous = Anonymous::Always), Some(Severity::Warn));
        assert_eq!(severity(|config| config.auth.password_file = "passwd".into()), Some(Severity::Warn));
    }

    #[test]
    fn a_listener_on_loopback_is_fine_as_it_is() {
        let address: SocketAddr = "127.0.0.1:1883".parse().expect("an address");
        let open =
            OpenListener::of(&Config::default(), &Listener::plain(address), ListenerAddress::Ip(address));
        let found = entrance(&open);
        assert_eq!(found, None);
    }
}
