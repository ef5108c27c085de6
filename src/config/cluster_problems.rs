//! What a node of a cluster needs beyond values that are each allowed.

use super::choices::DurabilityLevel;
use super::problem::Problem;
use super::size::ByteSize;
use super::{Cluster, Config};

/// Number of the largest packets that the log has room for at least. A commit group has up to an eighth
/// of the log before it takes one more packet, which may be in it twice, as a message and as a retained
/// one. With four eighths at most, it fits beside what no snapshot has freed yet.
const PACKETS_IN_LOG: u64 = 8;

/// Returns every reason why this configuration makes no node of the cluster that it names; none
/// without a cluster.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    if !config.cluster.is_on() {
        return Vec::new();
    }
    let timing = config.cluster.timing().err().map(|error| format!("cluster.{error}"));
    let others = of_others(config).into_iter().chain([of_packets(config)]);
    let all = of_cluster(&config.cluster).into_iter().chain(others).flatten().chain(timing);
    all.map(Problem::NoNode).collect()
}

fn of_cluster(cluster: &Cluster) -> [Option<String>; 4] {
    let Cluster { node, nodes, nats, nats_user, nats_password_file, .. } = cluster;
    let member = match nodes.is_empty() {
        true => Some("cluster.nodes is needed: the names of all nodes, the same list on each".to_owned()),
        false => (cluster.place().is_none())
            .then(|| format!("cluster.node {node:?} has to be one of cluster.nodes {nodes:?}")),
    };
    let has_half = cluster.nats_certificate.is_empty() != cluster.nats_key.is_empty();
    [
        member,
        nats.is_empty().then(|| "cluster.nats is needed: the servers of NATS JetStream".to_owned()),
        has_half.then(|| "cluster.nats_certificate and cluster.nats_key are needed together".to_owned()),
        (nats_user.is_empty() != nats_password_file.is_empty())
            .then(|| "cluster.nats_user and cluster.nats_password_file are needed together".to_owned()),
    ]
}

fn of_others(config: &Config) -> [Option<String>; 3] {
    let durability = config.store.durability;
    let is_weak =
        matches!(durability, DurabilityLevel::Os | DurabilityLevel::None | DurabilityLevel::Interval);
    let unnamed = config.listeners.iter().any(|listener| listener.name.is_none());
    [
        is_weak.then(|| {
            format!(
                "store.durability = {:?} does not fit a cluster, whose engine stores each group before it is acknowledged: leave it at \"commit\"",
                durability.name()
            )
        }),
        config
            .store
            .copied_to()
            .map(|_| "store.ship_to does not work in a cluster: the log is in NATS".to_owned()),
        unnamed.then(|| {
            "each of [[listeners]] needs a name in a cluster: sessions remember it on all nodes".to_owned()
        }),
    ]
}

/// Compares the log with the largest packet that a listener takes.
fn of_packets(config: &Config) -> Option<String> {
    let of_listeners = config.listeners.iter().filter_map(|listener| listener.packet_size);
    let listeners = of_listeners.map(|size| ("packet_size of [[listeners]]", size));
    let all = listeners.chain([("limits.packet_size", config.limits.packet_size)]);
    let (key, largest) = all.max_by_key(|(_, size)| size.bytes())?;
    let (size, needed) = (config.cluster.log_size, ByteSize(PACKETS_IN_LOG * largest.bytes()));
    (size < needed).then(|| {
        format!(
            "cluster.log_size = \"{size}\" is too small for {key} = \"{largest}\", since a message has to fit into an \
             eighth of the log: raise cluster.log_size to \"{needed}\", or lower {key}"
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::config::sources::load_text as load;

    const NODE: &str = "[cluster]\nname = \"plant\"\nnode = \"a\"\nnodes = [\"a\", \"b\"]\nnats = [\"nats://127.0.0.1:4222\"]\n";

    #[test]
    fn a_node_has_its_name_in_the_list_and_servers() {
        assert!(load(NODE).is_ok());
        assert!(load("[cluster]\nnode = \"a\"\n").is_ok(), "without a name there is no cluster");
    }

    #[test]
    fn everything_that_a_node_lacks_is_told_at_once() {
        let text = "[cluster]\nname = \"plant\"\nnode = \"z\"\nnodes = [\"a\"]\nnats_user = \"u\"\nnats_key = \"k\"\n\
                    lease = \"5s\"\n[store]\ndurability = \"os\"\nship_to = \"copy\"\n[[listeners]]\naddress = \"127.0.0.1:0\"\n";
        let refusal = load(text).expect_err("it is no node");
        for problem in [
            "cluster.node \"z\" has to be one of cluster.nodes [\"a\"]",
            "cluster.nats is needed",
            "cluster.nats_certificate and cluster.nats_key",
            "cluster.nats_user and cluster.nats_password_file",
            "store.durability = \"os\" does not fit a cluster",
            "store.ship_to does not work in a cluster",
            "each of [[listeners]] needs a name in a cluster",
            "cluster.suspect_after",
        ] {
            assert!(refusal.contains(problem), "{problem}: {refusal}");
        }
        let refusal = load("[cluster]\nname = \"plant\"\n").expect_err("it has no nodes");
        assert!(
            refusal.contains("cluster.nodes is needed") && !refusal.contains("cluster.node \""),
            "{refusal}"
        );
    }

    #[test]
    fn the_log_has_room_for_eight_of_the_largest_packets() {
        let with = |packet: &str, more: &str| {
            load(&format!("{NODE}log_size = \"64 MiB\"\n[limits]\npacket_size = \"{packet}\"\n{more}"))
        };
        assert!(with("8 MiB", "").is_ok());
        let refusal = with("9 MiB", "").expect_err("72 MiB are needed");
        for part in ["cluster.log_size = \"64 MiB\"", "limits.packet_size = \"9 MiB\"", "\"72 MiB\""] {
            assert!(refusal.contains(part), "{part}: {refusal}");
        }
        let listener = "[[listeners]]\nname = \"a\"\naddress = \"127.0.0.1:0\"\npacket_size = \"16 MiB\"\n";
        let refusal = with("1 MiB", listener).expect_err("128 MiB are needed");
        assert!(refusal.contains("packet_size of [[listeners]] = \"16 MiB\""), "{refusal}");
    }
}
