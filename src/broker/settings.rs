//! Maps the configuration of the operator to the settings of the shards.

use super::listener_plan::ListenerPlan;
use super::statistics::BrokerLimits;
use crate::access::meter::{MeteredRate, TrafficRates};
use crate::bridge;
use crate::config::{self, ByteSize, CertificateUser, ClientCertificates, Config, Listener, Redelivery};
use crate::login::access_rules::{AccessSettings, RetainSourceCheck};
use crate::login::acl_files::AclFiles;
use crate::login::listener_terms::{ListenerConnections, ListenerTerms, LiveRules, ProtocolVersions, Served};
use crate::routing::limit_shares::ShareRules;
use crate::routing::retained::RetainedLimits;
use crate::session::authentication::{Anonymous, AuthMethod, AuthPolicy, OwnerPolicy};
use crate::session::outbound::queue::{QueueBounds, QueueLimits};
use crate::session::outbound::retry::{AckPolicy, RetryPolicy};
use crate::session::policy::{ConnectPolicy, SendPolicy, SessionPolicy, SubscriptionPolicy};
use crate::session::redelivery_policy::RedeliveryPolicy;
use crate::shard::turn::STEPS_PER_TURN;
use crate::shard::{DelayedLimits, LetterLimits, OwnQueues, ShardSettings};
use crate::sink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Returns the settings of each shard, with those of these listeners. Limits over all clients hold
/// for the whole broker, since the shards count together.
pub(super) fn settings(config: &Config, plan: &ListenerPlan) -> ShardSettings {
    let limits = &config.limits;
    ShardSettings {
        session: SessionPolicy {
            send: send_policy(config),
            receive_maximum: limits.receive_maximum,
            topic_levels: usize::from(limits.topic_levels),
            payload_size: match limits.payload_size.as_usize() {
                0 => usize::MAX,
                bytes => bytes,
            },
            connect: connect_policy(config),
            subscriptions: SubscriptionPolicy {
                filters: limits.subscriptions_per_client as usize,
                wildcard_levels: limits.wildcard_levels,
            },
        },
        own_queues: Arc::new(own_queues(config)),
        auth: auth_policy(&config.auth),
        access: access_settings(config, plan),
        rates: traffic_rates(config, plan),
        flapping: config.bans.flapping,
        owners: OwnerPolicy {
            session_owner: config.auth.session_owner,
            adopt_unowned: config.auth.adopt_unowned_sessions,
        },
        user_names_are_tokens: config.auth.jwt_from == config::JwtFrom::UserName,
        auth_timeout: config.auth.timeout,
        connect_timeout: config.network.connect_timeout,
        connect_size: u32::try_from(limits.connect_size.bytes()).unwrap_or(u32::MAX),
        write_timeout: config.network.write_timeout,
        sessions: limits.sessions as usize,
        hold_timeout: limits.hold_timeout,
        expiry_interval: config.expiry.tick,
        steps_per_turn: STEPS_PER_TURN,
        delayed: DelayedLimits {
            messages: limits.delayed_messages as usize,
            bytes: limits.delayed_bytes.as_usize(),
            horizon: seconds(limits.delayed_horizon),
        },
        letters: LetterLimits {
            letters: limits.dead_letters as usize,
            bytes: limits.dead_letter_bytes.as_usize(),
        },
        last_disconnects: if config.sys.publish_interval.is_zero() {
            0
        } else {
            config.sys.last_disconnects as usize
        },
        objectives: config.slo.as_slice().into(),
        event_topics: config.sys.events,
    }
}

/// Returns the limits that the figures of the broker are compared with. `connections` is the
/// maximum number of connections in force.
pub(super) fn broker_limits(config: &Config, connections: usize) -> BrokerLimits {
    BrokerLimits {
        connections,
        sessions: config.limits.sessions as usize,
        retained_messages: config.limits.retained_messages as usize,
        delayed_messages: config.limits.delayed_messages as usize,
    }
}

pub(super) fn retained_limits(config: &Config) -> RetainedLimits {
    let limits = &config.limits;
    RetainedLimits { messages: limits.retained_messages as usize, bytes: limits.retained_bytes.as_usize() }
}

/// Returns the parts of clients and listeners in the limits of retained and delayed messages.
pub(super) fn share_rules(config: &Config, plan: &ListenerPlan) -> ShareRules {
    let parts = plan.open.iter().filter_map(|open| Some((open.name.clone(), open.listener.share?)));
    ShareRules { client: config.limits.share_per_client, listeners: parts.collect() }
}

/// Returns the bytes that incomplete packets may use: a part of the memory budget.
pub(super) fn partial_limit(config: &Config) -> u64 {
    config.limits.memory.bytes() / 4
}

