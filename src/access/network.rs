//! Networks of clients, as an operator writes them.

use ipnet::IpNet;
use std::net::IpAddr;

/// The reason why a text names no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNetwork {
    /// It is neither an address nor a network.
    Unreadable,
    /// It is a network of IPv4 in IPv6 form, in which no client would be.
    MappedIpv4,
}

/// Returns the network that a text names: an address with the length of its prefix, or alone.
///
/// Clients are compared in the form of IPv4 if they have one. So an address in IPv6 form stands for
/// the IPv4 address.
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

#[cfg(test)]
mod tests {
    use super::*;

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
