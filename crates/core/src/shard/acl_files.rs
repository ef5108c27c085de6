//! The ACL files of the broker and of its listeners, and the one that holds for a session.

use crate::access::acl::Acl;
use crate::access::permit::Permit;
use crate::shard::arrival::ListenerNumber;
use std::sync::Arc;

/// The rules of the ACL files: that of the broker, and those of listeners.
#[derive(Clone, Debug, Default)]
pub struct AclFiles {
    /// The rules for the sessions of all listeners without a file of their own; `None` without a
    /// file.
    pub broker: Option<Arc<Acl>>,
    /// The listeners by number; `None` for a number that no connection has any more.
    pub listeners: Vec<Option<ListenerAcl>>,
}

/// The rules of one listener.
#[derive(Clone, Debug)]
pub struct ListenerAcl {
    /// The name of the listener, under which a stored session remembers it.
    pub name: Arc<str>,
    /// False if the listener accepts no connections any more. Its name may be that of another one.
    pub is_open: bool,
    /// The rules; `None` if those of the broker hold.
    pub acl: Option<Arc<Acl>>,
}

/// The ACL file that holds for a session: that of the listener by which its client came last.
///
/// The number of the listener counts. A listener that another one has replaced still has the rules
/// that belong to its other settings. Without a number, after a restart or when nobody is connected
/// by a closed number any more, the name counts: that of an open listener with a file of its own,
/// or `None` for the file of the broker. A listener that is gone, or has no file any more, has the
/// rules of the broker. If the broker has no file, a session of a listener that is gone may do
/// nothing: it was never meant to be without rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSource {
    /// `None` if the client has not come since the start.
    number: Option<ListenerNumber>,
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

    /// Returns the source of a session of which no name is known.
    pub(crate) fn of_number(number: Option<ListenerNumber>) -> RuleSource {
        RuleSource { number, ..RuleSource::default() }
    }

    /// Returns the number of the listener; `None` if the client has not come since the start.
    pub(crate) fn number(&self) -> Option<ListenerNumber> {
        self.number
    }

    /// Returns the name of the listener that a stored session has to remember.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns true if the rules have changed the name since the last call.
    pub(super) fn take_renamed(&mut self) -> bool {
        std::mem::take(&mut self.is_renamed)
    }

    /// Returns true if the same rules hold as for another source of the same time. Without a name,
    /// both have the rules of the broker.
    pub(super) fn has_rules_of(&self, other: &RuleSource) -> bool {
        self.name == other.name && (self.name.is_none() || self.number == other.number)
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
    pub(super) fn is_empty(&self) -> bool {
        self.broker.is_none() && self.listeners.iter().flatten().all(|listener| listener.acl.is_none())
    }

    /// Returns the number of filters that a topic is compared with in one decision, at most.
    pub(super) fn most_compared(&self) -> usize {
        let own = self.listeners.iter().flatten().filter_map(|listener| listener.acl.as_ref());
        own.chain(&self.broker).map(|acl| acl.most_compared()).max().unwrap_or_default()
    }

    /// Returns the listener of a number; `None` without a number, or if no connection has it.
    fn of_number(&self, number: Option<ListenerNumber>) -> Option<&ListenerAcl> {
        self.listeners.get(usize::from(number?.0))?.as_ref()
    }

    /// Brings the name of a source up to date, so that it is right when no connection has the
    /// number any more.
    pub(super) fn renew(&self, source: &mut RuleSource) {
        if let Some(listener) = self.of_number(source.number) {
            let name = listener.acl.as_ref().map(|_| &listener.name);
            if source.name.as_ref() != name {
                (source.name, source.is_renamed) = (name.cloned(), true);
            }
        }
    }

    /// Returns the permit of a user. Costs a comparison for each listener if the number of the
    /// listener is not known.
    pub(super) fn permit_of(&self, source: &RuleSource, user: Option<&str>) -> Permit {
        match self.of_number(source.number) {
            Some(listener) => self.permit_by(listener.acl.as_ref(), user),
            None => self.permit_of_name(source.name(), user),
        }
    }

    /// Returns the permit of a user at the open listener of a name; `None` for the rules of the
    /// broker.
    pub(super) fn permit_of_name(&self, name: Option<&str>, user: Option<&str>) -> Permit {
        let Some(name) = name else { return self.permit_by(None, user) };
        let mut open = self.listeners.iter().flatten().filter(|listener| listener.is_open);
        match open.find(|listener| *listener.name == *name) {
            Some(listener) => self.permit_by(listener.acl.as_ref(), user),
            None if self.broker.is_none() => Permit::Rules(Arc::default()),
            None => self.permit_by(None, user),
        }
    }

    /// Returns the permit of a user by the file of a listener, or that of the broker without one.
    fn permit_by(&self, own: Option<&Arc<Acl>>, user: Option<&str>) -> Permit {
        own.or(self.broker.as_ref()).map_or(Permit::All, |acl| acl.permit_of(user))
    }
}