/// Returns the rates of clients whose listener has none of its own; `None` if no listener has any.
fn traffic_rates(config: &Config, plan: &ListenerPlan) -> Option<TrafficRates> {
    let limits = &config.limits;
    let broker = TrafficRates {
        messages: message_rate(config, limits.messages_per_second),
        bytes: byte_rate(config, limits.bytes_per_second),
    };
    let is_limited = |listener: &Listener| {
        listener.messages_per_second.unwrap_or(limits.messages_per_second) > 0
            || listener.bytes_per_second.unwrap_or(limits.bytes_per_second).bytes() > 0
    };
    plan.settings().any(is_limited).then_some(broker)
}

fn message_rate(config: &Config, per_second: u32) -> Option<MeteredRate> {
    MeteredRate::new(per_second.into(), burst(config))
}

fn byte_rate(config: &Config, per_second: ByteSize) -> Option<MeteredRate> {
    MeteredRate::new(per_second.bytes(), burst(config))
}

/// Returns the span of time by which a client may be ahead of its rates. A client that is above its
/// rate is read again at a tick, up to one tick late. The quarter is for the way of the expired
/// deadline to its shard. So the rate is reached, and a client that was silent is no further ahead
/// than this.
fn burst(config: &Config) -> Duration {
    config.expiry.tick * 5 / 4
}

/// Returns the bounds on what a CONNECT requests, at listeners without bounds of their own.
fn connect_policy(config: &Config) -> ConnectPolicy {
    ConnectPolicy {
        packet_size: packet_size(config.limits.packet_size),
        client_id: config.limits.client_id.as_usize(),
        topic_alias_maximum: config.limits.topic_alias_maximum,
        keep_alive_maximum: keep_alive_seconds(config.keep_alive.maximum),
        allow_never: config.keep_alive.allow_never,
        retain_available: config.limits.retained_messages > 0,
        session_expiry: seconds(config.limits.session_expiry),
    }
}

pub(super) fn packet_size(size: ByteSize) -> u32 {
    u32::try_from(size.bytes()).unwrap_or(u32::MAX)
}

fn keep_alive_seconds(maximum: Duration) -> u16 {
    u16::try_from(maximum.as_secs()).unwrap_or(u16::MAX)
}

/// Returns the settings for the clients of a listener.
pub(super) fn listener_terms(
    config: &Config,
    listener: &Listener,
    connections: Arc<ListenerConnections>,
    rules: Arc<LiveRules>,
) -> ListenerTerms {
    let has_auth =
        listener.auth.is_some() || listener.password_file.is_some() || listener.anonymous.is_some();
    ListenerTerms {
        connections,
        serves: Served::Clients,
        receive_maximum: None,
        auth: has_auth.then(|| policy_of(config, listener)),
        password_file: listener.password_file.as_ref().map(PathBuf::from),
        packet_size: listener.packet_size.map(packet_size),
        keep_alive_maximum: listener.keep_alive_maximum.map(keep_alive_seconds),
        message_rate: listener.messages_per_second.map(|rate| message_rate(config, rate)),
        byte_rate: listener.bytes_per_second.map(|rate| byte_rate(config, rate)),
        versions: match &listener.versions {
            Some(versions) => versions.iter().copied().collect(),
            None => ProtocolVersions::ALL,
        },
        client_id: listener.client_id.as_ref().and_then(|rule| rule.parse().ok()),
        mount_point: listener.mount_point.as_ref().and_then(|text| text.parse().ok()).map(Arc::new),
        rules,
    }
}

/// Returns true if some listener verifies the names of clients.
fn verifies_names(config: &Config, plan: &ListenerPlan) -> bool {
    plan.settings()
        .any(|listener| certificates_have_names(listener) || !policy_of(config, listener).methods.is_empty())
}

/// Returns true if the clients of a listener may have a verified certificate with their name: the
/// listener asks for one and takes its name, or its proxy did the TLS and names the certificate's
/// user.
pub(super) fn certificates_have_names(listener: &Listener) -> bool {
    let names = listener.tls.as_ref().is_some_and(|tls| {
        tls.client_certificates.unwrap_or_default() != ClientCertificates::Off
            && tls.certificate_user != Some(CertificateUser::None)
    });
    names || listener.proxy_tls == Some(true)
}

/// Returns true if unverified user names count where no listener verifies names: all listeners that
/// admit clients with such names have `anonymous = "always"`. If a listener verifies names, the
/// rules of a name are those of the client that proved it, and nobody else may have them.
fn counts_claims(config: &Config, plan: &ListenerPlan) -> bool {
    let mut rules = plan
        .settings()
        .map(|listener| policy_of(config, listener))
        .filter(|policy| policy.methods.is_empty() && policy.anonymous != Anonymous::Never)
        .map(|policy| policy.anonymous == Anonymous::Always)
        .peekable();
    rules.peek().is_some() && rules.all(|is_always| is_always)
}

