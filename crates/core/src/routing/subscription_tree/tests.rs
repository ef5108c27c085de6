//! The index against the naive matcher, and against a model of subscriptions, peers and groups.

use super::test_topics::{topic_filter, topic_name};
use super::*;
use crate::mqtt::packet::{QoS, SubscriptionOptions};
use crate::mqtt::topic;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const HERE: ShardId = ShardId(0);

fn subscriber(session: u32) -> Subscriber {
    Subscriber { session: SessionSlot(session), options: PackedOptions::default(), subscription_id: 0 }
}

fn member(shard: ShardId, session: u32) -> Member {
    Member {
        shard,
        session: SessionSlot(session),
        generation: 0,
        options: PackedOptions::default(),
        subscription_id: 0,
        online: true,
    }
}

fn matched(tree: &SubscriptionTree, topic: &str) -> Vec<u32> {
    let mut out = Matches::default();
    tree.matches(topic, &mut out);
    let mut sessions: Vec<_> = out.subscribers.iter().map(|s| s.session.0).collect();
    sessions.sort_unstable();
    sessions
}

proptest! {
    #[test]
    fn a_topic_finds_just_the_filters_the_naive_matcher_finds(
        filters in prop::collection::vec(topic_filter(), 0..40),
        topics in prop::collection::vec(topic_name(), 1..20),
    ) {
        let mut tree = SubscriptionTree::new(HERE);
        for (session, filter) in filters.iter().enumerate() {
            prop_assert!(topic::TopicFilter::parse(filter, 100).is_ok());
            tree.subscribe(filter, subscriber(session as u32));
        }
        for topic in &topics {
            let expected: Vec<_> = (0..filters.len())
                .filter(|i| topic::matches(&filters[*i], topic))
                .map(|i| i as u32)
                .collect();
            prop_assert_eq!(matched(&tree, topic), expected, "{}", topic);
        }
    }
}

proptest! {
    #[test]
    fn a_walk_in_portions_finds_what_a_walk_at_once_finds(
        filters in prop::collection::vec(topic_filter(), 0..40),
        topics in prop::collection::vec(topic_name(), 1..20),
        most in 1..5_u32,
    ) {
        let mut tree = SubscriptionTree::new(HERE);
        for (session, filter) in filters.iter().enumerate() {
            tree.subscribe(filter, subscriber(session as u32));
        }
        for topic in &topics {
            let (mut walk, mut out) = (Walk::default(), Matches::default());
            let mut visited = 0;
            while !tree.go_on(topic, &mut walk, most, &mut out) {
                prop_assert_eq!(out.visited - visited, most);
                visited = out.visited;
            }
            let mut found: Vec<_> = out.subscribers.iter().map(|s| s.session.0).collect();
            found.sort_unstable();
            prop_assert_eq!(found, matched(&tree, topic), "{}", topic);
        }
    }
}

#[test]
fn a_walk_goes_on_where_what_it_stood_on_is_gone() {
    let filters = ["a/a/a", "a/+/a", "+/a/a", "+/+/+", "a/a/#", "a/+/#"];
    for (most, gone) in (1..8).flat_map(|most| (0..filters.len()).map(move |gone| (most, gone))) {
        let mut tree = SubscriptionTree::new(HERE);
        for (session, filter) in filters.iter().enumerate() {
            tree.subscribe(filter, subscriber(session as u32));
        }
        let (mut walk, mut out) = (Walk::default(), Matches::default());
        let mut all = tree.go_on("a/a/a", &mut walk, most, &mut out);
        tree.unsubscribe(filters[gone], SessionSlot(gone as u32));
        // A node that was freed is another's.
        tree.subscribe("b/+", subscriber(99));
        while !all {
            all = tree.go_on("a/a/a", &mut walk, 1, &mut out);
        }
        let mut found: Vec<_> = out.subscribers.iter().map(|s| s.session.0 as usize).collect();
        found.sort_unstable();
        found.retain(|session| *session != gone);
        let others: Vec<_> = (0..filters.len()).filter(|session| *session != gone).collect();
        assert_eq!(found, others, "{most} {gone}");
    }
}

