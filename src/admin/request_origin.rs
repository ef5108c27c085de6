//! The origin of a request: its number, and the address of its caller.

use super::access::Origin;
use super::state::State;
use crate::net::websocket::upgrade::{FORWARDING_HEADERS, ForwardedClient, forwarded_client};
use actix_web::{HttpMessage, HttpRequest};
use std::net::IpAddr;

/// The number of a request since the start, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestNumber(pub(super) u64);

pub(super) fn origin_of(request: &HttpRequest) -> Origin {
    let number = request.extensions().get::<RequestNumber>().map_or(0, |number| number.0);
    Origin { address: address_of(request), request: number }
}

/// Returns the address of a caller: that of the connection, or the one that a proxy in
/// `admin.trusted_proxies` names. `None` on the Unix socket.
pub(super) fn address_of(request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip();
    let Some(terms) = request.app_data::<State>().map(|state| state.terms()) else { return Some(peer) };
    if !terms.proxies().contains(peer) {
        return Some(peer);
    }
    let lines: Vec<_> = request.headers().get_all(FORWARDING_HEADERS[0]).collect();
    let hops = lines.iter().flat_map(|line| line.to_str().unwrap_or("?").split(',').map(str::trim));
    match forwarded_client(hops, terms.proxies()) {
        ForwardedClient::Address(address) => Some(address),
        ForwardedClient::Peer | ForwardedClient::Unknown => Some(peer),
    }
}
