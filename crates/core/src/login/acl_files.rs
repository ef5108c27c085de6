//! The ACL files of the broker and of its listeners, and the choice of a session's file.

use crate::access::acl::Acl;
use crate::access::permit::Permit;
use crate::login::listener_terms::{ListenerRules, ListenerTerms};
use std::sync::{Arc, Weak};

/// The rules of the ACL files: that of the broker, and those of listeners.
#[derive(Clone, Debug, Default)]
pub struct AclFiles {
    /// The rules for the sessions of all listeners without a file of their own; `None` without a
    /// file.
    pub broker: Option<Arc<Acl>>,
    /// The open listeners, and closed listeners with clients.
    pub listeners: Vec<Arc<ListenerRules>>,
}

/// The ACL file in force for a session: the file of the listener by which its client came last.
///
/// The listener counts as long as it is open or has clients. A listener that another one has
/// replaced still has the rules that belong to its other settings. Without the listener, as after a
/// restart, its name counts: that of an open listener with a file of its own, or `None` for the
/// file of the broker. A listener that is gone, or has no file any more, has the rules of the
/// broker. If the broker has no file, a session of a listener that is gone may do nothing: it was
/// never meant to be without rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSource {
    /// `None` if the client has not come since the start.
    listener: Option<Weak<ListenerTerms>>,
    /// The name of the listener if it has a file of its own, as of the last look at the rules.
    name: Option<Arc<str>>,
    /// True if the rules have changed the name since [`RuleSource::take_renamed`].
    is_renamed: bool,
}

impl RuleSource {
    /// Returns the source that a stored session remembers.
    pub(crate) fn of_name(listener: Option<&str>) -> RuleSource {
        RuleSource { name: listener.map(Arc::from), ..RuleSource::default() }
    }

    /// Returns the source of a session whose client came by a listener, if it came since the start.
    /// No name is known.
    pub(crate) fn of_listener(listener: Option<Weak<ListenerTerms>>) -> RuleSource {
        RuleSource { listener, ..RuleSource::default() }
    }

    /// Returns the source of a client that comes by a listener now.
    pub(crate) fn of_newcomer(listener: &Arc<ListenerTerms>) -> RuleSource {
        let mut source = RuleSource::of_listener(Some(Arc::downgrade(listener)));
        source.renew();
        source
    }

    /// Returns the listener; `None` if the client has not come since the start.
    pub(crate) fn listener(&self) -> Option<&Weak<ListenerTerms>> {
        self.listener.as_ref()
    }

    /// Returns the name of the listener that a stored session has to remember.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns true if the rules have changed the name since the last call.
    pub(crate) fn take_renamed(&mut self) -> bool {
        std::mem::take(&mut self.is_renamed)
    }

    /// Returns true if the same rules hold as for another source of the same time. Without a name,
    /// both have the rules of the broker.
    pub(crate) fn has_rules_of(&self, other: &RuleSource) -> bool {
        let is_same = match (&self.listener, &other.listener) {
            (Some(one), Some(other)) => one.ptr_eq(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.name == other.name && (self.name.is_none() || is_same)
    }

    /// Brings the name up to date, so that it is right when the listener is gone.
    pub(crate) fn renew(&mut self) {
        if let Some(rules) = self.rules() {
            let name = rules.acl.as_ref().map(|_| &rules.name);
            if self.name.as_ref() != name {
                (self.name, self.is_renamed) = (name.cloned(), true);
            }
        }
    }

    /// Returns the rules of the listener; `None` if it is gone or not known.
    fn rules(&self) -> Option<Arc<ListenerRules>> {
        Some(self.listener.as_ref()?.upgrade()?.rules.load_full())
    }
}

impl From<Arc<Acl>> for AclFiles {
    /// Returns the rules of one file for all listeners.
    fn from(acl: Arc<Acl>) -> AclFiles {
        AclFiles { broker: Some(acl), listeners: Vec::new() }
    }
}

impl AclFiles {
    /// Returns true if there is no file.
    pub(crate) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.listeners.iter().all(|listener| listener.acl.is_none())
    }

    /// Returns the number of filters that a topic is compared with in one decision, at most.
    pub(crate) fn most_compared(&self) -> usize {
        let own = self.listeners.iter().filter_map(|listener| listener.acl.as_ref());
        own.chain(&self.broker).map(|acl| acl.most_compared()).max().unwrap_or_default()
    }

    /// Returns the permit of a user. Costs a comparison for each listener if the listener is not
    /// known.
    pub(crate) fn permit_of(&self, source: &RuleSource, user: Option<&str>) -> Permit {
        match source.rules() {
            Some(listener) => self.permit_by(listener.acl.as_ref(), user),
            None => self.permit_of_name(source.name(), user),
        }
    }

    /// Returns the permit of a user at the open listener of a name; `None` for the rules of the
    /// broker.
    pub(crate) fn permit_of_name(&self, name: Option<&str>, user: Option<&str>) -> Permit {
        let Some(name) = name else { return self.permit_by(None, user) };
        let mut open = self.listeners.iter().filter(|listener| listener.is_open);
        match open.find(|listener| *listener.name == *name) {
            Some(listener) => self.permit_by(listener.acl.as_ref(), user),
            None if self.broker.is_none() => Permit::Rules(Arc::default()),
            None => self.permit_by(None, user),
        }
    }

    /// Returns the rules of the file that counts; `None` without one.
    pub(crate) fn acl_of(&self, source: &RuleSource) -> Option<Arc<Acl>> {
        let own = match source.rules() {
            Some(listener) => listener.acl.clone(),
            None => {
                let mut open = self.listeners.iter().filter(|listener| listener.is_open);
                let name = source.name();
                name.and_then(|name| open.find(|listener| *listener.name == *name)?.acl.clone())
            }
        };
        own.or_else(|| self.broker.clone())
    }

    /// Returns the permit of a user by the file of a listener, or that of the broker without one.
    fn permit_by(&self, own: Option<&Arc<Acl>>, user: Option<&str>) -> Permit {
        own.or(self.broker.as_ref()).map_or(Permit::All, |acl| acl.permit_of(user))
    }
}