/// Returns true if some listener needs the authenticator.
pub(super) fn asks_authenticator(config: &Config, plan: &ListenerPlan) -> bool {
    plan.settings().any(|listener| policy_of(config, listener).asks())
}

/// Returns the rules about the clients that may enter by a listener.
pub(super) fn policy_of(config: &Config, listener: &Listener) -> AuthPolicy {
    auth_policy(&config.auth_of(listener))
}

/// Returns the rules about the clients that may enter.
fn auth_policy(auth: &config::Auth) -> AuthPolicy {
    let mut methods = auth.methods.clone();
    if methods.is_empty() {
        // A file that is named is meant to be used.
        methods.extend(AuthMethod::AUTO.into_iter().filter(|method| auth.equips(*method)));
        if methods == [AuthMethod::Certificate] {
            methods.clear();
        }
    }
    AuthPolicy { anonymous: auth.anonymous, methods }
}

/// Returns the rules about topics, without those of the ACL file.
fn access_settings(config: &Config, plan: &ListenerPlan) -> AccessSettings {
    let protects_others = verifies_names(config, plan);
    AccessSettings {
        files: AclFiles::default(),
        protects_others,
        counts_claims: !protects_others && counts_claims(config, plan),
        on_denied_subscribe: config.acl.on_denied_subscribe,
        on_denied_publish: config.acl.on_denied_publish,
        retain_source: match config.acl.check_retain_source {
            true => RetainSourceCheck::Check,
            false => RetainSourceCheck::Ignore,
        },
    }
}

fn send_policy(config: &Config) -> SendPolicy {
    let (limits, store, redelivery) = (&config.limits, &config.store, &config.redelivery);
    let queue = |messages: u32, bytes: ByteSize| QueueLimits {
        messages: messages as usize,
        bytes: bytes.as_usize(),
        policy: limits.queue_policy,
    };
    SendPolicy {
        queue: queue(limits.queue_messages, limits.queue_bytes),
        stored_queue: queue(store.queue_messages, store.queue_bytes),
        redelivery: redelivery_policy(redelivery),
        rules: redelivery.rules.clone(),
        outbox: limits.outbox.as_usize(),
        in_flight: limits.in_flight,
    }
}

/// Returns the bounds of the queues of bridges and sinks, as far as these have their own.
fn own_queues(config: &Config) -> OwnQueues {
    let of_bridges = config.bridges.iter().map(|own| (bridge::client_id(own.label()), own.queue_bounds()));
    let of_sinks = config.sinks.iter().map(|own| (sink::client_id(own.label()), own.queue_bounds()));
    let all = of_bridges.chain(of_sinks).filter(|(_, own)| *own != QueueBounds::default());
    all.map(|(client_id, own)| (client_id.into(), own)).collect()
}

