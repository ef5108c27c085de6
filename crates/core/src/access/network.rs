//! Networks of clients, as an operator writes them.

use ipnet::IpNet;
use std::net::IpAddr;

/// The reason why a text names no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNetwork {
    /// The text is neither an address nor a network.
    Unreadable,
    /// The text is an IPv4 network in IPv6 form, which contains no client.
    MappedIpv4,
}

/// Returns the network that a text names: an address with the length of its prefix, or alone.
///
/// Clients are compared in the form of IPv4 if they have one. So an address in IPv6 form means the
/// IPv4 address.
///
/// # Errors
/// The text names no network in which a client can be.
pub fn network(text: &str) -> Result<IpNet, NoNetwork> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    match text.parse() {
        Ok(IpNet::V6(network)) if network.addr().to_ipv4_mapped().is_some() => Err(NoNetwork::MappedIpv4),
        Ok(network) => Ok(network),
        Err(_) => Err(NoNetwork::Unreadable),
    }
}

/// Returns the network of all IPv4 or all IPv6 addresses, if these networks together cover it.
pub fn everything(networks: &[IpNet]) -> Option<IpNet> {
    IpNet::aggregate(&networks.to_vec()).into_iter().find(|network| network.prefix_len() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_are_everything_together_are_found() {
        for (texts, expected) in [
            (&["0.0.0.0/0"][..], Some("0.0.0.0/0")),
            (&["128.0.0.0/1", "0.0.0.0/1"], Some("0.0.0.0/0")),
            (&["::/1", "10.0.0.0/8", "8000::/2", "c000::/2"], Some("::/0")),
            // Networks that overlap.
            (&["0.0.0.0/1", "64.0.0.0/2", "128.0.0.0/2", "160.0.0.0/3", "192.0.0.0/2"], Some("0.0.0.0/0")),
            (&["0.0.0.0/1", "8000::/1"], None),
            (&["0.0.0.0/1", "128.0.0.0/2"], None),
            (&[], None),
        ] {
            let networks: Vec<IpNet> = texts.iter().filter_map(|text| network(text).ok()).collect();
            assert_eq!(networks.len(), texts.len());
            let found = everything(&networks).map(|network| network.to_string());
            assert_eq!(found.as_deref(), expected, "{texts:?}");
        }
    }

    #[test]
    fn a_network_is_one_that_peers_can_be_in() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("192.0.2.7", Some("192.0.2.7/32")),
            ("::ffff:192.0.2.7", Some("192.0.2.7/32")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::/0", Some("::/0")),
            ("::ffff:10.0.0.0/104", None),
            ("10.0.0.0/33", None),
        ] {
            let named = network(text).ok().map(|network| network.to_string());
            assert_eq!(named.as_deref(), expected, "{text}");
        }
    }
}
