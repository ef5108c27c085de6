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
pub(crate) struct FlappingKey(pub(super) [u64; 2]);

impl FlappingKey {
    pub(crate) fn new(client_id: &str, user: &str) -> FlappingKey {
        // The number in front makes two different hashes.
        FlappingKey([0_u8, 1].map(|number| Keyed.hash_one((number, client_id, user))))
    }
}

/// Returns the counts of connects for this rule, empty.
pub(crate) fn counted(rule: StrikeRule) -> Flapping {
    Strikes::new(rule, COUNTED)
}
