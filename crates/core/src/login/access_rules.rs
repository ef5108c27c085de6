//! The rules as a shard applies them: whose rules are asked for a topic, and what is checked again
//! after a change. [`crate::access::permit`] has the rules of a user, and decides.
//!
//! A session is *guarded* if it has a subscription of which it may read only a part. Each delivery
//! to a guarded session is checked. A session that may read all of its filters is never checked
//! again, until the rules change: then every session counts as guarded. A walk over the sessions
//! (`access_change`) finds the guarded sessions.

use crate::access::cover;
use crate::access::denial::{DeniedAccess, DenyingRule};
use crate::access::grant::SessionRules;
use crate::access::identity::{Identity, IdentitySource};
use crate::access::ordered::Direction;
use crate::access::permit::{Coverage, Decision, Permit, steps};
use crate::access::rule::{ClientNames, NameMarks};
use crate::access::written_topics::WrittenTopics;
use crate::login::acl_files::{AclFiles, RuleSource};
use crate::login::listener_terms::ListenerTerms;
use crate::mqtt::retained_message::RetainedSource;
use crate::named_enum::named_enum;
use std::sync::{Arc, Weak};

/// Topics with the names and payloads of other clients.
const OF_OTHERS: [&str; 3] = ["$homing/clients/#", "$homing/events/#", "$dead/#"];

/// Comparisons of two short filters for one step of a turn.
const COMPARISONS: usize = 4;

/// Bytes of a filter and of names that are compared or copied for one step of a turn.
const COMPARED_BYTES: usize = 512;

named_enum! {
    /// The treatment of a SUBSCRIBE filter of which the client may read nothing.
    #[derive(Default)]
    pub enum DeniedSubscribe {
        /// The filter is refused: 0x87, or 0x80 in 3.x.
        #[default]
        Refuse = "refuse",
        /// The filter is granted, and nothing is delivered.
        Filter = "filter",
    }

    /// The treatment of a client that publishes to a forbidden topic.
    #[derive(Default)]
    pub enum DeniedPublish {
        /// The message is dropped.
        #[default]
        Drop = "drop",
        /// The message is dropped, and the client is disconnected.
        Disconnect = "disconnect",
    }
}

/// The treatment of a retained message whose source may no longer publish to its topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetainSourceCheck {
    /// The message is not delivered to new subscriptions.
    Check,
    /// The message is delivered. No source is stored.
    #[default]
    Ignore,
}

/// The operator's rules about topics.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    /// The rules of the ACL files.
    pub files: AclFiles,
    /// True if a listener verifies the names of clients. Then topics with the names and payloads of
    /// other clients need a rule.
    pub protects_others: bool,
    /// True if a user name that nothing verifies counts. Otherwise its client has the rules of
    /// anonymous clients.
    pub counts_claims: bool,
    /// The treatment of a filter of which the client may read nothing.
    pub on_denied_subscribe: DeniedSubscribe,
    /// The treatment of a PUBLISH to a topic that the client may not write.
    pub on_denied_publish: DeniedPublish,
    /// The treatment of a retained message whose source may no longer publish to its topic.
    pub retain_source: RetainSourceCheck,
}

/// The rules in force, and their generation.
#[derive(Debug)]
pub(crate) struct AccessRules {
    settings: AccessSettings,
    /// Grows with each change of the rules. Never 0.
    generation: u32,
    /// Filters of the largest rules that a session had of its own; `None` if no session had any.
    of_sessions: Option<usize>,
    files_are_empty: bool,
    /// Filters that a topic is compared with in one decision by the rules of the files, at most.
    of_files: usize,
}

/// A place among the messages of a session: the messages before it were checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckPlace {
    /// The running number of the first PUBLISH in flight that was not checked.
    pub in_flight: u64,
    /// The number of the first delivery in the queue that was not checked.
    pub queued: u64,
}

