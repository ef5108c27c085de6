//! A message on its way: from PUBLISH, or from the broker itself, to the outboxes and queues of its
//! receivers.

pub(crate) mod deliver;
pub(crate) mod fan_out;
pub(crate) mod fans;
pub(crate) mod operator_publish;
pub(crate) mod own_messages;
pub(crate) mod own_publications;
pub(crate) mod peer_batches;
pub(crate) mod publish;
pub(crate) mod published;
pub(crate) mod receivers;
pub(crate) mod target;
