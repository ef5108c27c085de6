//! The ports, and who may connect there.

use crate::broker::{EntranceRisk, OpenListener};
use crate::config::{Config, Listener, ListenerAddress};
use crate::finding::Finding;
use std::net::TcpListener;
use std::path::Path;

/// `is_in_use`: a broker has the data directory, and so most likely the ports.
pub(super) fn findings(config: &Config, is_in_use: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for listener in config.all_listeners() {
        let Some(address) = listener.address.clone() else { continue };
        if is_in_use {
            findings.push(Finding::ok("port", format!("{address}: not tried, because a broker runs")));
        } else {
            findings.push(port(&address));
        }
        findings.extend(entrance(config, &listener, address));
    }
    findings.extend(unproven_names(config));
    findings
}

fn port(address: &ListenerAddress) -> Finding {
    match address {
        ListenerAddress::Ip(ip) if ip.port() == 0 => {
            Finding::ok("port", format!("{address}: a free one is taken"))
        }
        ListenerAddress::Ip(ip) => match TcpListener::bind(ip) {
            Ok(_) => Finding::ok("port", format!("{address} is free")),
            Err(error) => Finding::fail("port", format!("{address}: {error}"))
                .advise("`ss -ltnp` names the process that has it"),
        },
        ListenerAddress::Unix(path) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            match folder.is_dir() {
                true => Finding::ok("port", format!("{address}: its folder exists")),
                false => Finding::fail("port", format!("{address}: {} is no directory", folder.display()))
                    .advise("Make it"),
            }
        }
    }
}

/// Returns the findings about those who may enter.
pub(super) fn entrances(config: &Config) -> Vec<Finding> {
    let all = config.all_listeners();
    let entrances = all.iter().filter_map(|listener| entrance(config, listener, listener.address.clone()?));
    entrances.chain(unproven_names(config)).collect()
}

/// Returns a finding for each listener whose clients may send names that nothing proves, while
/// another one proves names.
fn unproven_names(config: &Config) -> Vec<Finding> {
    let all = config.all_listeners();
    let of = |listener: &Listener| Some(OpenListener::of(config, listener, listener.address.clone()?));
    let all: Vec<OpenListener> = all.iter().filter_map(of).collect();
    let finding = |listener: &OpenListener| {
        let what =
            "clients may send a user name that nothing proves; they have the rules of clients without one";
        Finding::warn("login", format!("{}: {what}", listener.label()))
            .advise("Set anonymous = \"never\" for this listener, or methods of authentication")
    };
    OpenListener::with_unproven_names(&all).map(finding).collect()
}

/// Returns a finding if others can reach a listener and it lets in everybody or nobody, or carries
/// passwords in the clear.
fn entrance(config: &Config, listener: &Listener, address: ListenerAddress) -> Option<Finding> {
    if address.is_local() {
        return None;
    }
    let open = OpenListener::of(config, listener, address);
    let label = open.label();
    Some(match open.risk() {
        Some(EntranceRisk::OpenToAll) => {
            Finding::warn("login", format!("{label}: every client that reaches it may publish and subscribe"))
                .advise("Set auth.password_file and auth.anonymous = \"never\"")
        }
        Some(EntranceRisk::ClosedToAll) => Finding::warn("login", format!("{label}: nobody can connect"))
            .advise("Set auth.password_file (`homing passwd` makes one)"),
        Some(EntranceRisk::Unencrypted) => {
            Finding::warn("login", format!("{label}: passwords and messages can be read on the way"))
                .advise("Use a listener with TLS")
        }
        Some(EntranceRisk::AnonymousToo) => {
            Finding::warn("login", format!("{label}: clients without a user name may enter, too"))
                .advise("Set auth.anonymous = \"never\"")
        }
        None => Finding::ok("login", format!("{label}: only clients that are authenticated")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AnonymousClients, Listener};
    use crate::finding::Severity;
    use std::net::SocketAddr;

    fn severity(change: impl FnOnce(&mut Config)) -> Option<Severity> {
        let mut config = Config::default();
        change(&mut config);
        let address: SocketAddr = "0.0.0.0:1883".parse().expect("an address");
        let listener = Listener::plain(address);
        entrance(&config, &listener, ListenerAddress::Ip(address)).map(|finding| finding.severity)
    }

    #[test]
    fn a_listener_that_others_reach_needs_logins_and_tls() {
        assert_eq!(severity(|_| {}), Some(Severity::Warn));
        assert_eq!(severity(|config| config.auth.anonymous = AnonymousClients::Always), Some(Severity::Warn));
        assert_eq!(severity(|config| config.auth.password_file = "passwd".into()), Some(Severity::Warn));
    }

    #[test]
    fn a_listener_on_loopback_is_fine_as_it_is() {
        let address: SocketAddr = "127.0.0.1:1883".parse().expect("an address");
        let found = entrance(&Config::default(), &Listener::plain(address), ListenerAddress::Ip(address));
        assert_eq!(found, None);
    }
}