#[test]
fn a_wildcard_bomb_is_refused_after_the_nodes_that_are_allowed() {
    let mut tree = SubscriptionTree::new(HERE);
    const LEVELS: usize = 10;
    for n in 0..1_u32 << LEVELS {
        let level = |at: usize| if n >> at & 1 == 0 { "a" } else { "+" };
        let filter: Vec<_> = (0..LEVELS).map(level).chain(["b"]).collect();
        tree.subscribe(&filter.join("/"), subscriber(n));
    }
    let topic = ["a"; LEVELS + 1].join("/");
    let mut out = Matches::default();
    assert!(!tree.matches_within(&topic, 1_000, &mut out));
    assert!(out.is_empty() && (1_000..2_000).contains(&out.visited), "{} nodes", out.visited);
    assert!(tree.matches_within(&topic, 3_000, &mut out));
}

#[derive(Clone, Debug)]
enum Step {
    Subscribe(String, u32, u32),
    Unsubscribe(String, u32),
    Interest(String, ShardId, Interest),
    Join(String, &'static str, ShardId, u32),
    Leave(String, &'static str, ShardId, u32),
    Presence(ShardId, u32, Presence),
}

fn step() -> impl Strategy<Value = Step> {
    // A small set of filters, so that steps undo each other.
    let filter = prop::sample::select(vec!["a", "a/b", "a/+", "+/b", "a/#", "#", "$SYS/#", "a//b", "+/+/b"]);
    let filter = filter.prop_map(str::to_string);
    let group = prop::sample::select(vec!["g", "h", "i"]);
    let shard = (0..3_u8).prop_map(ShardId);
    let peer = (1..4_u8).prop_map(ShardId);
    let session = 0..4_u32;
    let interest = prop_oneof![Just(Interest::Present), Just(Interest::Absent)];
    let presence = prop_oneof![Just(Presence::Online), Just(Presence::Offline)];
    prop_oneof![
        (filter.clone(), session.clone(), 0..3_u32).prop_map(|(f, s, id)| Step::Subscribe(f, s, id)),
        (filter.clone(), session.clone()).prop_map(|(f, s)| Step::Unsubscribe(f, s)),
        (filter.clone(), peer, interest).prop_map(|(f, p, i)| Step::Interest(f, p, i)),
        (filter.clone(), group.clone(), shard.clone(), session.clone())
            .prop_map(|(f, g, p, s)| Step::Join(f, g, p, s)),
        (filter.clone(), group.clone(), shard.clone(), session.clone())
            .prop_map(|(f, g, p, s)| Step::Leave(f, g, p, s)),
        (shard, session, presence).prop_map(|(p, s, o)| Step::Presence(p, s, o)),
    ]
}

#[derive(Default)]
struct Model {
    local: BTreeMap<(String, u32), u32>,
    peers: BTreeSet<(String, ShardId)>,
    members: BTreeMap<(String, &'static str, MemberAddress), bool>,
}

impl Model {
    fn has_local(&self, filter: &str) -> bool {
        self.local.keys().any(|(f, _)| f == filter)
    }

    fn has_group(&self, filter: &str, group: &str) -> bool {
        self.members.keys().any(|(f, g, _)| f == filter && *g == group)
    }

    /// Does the step in both and compares the answers.
    fn apply(&mut self, tree: &mut SubscriptionTree, step: Step) {
        match step {
            Step::Subscribe(filter, session, id) => {
                let first_here = !self.has_local(&filter);
                let answer =
                    tree.subscribe(&filter, Subscriber { subscription_id: id, ..subscriber(session) });
                let replaced = self.local.insert((filter, session), id).is_some();
                let expected = if replaced { Subscribed::Replaced } else { Subscribed::New { first_here } };
                assert_eq!(answer, expected);
            }
            Step::Unsubscribe(filter, session) => {
                let answer = tree.unsubscribe(&filter, SessionSlot(session));
                let removed = self.local.remove(&(filter.clone(), session)).is_some();
                let last_here = !self.has_local(&filter);
                let expected =
                    if removed { Unsubscribed::Removed { last_here } } else { Unsubscribed::NotFound };
                assert_eq!(answer, expected);
            }
            Step::Interest(filter, shard, interest) => {
                tree.set_peer_interest(&filter, shard, interest);
                match interest {
                    Interest::Present => self.peers.insert((filter, shard)),
                    Interest::Absent => self.peers.remove(&(filter, shard)),
                };
            }
            Step::Join(filter, group, shard, session) => {
                let first_here = !self.has_group(&filter, group);
                let member = member(shard, session);
                let answer = tree.join(group, &filter, member);
                let replaced = self.members.insert((filter, group, member.address()), true).is_some();
                // Who joins is online, in whatever group it is.
                let address = member.address();
                self.members.iter_mut().filter(|((_, _, a), _)| *a == address).for_each(|(_, on)| *on = true);
                let expected = if replaced { Subscribed::Replaced } else { Subscribed::New { first_here } };
                assert_eq!(answer, expected);
            }
            Step::Leave(filter, group, shard, session) => {
                let address = member(shard, session).address();
                let answer = tree.leave(group, &filter, address);
                let removed = self.members.remove(&(filter.clone(), group, address)).is_some();
                let last_here = !self.has_group(&filter, group);
                let expected =
                    if removed { Unsubscribed::Removed { last_here } } else { Unsubscribed::NotFound };
                assert_eq!(answer, expected);
            }
            Step::Presence(shard, session, presence) => {
                let address = member(shard, session).address();
                let found = tree.set_presence(address, presence);
                let of_it = self.members.iter_mut().filter(|((_, _, a), _)| *a == address);
                let mut memberships = 0;
                for (_, online) in of_it {
                    memberships += 1;
                    *online = presence == Presence::Online;
                }
                assert_eq!(found, memberships > 0);
            }
        }
    }

    /// `kept` has the answer to an earlier question, maybe the same.
    fn compare(&self, tree: &mut SubscriptionTree, topic: &str, kept: &mut Matches) {
        tree.matches(topic, kept);
        self.check(tree, topic, kept);
        let mut out = Matches::default();
        tree.matches(topic, &mut out);
        self.check(tree, topic, &out);
    }

    fn check(&self, tree: &mut SubscriptionTree, topic: &str, out: &Matches) {
        let expected: Vec<_> = self
            .local
            .iter()
            .filter(|((filter, _), _)| topic::matches(filter, topic))
            .map(|((_, session), id)| (*session, *id))
            .collect();
        let mut subscribers: Vec<_> =
            out.subscribers.iter().map(|s| (s.session.0, s.subscription_id)).collect();
        subscribers.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(subscribers, expected);

        let peers: ShardSet =
            self.peers.iter().filter(|(f, _)| topic::matches(f, topic)).map(|(_, p)| *p).collect();
        assert_eq!(out.peers, peers);

        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((filter, group, address), online) in &self.members {
            if topic::matches(filter, topic) {
                groups.entry((filter, group)).or_default().push((*address, *online));
            }
        }
        let mut expected: Vec<_> = groups.into_values().collect();
        let members = |id: &GroupId| {
            let group = tree.group_mut(*id).unwrap();
            let mut members: Vec<_> = group.members().map(|m| (m.address(), m.online)).collect();
            members.sort_unstable();
            members
        };
        let mut found: Vec<_> = out.groups.iter().map(members).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    fn local_len(&self) -> usize {
        self.local.len() + self.members.keys().filter(|(_, _, address)| address.shard == HERE).count()
    }

    fn undo_all(&mut self, tree: &mut SubscriptionTree) {
        for (filter, session) in self.local.keys().cloned().collect::<Vec<_>>() {
            self.apply(tree, Step::Unsubscribe(filter, session));
        }
        for (filter, shard) in self.peers.clone() {
            self.apply(tree, Step::Interest(filter, shard, Interest::Absent));
        }
        for (filter, group, address) in self.members.keys().cloned().collect::<Vec<_>>() {
            self.apply(tree, Step::Leave(filter, group, address.shard, address.session.0));
        }
    }
}

const TOPICS: [&str; 8] = ["a", "a/b", "b", "a//b", "$SYS/b", "/b", "a/b/c", "x/y/b"];

proptest! {
    #[test]
    fn any_row_of_changes_leaves_what_the_model_has_and_undone_leaves_nothing(
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut tree = SubscriptionTree::new(HERE);
        let mut model = Model::default();
        let mut kept = TOPICS.map(|_| Matches::default());
        for step in steps {
            let before = TOPICS.map(|topic| results(&tree, topic));
            let version = tree.version();
            model.apply(&mut tree, step);
            if tree.version() == version {
                prop_assert_eq!(before, TOPICS.map(|topic| results(&tree, topic)));
            }
            for (topic, kept) in TOPICS.into_iter().zip(&mut kept) {
                model.compare(&mut tree, topic, kept);
            }
            prop_assert_eq!(tree.len(), model.local_len());
        }
        model.undo_all(&mut tree);
        prop_assert_eq!((tree.len(), tree.entries()), (0, 0));
    }
}

fn results(tree: &SubscriptionTree, topic: &str) -> (Vec<Subscriber>, ShardSet, Vec<GroupId>) {
    let mut out = Matches::default();
    tree.matches(topic, &mut out);
    (out.subscribers, out.peers, out.groups)
}

#[test]
fn mqtt5_4_7_2_1_mqtt311_4_7_2_1_leading_wildcards_pass_over_dollar_topics() {
    let mut tree = SubscriptionTree::new(HERE);
    for (session, filter) in ["#", "+/x", "$SYS/#", "$SYS/x", "+/#", "$SYS/+"].into_iter().enumerate() {
        tree.subscribe(filter, subscriber(session as u32));
    }
    tree.join("g", "#", member(HERE, 9));
    assert_eq!(matched(&tree, "$SYS/x"), [2, 3, 5]);
    let mut out = Matches::default();
    tree.matches("$SYS/x", &mut out);
    assert!(out.groups.is_empty(), "the rule holds behind $share/g/ too");
    assert_eq!(matched(&tree, "a/x"), [0, 1, 4]);
}

#[test]
fn mqtt5_3_8_4_3_mqtt311_3_8_4_3_the_same_filter_again_replaces() {
    let mut tree = SubscriptionTree::new(HERE);
    for filter in ["a/b", "a/+"] {
        assert_eq!(tree.subscribe(filter, subscriber(1)), Subscribed::New { first_here: true });
        let options = SubscriptionOptions { qos: QoS::ExactlyOnce, ..Default::default() };
        let again = Subscriber { options: options.into(), ..subscriber(1) };
        let version = tree.version();
        assert_eq!(tree.subscribe(filter, again), Subscribed::Replaced);
        assert_ne!(tree.version(), version);
        assert_eq!(tree.subscribe(filter, subscriber(2)), Subscribed::New { first_here: false });
    }
    let mut out = Matches::default();
    tree.matches("a/b", &mut out);
    let granted: Vec<_> = out.subscribers.iter().map(|s| (s.session.0, s.options.qos())).collect();
    assert_eq!(
        granted,
        [(1, QoS::ExactlyOnce), (2, QoS::AtMostOnce), (1, QoS::ExactlyOnce), (2, QoS::AtMostOnce)]
    );
    assert_eq!(tree.len(), 4);
}

#[test]
fn mqtt5_3_10_4_1_mqtt311_3_10_4_1_only_the_very_filter_is_unsubscribed() {
    let mut tree = SubscriptionTree::new(HERE);
    tree.subscribe("a/b", subscriber(1));
    tree.subscribe("a/+", subscriber(1));
    assert_eq!(tree.unsubscribe("a/#", SessionSlot(1)), Unsubscribed::NotFound);
    assert_eq!(tree.unsubscribe("a/+", SessionSlot(2)), Unsubscribed::NotFound);
    assert_eq!(tree.unsubscribe("a/+", SessionSlot(1)), Unsubscribed::Removed { last_here: true });
    assert_eq!(matched(&tree, "a/b"), [1]);
}

#[test]
fn a_group_id_outlived_by_its_group_names_no_other() {
    let mut tree = SubscriptionTree::new(HERE);
    let mut out = Matches::default();
    tree.join("g", "a", member(HERE, 1));
    tree.matches("a", &mut out);
    let old = out.groups[0];
    tree.leave("g", "a", member(HERE, 1).address());
    tree.join("h", "a", member(HERE, 2));
    tree.matches("a", &mut out);
    assert_ne!(out.groups[0], old);
    assert!(tree.group(old).is_none() && tree.group_mut(old).is_none());
    assert_eq!(tree.group(out.groups[0]).map(SharedGroup::len), Some(1));
}

#[test]
fn memory_returns_when_most_or_all_is_removed() {
    let mut tree = SubscriptionTree::new(HERE);
    let filter = |i: u32, wild: &str| format!("site/{}/device/{i}/{wild}", i % 10);
    for i in 0..20_000 {
        tree.subscribe(&filter(i, "+"), subscriber(i));
        tree.subscribe(&filter(i, "state"), subscriber(i));
    }
    let full = tree.memory();
    for i in (0..20_000).filter(|i| i % 100 != 7) {
        tree.unsubscribe(&filter(i, "+"), SessionSlot(i));
        tree.unsubscribe(&filter(i, "state"), SessionSlot(i));
    }
    assert!(tree.memory() < full / 20, "{} of {full}", tree.memory());
    assert_eq!(matched(&tree, "site/7/device/107/state"), [107, 107], "what stays is still found");
    assert_eq!(matched(&tree, "site/7/device/108/state"), [0_u32; 0]);
    for i in (0..20_000).filter(|i| i % 100 == 7) {
        tree.unsubscribe(&filter(i, "+"), SessionSlot(i));
        tree.unsubscribe(&filter(i, "state"), SessionSlot(i));
    }
    assert_eq!(tree.entries(), 0);
    assert!(tree.memory() < 4_096, "{}", tree.memory());
}

#[test]
fn the_account_of_a_large_tree_is_exact_while_it_grows_and_shrinks() {
    let mut tree = SubscriptionTree::new(HERE);
    let change = |tree: &mut SubscriptionTree, i: u32, comes: bool| {
        let filters = [format!("a/{i}/+"), format!("a/{i}/b"), format!("{i}/#")];
        for filter in &filters {
            match comes {
                true => _ = tree.subscribe(filter, subscriber(i)),
                false => _ = tree.unsubscribe(filter, SessionSlot(i)),
            }
        }
        match comes {
            true => _ = tree.join("g", &filters[0], member(HERE, i)),
            false => _ = tree.leave("g", &filters[0], member(HERE, i).address()),
        }
        if i.is_multiple_of(997) {
            let Recounted { in_use, charged } = tree.recount();
            assert_eq!(in_use, charged);
        }
    };
    (0..20_000).for_each(|i| change(&mut tree, i, true));
    assert_eq!(matched(&tree, "a/19999/b"), [19_999, 19_999]);
    (0..20_000).for_each(|i| change(&mut tree, i, false));
    let Recounted { in_use, charged } = tree.recount();
    assert!(in_use == charged && in_use < 8_192, "{in_use} B, {charged} B");
}

#[test]
fn the_deepest_filter_and_topic_are_walked_without_recursion() {
    let mut tree = SubscriptionTree::new(HERE);
    let topic = "/".repeat(65_535);
    let filter = format!("{}+", "/".repeat(65_534));
    tree.subscribe(&filter, subscriber(1));
    tree.subscribe(&format!("{}#", "+/".repeat(32_000)), subscriber(2));
    assert_eq!(matched(&tree, &topic[..65_534]), [1, 2]);
    tree.unsubscribe(&filter, SessionSlot(1));
    assert_eq!(matched(&tree, &topic[..65_534]), [2]);
}

#[test]
fn clearing_leaves_no_match_of_the_topic_before() {
    let mut tree = SubscriptionTree::new(HERE);
    tree.subscribe("a", subscriber(1));
    tree.set_peer_interest("a", ShardId(3), Interest::Present);
    tree.join("g", "a", member(ShardId(3), 1));
    let mut out = Matches::default();
    tree.matches("a", &mut out);
    assert_eq!((out.subscribers.len(), out.peers.len(), out.groups.len()), (1, 1, 1));
    tree.matches("b", &mut out);
    assert!(out.is_empty());
    assert_eq!(tree.len(), 1, "the other shard's member is not counted here");
}
