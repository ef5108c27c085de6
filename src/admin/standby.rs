//! A node of a cluster that stands by: who serves in its place, and where others reach its own pages.

use super::serving_node::ServingNode;
use super::state::AdminState;
use crate::ownership::Role;
use std::net::SocketAddr;

impl AdminState {
    /// Returns the node that serves in place of this one; `None` if this node serves, or is about to.
    pub(super) fn serving_node(&self) -> Option<ServingNode> {
        let view = self.cluster().filter(|_| self.observer().is_none())?;
        if let Role::Recovering | Role::Holding = view.facts().role {
            return None;
        }
        Some(ServingNode { owner: view.owner(), pages: view.owner_pages() })
    }

    /// Returns the URL by which a browser on another machine reaches the pages, or else one on this
    /// machine. An interface on all addresses without a name has neither: nobody knows its address.
    pub(super) fn pages_elsewhere(&self) -> Option<String> {
        let has_name = self.terms().first_host().is_some();
        let far = |address: &SocketAddr| match address.ip() {
            ip if ip.is_unspecified() && !has_name => 2,
            ip if ip.is_loopback() => 1,
            _ => 0,
        };
        let best = self.addresses.iter().zip(self.page_urls()).min_by_key(|(address, _)| far(address));
        best.filter(|(address, _)| far(address) < 2).map(|(_, url)| url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::credentials::file::CredentialFile;
    use crate::admin::https::Scheme;
    use crate::admin::terms::AdminTerms;
    use crate::config::Admin;

    #[test]
    fn others_reach_the_pages_by_an_address_of_the_machine_or_its_name() {
        let pages = |addresses: &[&str], hosts: &[&str]| {
            let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            let terms = AdminTerms::of(&Admin { hosts, ..Admin::default() });
            let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
            AdminState::new(Scheme::Https, addresses, CredentialFile::default(), terms).pages_elsewhere()
        };
        let own = Some("https://10.0.0.9:11883".to_owned());
        assert_eq!(pages(&["127.0.0.1:11883", "10.0.0.9:11883"], &[]), own);
        assert_eq!(pages(&["127.0.0.1:11883"], &[]), Some("https://127.0.0.1:11883".to_owned()));
        assert_eq!(pages(&["0.0.0.0:11883"], &[]), None);
        assert_eq!(pages(&["0.0.0.0:11883"], &["b.example"]), Some("https://b.example:11883".to_owned()));
        assert_eq!(pages(&[], &[]), None);
    }
}
