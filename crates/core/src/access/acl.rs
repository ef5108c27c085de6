//! The permits of all users.

use super::permit::{Permit, RuleLists, UserRules};
use super::rule::{Access, RuleFilter};
use crate::mqtt::keyed::Keyed;
use hashbrown::HashMap;
use std::sync::Arc;

/// The rules of a whole ACL file, compiled. Immutable: a reload makes a new value.
#[derive(Clone, Debug)]
pub struct Acl {
    users: HashMap<Box<str>, Permit, Keyed>,
    anonymous: Permit,
    others: Permit,
    most_compared: usize,
    /// The name of the file, for operators.
    file: Box<str>,
}

/// Collects the lines of an ACL file in any order.
#[derive(Debug, Default)]
pub struct AclBuilder {
    users: HashMap<Box<str>, Vec<(Access, RuleFilter, u32)>, Keyed>,
    anonymous: Vec<(Access, RuleFilter, u32)>,
    patterns: Vec<(Access, RuleFilter, u32)>,
}

impl Acl {
    /// Returns the permit of a user, or of anonymous clients for `None`.
    ///
    /// A user without rules of its own has the patterns only; the rules of anonymous clients are
    /// not for users. Costs one look-up and one counter.
    pub fn permit_of(&self, user: Option<&str>) -> Permit {
        match user {
            None => self.anonymous.clone(),
            Some(user) => self.users.get(user).unwrap_or(&self.others).clone(),
        }
    }

    /// Returns the number of filters that a topic is compared with in one decision, at most.
    pub fn most_compared(&self) -> usize {
        self.most_compared
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the number of users with rules of their own.
    pub fn users(&self) -> usize {
        self.users.len()
    }
}

impl AclBuilder {
    /// Adds a rule for one user, or for anonymous clients. `line` is its line in the file.
    pub fn topic(&mut self, user: Option<&str>, access: Access, filter: RuleFilter, line: u32) {
        match user {
            None => self.anonymous.push((access, filter, line)),
            Some(user) => self.users.entry(user.into()).or_default().push((access, filter, line)),
        }
    }

    /// Adds a rule for all clients. `line` is its line in the file.
    pub fn pattern(&mut self, access: Access, filter: RuleFilter, line: u32) {
        self.patterns.push((access, filter, line));
    }

    /// Compiles the rules of the file with this name.
    pub fn build(self, file: &str) -> Acl {
        let patterns = Arc::new(RuleLists::new(self.patterns));
        let permit =
            |own| Permit::Rules(Arc::new(UserRules::new(RuleLists::new(own), Arc::clone(&patterns))));
        let users: HashMap<_, _, _> = self.users.into_iter().map(|(user, own)| (user, permit(own))).collect();
        let (anonymous, others) = (permit(self.anonymous), permit(Vec::new()));
        let all = users.values().chain([&anonymous, &others]);
        let most_compared = all.map(Permit::most_compared).max().unwrap_or_default();
        Acl { users, anonymous, others, most_compared, file: file.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule::ClientNames;

    #[test]
    fn each_user_has_its_rules_and_the_patterns() {
        let mut builder = AclBuilder::default();
        builder.topic(None, Access::Read, RuleFilter::topic("public").unwrap(), 1);
        builder.topic(Some("ann"), Access::Read, RuleFilter::topic("a").unwrap(), 2);
        builder.topic(Some("ann"), Access::Write, RuleFilter::topic("b").unwrap(), 3);
        builder.pattern(Access::ReadWrite, RuleFilter::pattern("homes/%u").unwrap(), 4);
        let acl = builder.build("acl");
        let names = |user| ClientNames::new(user, "c");
        let may_read = |user, topic| acl.permit_of(user).may_read(topic, names(user));
        assert!(may_read(Some("ann"), "a") && may_read(Some("ann"), "homes/ann"));
        assert!(acl.permit_of(Some("ann")).may_write("b", names(Some("ann"))) && !may_read(Some("ann"), "b"));
        assert!(!may_read(Some("bob"), "a") && may_read(Some("bob"), "homes/bob"));
        assert!(may_read(None, "public") && !may_read(None, "homes/bob"));
        assert!(!may_read(Some("ann"), "public") && !may_read(Some("bob"), "public"));
        assert_eq!(acl.users(), 1);
        assert!(acl.permit_of(Some("ann")).is_same(&acl.permit_of(Some("ann"))));
        assert!(acl.permit_of(Some("bob")).is_same(&acl.permit_of(Some("eve"))));
    }

    #[test]
    fn without_rules_everything_is_denied() {
        let acl = AclBuilder::default().build("acl");
        for user in [None, Some("ann")] {
            assert!(!acl.permit_of(user).may_read("a", ClientNames::new(user, "c")));
        }
    }
}