/// A session's permit, as of one generation of the rules.
#[derive(Debug, Default)]
pub(crate) struct SessionAccess {
    permit: Permit,
    generation: u32,
    /// The generation of the rules under which the messages are being checked, or were. 0 if none
    /// is known.
    checked: u32,
    /// The place from which the messages are still to be checked; `None` if all of them are.
    unchecked: Option<Box<CheckPlace>>,
    guarded: bool,
    /// The rules of this session alone; `None` if the ACL file counts.
    own: Option<SessionRules>,
    /// The ACL file that counts.
    source: RuleSource,
    /// The topics that the client may write, as of this generation.
    written: WrittenTopics,
    /// Facts about the names of the client for decisions, as of this generation.
    marks: NameMarks,
    /// The client as the source of its retained messages, as of this generation. All these messages
    /// share the value.
    retained_source: Option<Arc<RetainedSource>>,
}

impl AccessRules {
    /// Returns the rules at the start.
    pub(crate) fn new(settings: &AccessSettings) -> AccessRules {
        let (files_are_empty, of_files) = (settings.files.is_empty(), settings.files.most_compared());
        AccessRules {
            settings: settings.clone(),
            generation: 1,
            of_sessions: None,
            files_are_empty,
            of_files,
        }
    }

    /// Returns false if every client may write and read everything.
    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        !self.files_are_empty || self.settings.protects_others || self.of_sessions.is_some()
    }

    /// Returns the names of a client that count in the rules. Looks at each byte of them.
    pub(crate) fn names<'a>(&self, user: Option<&'a Identity>, client_id: &'a str) -> ClientNames<'a> {
        ClientNames::new(self.user(user), client_id)
    }

    /// Returns the user name of a client that counts in the rules.
    fn user<'a>(&self, user: Option<&'a Identity>) -> Option<&'a str> {
        user.filter(|user| user.is_verified() || self.settings.counts_claims).map(Identity::user)
    }

    /// Returns the steps of one decision about a topic, at most. Long names take some more.
    pub(crate) fn most_steps(&self, topic: &str) -> u32 {
        steps(self.of_files.max(self.of_sessions.unwrap_or_default()), topic.len())
    }

    /// Returns the user name of a client that counts in the redelivery rules. A name that nothing
    /// verifies counts, unless a listener verifies names: nobody has the settings of a user whose
    /// name others have to prove.
    pub(crate) fn name_in_redelivery_rules<'a>(&self, user: Option<&'a Identity>) -> Option<&'a str> {
        user.filter(|user| user.is_verified() || !self.settings.protects_others).map(Identity::user)
    }

    /// Notes that a session gets rules of its own, so that rules are looked at from now on. Those of a
    /// superuser refuse nothing, so they change nothing for the messages of others: 150 instructions
    /// each on a broker with a bridge.
    pub(crate) fn note_own_rules(&mut self, rules: &SessionRules) {
        if let SessionRules::Permit(permit) = rules {
            self.of_sessions = self.of_sessions.max(Some(permit.most_compared()));
        }
    }

    /// Takes new settings, but for the files. Returns true if the rules are others now. The rules
    /// depend on the listeners: with a listener that verifies names, topics with names of others
    /// need a rule.
    pub(crate) fn replace_settings(&mut self, settings: &AccessSettings) -> bool {
        let files = std::mem::take(&mut self.settings.files);
        let flags = |settings: &AccessSettings| (settings.protects_others, settings.counts_claims);
        let is_new = flags(&self.settings) != flags(settings);
        self.settings = AccessSettings { files, ..settings.clone() };
        if is_new {
            self.generation = self.generation.wrapping_add(1).max(1);
        }
        is_new
    }

    /// Replaces the rules of all ACL files.
    pub(crate) fn replace(&mut self, files: AclFiles) {
        (self.files_are_empty, self.of_files) = (files.is_empty(), files.most_compared());
        self.settings.files = files;
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// Returns true if the will of a client may be published to a topic. `own` are the new
    /// session's own rules, if any; else the ACL file counts.
    pub(crate) fn admits_will(
        &self,
        (own, source): (Option<&SessionRules>, &RuleSource),
        names: ClientNames<'_>,
        topic: &str,
    ) -> bool {
        self.permit_of(own, source, names.user).may_write(topic, names)
    }

    /// Returns true if sources of retained messages are stored and checked.
    pub(crate) fn checks_retain_source(&self) -> bool {
        self.settings.retain_source == RetainSourceCheck::Check && self.are_on()
    }

    /// Returns true if the source of a retained message may still publish to its topic, by the ACL
    /// file that counted for it. Takes a look-up of the user, and a check as for a PUBLISH.
    pub(crate) fn admits_source(&self, source: &RetainedSource, topic: &str) -> Decision {
        let (user, client_id) = (source.user.as_deref(), &*source.client_id);
        let permit = self.settings.files.permit_of_name(source.listener.as_deref(), user);
        let names = ClientNames::new(user, client_id);
        let Decision { is_granted, steps: taken } = permit.decide(Direction::Write, topic, names);
        // The names were looked at, too.
        Decision { is_granted, steps: taken.saturating_add(1 + steps(1, names.bytes())) }
    }

    /// Returns the permit of a session: its own rules, else those of the ACL file.
    fn permit_of(&self, own: Option<&SessionRules>, source: &RuleSource, user: Option<&str>) -> Permit {
        match own {
            Some(SessionRules::Superuser) => Permit::All,
            Some(SessionRules::Permit(permit)) => permit.clone(),
            None => self.settings.files.permit_of(source, user),
        }
    }

    /// Returns the reason for which an access is denied, for operators: the rule, and where it
    /// stands, and the number of rules that were compared for it. `user` is the client's, whose
    /// login may have brought `own` rules.
    pub(crate) fn why_denied(
        &self,
        (own, source): (Option<&SessionRules>, &RuleSource),
        (user, names): (Option<&Identity>, ClientNames<'_>),
        denied: DeniedAccess<'_>,
    ) -> (String, usize) {
        let permit = self.permit_of(own, source, names.user);
        let file = self.settings.files.acl_of(source);
        if own.is_none() && file.is_none() {
            let is_open = matches!(permit, Permit::All);
            let what = if is_open {
                "the topic has names or payloads of other clients, so it needs a rule (acl.file)"
            } else {
                "the listener of the session is gone, and the broker has no acl.file"
            };
            return (what.to_owned(), 0);
        }
        let (one, whole) = match (&file, user.map(Identity::source)) {
            (Some(acl), _) if own.is_none() => ("line", acl.file()),
            (_, Some(IdentitySource::Jwt)) => ("rule", "the client's token"),
            (_, Some(IdentitySource::Http)) => ("rule", "the answer of auth.http_url"),
            _ => ("rule", "the login of the client"),
        };
        let why = match permit.denying_rule(denied, names) {
            DenyingRule::Line(number) => format!("{one} {number} of {whole} denies it"),
            DenyingRule::Number(number) => format!("{one} {number} of {whole} denies it"),
            DenyingRule::NoGrant => format!("no {one} of {whole} allows it"),
            DenyingRule::Names => {
                format!(
                    "a name of the client has a wildcard or is missing, so no pattern of {whole} allows it"
                )
            }
        };
        (why, permit.denying_rules())
    }

    /// Returns the reason for which a session may not read a topic, for operators, and the number
    /// of rules that were compared for it; `None` if it may. Costs [`Self::most_steps`] beside.
    pub(crate) fn why_unreadable(
        &self,
        (own, source): (Option<&SessionRules>, &RuleSource),
        (user, names): (Option<&Identity>, ClientNames<'_>),
        topic: &str,
    ) -> Option<(String, usize)> {
        let permit = self.permit_of(own, source, names.user);
        let is_granted = match &permit {
            Permit::All => own.is_some() || !self.settings.protects_others || !is_of_others(topic),
            permit => permit.may_read(topic, names),
        };
        let why = || self.why_denied((own, source), (user, names), DeniedAccess::Receive(topic));
        (!is_granted).then(why)
    }

    /// Returns the treatment of a filter of which the client may read nothing.
    pub(crate) fn on_denied_subscribe(&self) -> DeniedSubscribe {
        self.settings.on_denied_subscribe
    }

    /// Returns the treatment of a PUBLISH to a topic that the client may not write.
    pub(crate) fn on_denied_publish(&self) -> DeniedPublish {
        self.settings.on_denied_publish
    }
}

impl SessionAccess {
    /// Returns the record of a session whose client came by this listener, if any.
    pub(crate) fn of_listener(listener: Option<Weak<ListenerTerms>>) -> SessionAccess {
        SessionAccess { source: RuleSource::of_listener(listener), ..SessionAccess::default() }
    }

    /// Returns true if the permit was never asked for, or its user has changed.
    pub(crate) fn is_unknown(&self) -> bool {
        self.generation == 0 && self.own.is_none() && self.source.name().is_none()
    }

    /// Sets the rules of this session alone. Each delivery is checked from now on, because the
    /// subscriptions were granted by the rules before.
    pub(crate) fn set_own(&mut self, own: Option<SessionRules>) {
        if own.is_some() || self.own.is_some() {
            (self.generation, self.checked) = (0, 0);
            self.own = own;
        }
    }

    /// Sets the ACL file that counts. If another one counted before, each delivery is checked from
    /// now on.
    pub(crate) fn set_source(&mut self, source: RuleSource) {
        if !self.source.has_rules_of(&source) {
            (self.generation, self.checked) = (0, 0);
        }
        self.source = source;
    }

    /// Returns the ACL file that counts.
    pub(crate) fn source(&self) -> &RuleSource {
        &self.source
    }

    /// Brings the name of the ACL file that counts up to date. Returns true if the rules have
    /// changed it since the last call.
    pub(crate) fn renew_source(&mut self) -> bool {
        self.source.renew();
        self.source.take_renamed()
    }

    /// Returns the rules of this session alone; `None` if the ACL file counts.
    pub(crate) fn own_rules(&self) -> Option<&SessionRules> {
        self.own.as_ref()
    }

    /// Returns true if no rule holds for the session.
    fn is_superuser(&self) -> bool {
        matches!(self.own, Some(SessionRules::Superuser))
    }

    /// Brings the permit up to date with the rules. After a change of the rules, and for a session
    /// that was recovered, each delivery is checked.
    fn refresh(&mut self, rules: &AccessRules, user: Option<&str>, client_id: &str) {
        if self.generation != rules.generation {
            self.source.renew();
            self.permit = rules.permit_of(self.own.as_ref(), &self.source, user);
            self.guarded = !self.is_superuser();
            self.generation = rules.generation;
            self.written.clear();
            self.marks = NameMarks::of(user, client_id);
            self.retained_source = None;
        }
    }

    /// Brings the permit up to date, and returns the names of the client that count in the rules.
    /// The other methods take these names.
    pub(crate) fn names<'a>(
        &mut self,
        rules: &AccessRules,
        user: Option<&'a Identity>,
        client_id: &'a str,
    ) -> ClientNames<'a> {
        let user = rules.user(user);
        self.refresh(rules, user, client_id);
        ClientNames::known(user, client_id, self.marks)
    }

    /// Begins anew with the permit of a user. No subscription has to be checked yet.
    pub(crate) fn begin(&mut self, rules: &AccessRules, user: Option<&Identity>, client_id: &str) {
        self.generation = 0;
        self.names(rules, user, client_id);
        self.guarded = false;
        (self.checked, self.unchecked) = (self.generation, None);
    }

    /// Returns true if the session may have messages that the client may not read, because the
    /// rules or the user have changed since the last check, or the check is not complete.
    pub(crate) fn is_unchecked(&self, rules: &AccessRules) -> bool {
        self.checked != rules.generation || self.unchecked.is_some()
    }

    /// Returns the place from which the messages are to be checked under the rules, or `None` if
    /// all of them were. A check that began under other rules, or for another user, begins anew.
    pub(crate) fn place_of_check(&mut self, rules: &AccessRules) -> Option<CheckPlace> {
        if self.checked == rules.generation {
            return self.unchecked.take().map(|place| *place);
        }
        (self.checked, self.unchecked) = (rules.generation, None);
        Some(CheckPlace::default())
    }

    /// Notes that the check continues from a place.
    pub(crate) fn check_from(&mut self, place: CheckPlace) {
        self.unchecked = Some(Box::new(place));
    }

    /// Notes that messages have come that were not checked.
    pub(crate) fn mark_unchecked(&mut self) {
        self.checked = 0;
    }

    /// Finds out again if deliveries have to be checked. `filters` are those of all subscriptions,
    /// without `$share/NAME/`.
    pub(crate) fn renew_guard<'a>(
        &mut self,
        rules: &AccessRules,
        names: ClientNames<'_>,
        filters: impl Iterator<Item = &'a str>,
    ) {
        self.guarded = false;
        for filter in filters {
            if self.compare_filter(rules, names, filter) != Coverage::Covered {
                return;
            }
        }
    }

    /// Decides if the client may publish to a topic.
    pub(crate) fn may_write(&mut self, names: ClientNames<'_>, topic: &str) -> Decision {
        self.written.may_write(&self.permit, topic, names)
    }

    /// As [`Self::may_write`], for a topic that is written once, such as that of a will. The topic
    /// is not remembered.
    pub(crate) fn may_write_once(&self, names: ClientNames<'_>, topic: &str) -> Decision {
        self.permit.decide(Direction::Write, topic, names)
    }

    /// Returns the client as the source of its retained messages. Returns `None` if the session has
    /// rules of its own: no file says later if they would still allow the message.
    pub(crate) fn retained_source(&mut self, names: ClientNames<'_>) -> Option<Arc<RetainedSource>> {
        if self.own.is_some() {
            return None;
        }
        let ClientNames { user, client_id, .. } = names;
        let source = self.source.name();
        let made = || Arc::new(RetainedSource::new(client_id, user, source));
        Some(Arc::clone(self.retained_source.get_or_insert_with(made)))
    }

    /// Forgets the topics that the client wrote, because it is away and writes no more.
    pub(crate) fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Decides if a message of a topic may be delivered.
    pub(crate) fn may_read(&self, rules: &AccessRules, names: ClientNames<'_>, topic: &str) -> Decision {
        if self.guarded { self.permits_read(rules, names, topic) } else { Decision::FREE }
    }

    /// Decides if a message of a topic may be delivered, whatever filters the session has. For
    /// a message that may have come by a filter that the session has no more.
    pub(crate) fn permits_read(&self, rules: &AccessRules, names: ClientNames<'_>, topic: &str) -> Decision {
        match self.permit {
            Permit::All if self.is_superuser() => Decision::FREE,
            Permit::All => {
                let is_granted = !rules.settings.protects_others || !is_of_others(topic);
                Decision { is_granted, ..Decision::FREE }
            }
            Permit::Rules(_) => self.permit.decide(Direction::Read, topic, names),
        }
    }

    /// Returns the part of a filter that the client may read. If it is not the whole filter,
    /// deliveries are checked from now on. The filter has no `$share/NAME/`.
    pub(crate) fn compare_filter(
        &mut self,
        rules: &AccessRules,
        names: ClientNames<'_>,
        filter: &str,
    ) -> Coverage {
        let coverage = match self.permit {
            Permit::All if rules.settings.protects_others && !self.is_superuser() => {
                coverage_of_others(filter)
            }
            _ => self.permit.coverage(filter, names),
        };
        self.guarded |= coverage != Coverage::Covered;
        coverage
    }
}

