//! The settings of the interface that a reload changes.

use crate::access::network::network;
use crate::config::{Admin, PayloadViews};
use crate::net::proxy::TrustedProxies;

/// The settings of the interface that a reload changes.
#[derive(Clone, Debug, Default)]
pub(super) struct AdminTerms {
    hosts: Vec<String>,
    payloads: PayloadViews,
    proxies: TrustedProxies,
}

impl AdminTerms {
    /// Returns the settings of the section `[admin]`.
    pub(super) fn of(options: &Admin) -> AdminTerms {
        let networks = options.trusted_proxies.iter().filter_map(|text| network(text).ok()).collect();
        let proxies = TrustedProxies::new(networks);
        AdminTerms { hosts: options.hosts.clone(), payloads: options.payloads, proxies }
    }

    /// Returns the first name of the interface (`admin.hosts`); `None` without one.
    pub(super) fn first_host(&self) -> Option<&str> {
        self.hosts.first().map(String::as_str)
    }

    /// Returns true if this is a name of the interface (`admin.hosts`).
    pub(super) fn has_host(&self, name: &str) -> bool {
        self.hosts.iter().any(|own| name.eq_ignore_ascii_case(own))
    }

    /// Returns the proxies that say who asks (`admin.trusted_proxies`).
    pub(super) fn proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// Returns true if nobody may see the payload of a message (`admin.payloads`).
    pub(super) fn hides_payloads(&self) -> bool {
        self.payloads == PayloadViews::Never
    }
}