fn redelivery_policy(redelivery: &Redelivery) -> RedeliveryPolicy {
    let retry = RetryPolicy {
        interval: redelivery.interval,
        backoff: redelivery.backoff,
        min_interval: redelivery.min_requested,
        max_interval: redelivery.max_backoff,
        jitter: redelivery.jitter,
        attempts: redelivery.attempts,
        on_exhausted: redelivery.on_exhausted,
        resends_per_tick: redelivery.resends_per_tick as usize,
    };
    let ack = AckPolicy {
        timeout: redelivery.ack_timeout,
        max_timeout: redelivery.max_ack_timeout,
        on_timeout: redelivery.on_ack_timeout,
    };
    RedeliveryPolicy {
        negative_ack: redelivery.negative_ack,
        dead_letters: redelivery.dead_letters,
        ..RedeliveryPolicy::new(retry, ack)
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::connect_limits::LiveLimits;
    use crate::broker::rate_limit::EventRates;
    use crate::session::outbound::retry::Outlives;

    fn plan(config: &Config) -> ListenerPlan {
        ListenerPlan::at_start(&config.all_listeners())
    }

    #[test]
    fn a_stuck_client_is_disconnected_within_five_minutes_by_default() {
        let retry = redelivery_policy(&Redelivery::default()).retry;
        for seed in 0..10_000 {
            let waits = |rounds| (0..rounds).map(|round| retry.delay(retry.interval, round, seed)).sum();
            let (second, closed): (Duration, Duration) = (waits(2), waits(retry.attempts + 1));
            assert!(
                retry.closes(retry.attempts, Outlives::Yes)
                    && !retry.closes(retry.attempts - 1, Outlives::Yes)
            );
            // docs/redelivery.md has these times.
            assert!(closed >= Duration::from_secs(225) && closed <= Duration::from_secs(270), "{closed:?}");
            assert!(second >= Duration::from_secs(45) && second <= Duration::from_secs(54), "{second:?}");
        }
    }

    #[test]
    fn names_of_others_are_protected_once_anything_verifies_clients() {
        let protects = |change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            access_settings(&config, &plan(&config)).protects_others
        };
        let with_certificates = |demand| {
            let tls =
                config::ListenerTls { client_certificates: Some(demand), ..config::ListenerTls::default() };
            config::Listener { tls: Some(tls), ..config::Listener::default() }
        };
        assert!(!protects(&|_| ()));
        assert!(!protects(&|config| config.listeners = vec![with_certificates(ClientCertificates::Off)]));
        assert!(protects(&|config| config.listeners = vec![with_certificates(ClientCertificates::Optional)]));
        assert!(protects(&|config| config.auth.password_file = "passwd".to_owned()));
        let claims = |change: &dyn Fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            access_settings(&config, &plan(&config)).counts_claims
        };
        assert!(!claims(&|_| ()));
        assert!(claims(&|config| config.auth.anonymous = config::Anonymous::Always));
        assert!(!claims(&|config| {
            config.auth.anonymous = config::Anonymous::Always;
            config.auth.password_file = "passwd".to_owned();
        }));
        // A guest must not have the rules of a certificate's name, by this or by another listener.
        assert!(!claims(&|config| {
            config.auth.anonymous = config::Anonymous::Always;
            config.listeners = vec![with_certificates(ClientCertificates::Optional)];
        }));
        assert!(!claims(&|config| {
            config.auth.anonymous = config::Anonymous::Always;
            let closed = config::Listener { auth: Some(vec![AuthMethod::Password]), ..Default::default() };
            config.listeners = vec![config::Listener::default(), closed];
        }));
    }

    /// Returns all that a reload hands to the parts of the broker, as text.
    fn taken(config: &Config) -> String {
        // The rates of events count only where events are on.
        let with_events = config::Sys { events: true, ..config.sys.clone() };
        // The interval of syncs counts only where commits do not sync.
        let in_intervals =
            config::Store { durability: config::DurabilityLevel::Interval, ..config.store.clone() };
        let parts = (
            settings(config, &plan(config)),
            (config.all_listeners(), config.network.backlog, config.limits.connects_per_second),
            (retained_limits(config), share_rules(config, &plan(config))),
            LiveLimits::new(config),
            EventRates::of(&with_events, 1),
            config.limits.memory,
            &config.log.level,
            config.log.events_per_second,
            (config.store.largest_size(), in_intervals.synced_every()),
            config.sys.interval_of(0),
            // The HTTP interface, the export, bridges and sinks are given the whole configuration.
            (&config.admin.hosts, config.admin.payloads, &config.bridges, &config.sinks),
            (&config.admin.credentials, &config.admin.trusted_proxies, &config.otlp),
        );
        format!("{parts:?}")
    }

    /// Reloads every key with another value. A key without a restart changes the settings of the
    /// broker's parts. A key with a restart changes nothing.
    #[test]
    fn every_key_reloads_as_its_row_in_the_table_says() {
        let running = Config::default();
        let built_in = taken(&running);
        let mut keys = 0;
        for (key, loaded) in config::every_key_changed() {
            let changes = loaded.changes_from(&running);
            let change = changes.iter().find(|change| change.key == key);
            let effect = change.unwrap_or_else(|| panic!("{key} is not changed: {changes:?}")).effect;
            let reloaded = running.with_reloaded(&loaded.config);
            let is_taken = taken(&reloaded) != built_in;
            match effect {
                config::ReloadEffect::Restart => {
                    assert!(!is_taken, "{key} needs a restart");
                    assert!(loaded.changes_from(&reloaded).iter().any(|left| left.key == key), "{key}");
                }
                _ => assert!(is_taken, "nobody takes {key}"),
            }
            keys += 1;
        }
        assert!(keys > 60, "{keys}");
    }

    #[test]
    fn every_key_of_a_listener_reloads_as_its_documentation_says() {
        let mut waiting = Vec::new();
        for (key, running, new) in config::every_listener_key_changed() {
            let changes = new.changes_from(&running.config);
            let [change] = &changes[..] else { panic!("{key}: {changes:?}") };
            let of_listener = new.listener_changes(&running.config);
            let reloaded = running.config.with_reloaded(&new.config);
            let is_taken = taken(&reloaded) != taken(&running.config);
            assert_eq!(is_taken, change.effect == config::ReloadEffect::NewConnections, "{key}: {change:?}");
            for one in &of_listener {
                assert_eq!(is_taken, one.effect != config::ReloadEffect::Restart, "{key}: {one:?}");
                assert!(key == "address" || one.what.keys() == [key], "{key}: {one:?}");
            }
            assert_eq!(
                is_taken,
                new.changes_from(&reloaded).is_empty(),
                "{key}: the rest waits for a restart"
            );
            if !is_taken {
                waiting.push(key);
            }
        }
        assert_eq!(waiting, ["mode", "group"]);
    }
}