impl SessionAccess {
    /// Returns the steps of a turn that the comparison of a filter of `bytes` bytes with the rules
    /// takes, at most.
    pub(crate) fn comparison_steps(&self, names: ClientNames<'_>, bytes: usize) -> u32 {
        let comparisons = self.permit.coverage_cost();
        let compared = comparisons.saturating_mul(bytes + names.bytes()) / COMPARED_BYTES;
        u32::try_from((comparisons / COMPARISONS).saturating_add(compared)).unwrap_or(u32::MAX - 1)
    }

    /// Notes that the session has a filter that was not compared with the rules.
    pub(crate) fn guard(&mut self) {
        self.guarded = true;
    }
}

/// Returns true if a topic has names or payloads of other clients.
fn is_of_others(topic: &str) -> bool {
    topic.starts_with('$') && OF_OTHERS.iter().any(|filter| crate::mqtt::topic::matches(filter, topic))
}

/// Returns the part of a filter that a client without rules may read.
fn coverage_of_others(filter: &str) -> Coverage {
    if !filter.starts_with('$') || !OF_OTHERS.iter().any(|of| cover::overlaps(of, filter)) {
        Coverage::Covered
    } else if OF_OTHERS.iter().any(|of| cover::contains(of, filter)) {
        Coverage::Disjoint
    } else {
        Coverage::Partial
    }
}
