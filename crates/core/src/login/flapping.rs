//! The connects of each client, counted to find those that connect too often.

use crate::access::strikes::{StrikeRule, Strikes};
use crate::mqtt::keyed::Keyed;
use std::hash::BuildHasher;

/// Clients of one shard whose connects are counted. The oldest one makes room.
const COUNTED: usize = 16_384;

/// The connects of clients, by client identifier and user. Both are verified: nobody else can get a
/// client banned.
pub(crate) type Flapping = Strikes<FlappingKey>;

/// Stands for a client identifier and a verified user. Takes 16 bytes, however long both are. The
/// hash has the key of the process, so nobody can choose a client that has the key of another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlappingKey([u64; 2]);

impl FlappingKey {
    pub(crate) fn new(client_id: &str, user: &str) -> FlappingKey {
        // The number in front makes two different hashes.
        FlappingKey([0_u8, 1].map(|number| Keyed.hash_one((number, client_id, user))))
    }
}

/// Returns the counts of connects for this rule, empty; `None` for a rule with the limit 0, which
/// bans nobody.
pub(crate) fn counted(rule: StrikeRule) -> Option<Flapping> {
    (rule.limit > 0).then(|| Strikes::new(rule, COUNTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_client_is_small_and_differs_from_that_of_each_other_client() {
        assert_eq!(size_of::<FlappingKey>(), 16);
        let long = "c".repeat(65_535);
        let clients =
            [("c", "ann"), ("ca", "nn"), ("", "cann"), ("ann", "c"), (&long, "ann"), (&long, "bob")];
        for (at, (id, user)) in clients.iter().enumerate() {
            let FlappingKey([one, other]) = FlappingKey::new(id, user);
            assert_ne!(one, other);
            for (later, (id, user)) in clients.iter().enumerate().skip(at) {
                assert_eq!(FlappingKey::new(id, user) == FlappingKey([one, other]), at == later);
            }
        }
    }
}
