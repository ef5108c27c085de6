//! The settings of the interface that a reload changes.

use crate::config::{Admin, PayloadViews};

/// The settings of the interface that a reload changes.
#[derive(Clone, Debug, Default)]
pub(super) struct AdminTerms {
    hosts: Vec<String>,
    payloads: PayloadViews,
}

impl AdminTerms {
    /// Returns the settings of the section `[admin]`.
    pub(super) fn of(options: &Admin) -> AdminTerms {
        AdminTerms { hosts: options.hosts.clone(), payloads: options.payloads }
    }

    /// Returns true if this is a name of the interface (`admin.hosts`).
    pub(super) fn has_host(&self, name: &str) -> bool {
        self.hosts.iter().any(|own| name.eq_ignore_ascii_case(own))
    }

    /// Returns true if nobody may see the payload of a message (`admin.payloads`).
    pub(super) fn hides_payloads(&self) -> bool {
        self.payloads == PayloadViews::Never
    }
}
