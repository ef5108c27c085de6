//! The sending half of a session: the queue, the in-flight window, and when a message is sent
//! again.
//!
//! | file | concern |
//! |---|---|
//! | `queue` | messages that wait for a place in the window; bounds and policy |
//! | `delivery` | a message with the fields that its delivery to one session adds |
//! | `outgoing` | a new message, and its way into an outbox |
//! | `on_demand` | a part of a session that takes memory only from its first use on |
//! | `window` | the in-flight window: Packet Identifiers, PUBLISH and PUBREL in their orders |
//! | `withheld` | Packet Identifiers of dropped messages that their receiver may still hold |
//! | `expiry_times` | when the messages of a queue expire |
//! | `portion` | removes some items of a long row, a portion at a time |
//! | `paged_out` | queued entries whose messages are in the store alone; pages of them |
//! | `in_flight_packet` | one packet of the window: PUBLISH or PUBREL |
//! | `transmission` | how often and when one packet was sent, and when it is due |
//! | `sender` | from the queue through the window to the connection |
//! | `retransmission` | what is sent again on a live 3.x connection |
//! | `retry` | retry interval, backoff, jitter, ack timeout |
//! | `overdue` | overdue acknowledgements of a 5.0 connection |
//! | `one_message` | one unfinished message: where it is, and its removal |
//! | `stall` | one packet without its acknowledgement, and who holds it |

pub mod delivery;
mod expiry_times;
pub mod in_flight_packet;
pub mod on_demand;
pub mod one_message;
pub mod outgoing;
pub mod overdue;
pub mod paged_out;
pub mod portion;
pub mod queue;
pub mod retransmission;
pub mod retry;
pub mod sender;
pub mod stall;
pub mod transmission;
pub mod window;
pub mod withheld;
