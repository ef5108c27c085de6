//! Questions and commands of operators to a shard. The shard knows nothing of this module.
//!
//! A question reads the shard through `ShardView` (`shard/view.rs`), and changes nothing. A command
//! changes the shard through `ShardControl` (`shard/control.rs`). Both doors list what operators
//! can reach. The module is as pure as the shard: the time is an argument, and the driver adds what
//! only the sockets know.
//!
//! | file | concern |
//! |---|---|
//! | [`query`] | the questions about one shard, and their answers |
//! | [`budget`] | the work that one question may do, and the length of its answer |
//! | [`session_rows`] | sessions in an answer |
//! | [`session_order`] | sessions in an order that all shards share |
//! | [`redelivery`] | the redelivery settings of one session, with their sources |
//! | [`unfinished`] | the unfinished messages of one session, page by page |
//! | [`whereabouts`] | the messages that wait, in windows and queues |
//! | [`message_search`] | the search for messages in all shards and in the store |
//! | [`stored`] | messages that are in the store alone |
//! | [`wait_reason`] | why a message waits, and when the wait ends |
//! | [`wanted`] | the messages that an operator looks for |
//! | `message_summary` | a message in an answer |
//! | [`receivers`] | the receivers of a topic |
//! | `by_filter` | the sessions with a filter, and the shared groups |
//! | `dropped` | the last dropped messages |
//! | [`letters`] | the stored dead letters, page by page |
//! | [`longest_wait`] | the clients that have waited longest for an acknowledgement |
//! | [`command`] | a command to one shard, and its result |
//! | [`client_commands`] | commands about one client |
//! | [`message_commands`] | commands about messages that no session has |
//! | [`publish_command`] | the command to publish a message |
//! | [`bridge_command`] | what bridges and sinks need of their sessions |
//! | [`bulk_commands`] | commands about many connections, dead letters or messages |

pub mod bridge_command;
pub mod budget;
pub mod bulk_commands;
mod by_filter;
pub mod client_commands;
pub mod command;
pub mod dropped;
pub mod letters;
pub mod longest_wait;
pub mod message_commands;
pub mod message_search;
mod message_summary;
pub mod publish_command;
pub mod query;
pub mod receivers;
pub mod redelivery;
pub mod session_order;
pub mod session_rows;
pub mod stored;
pub mod unfinished;
pub mod wait_reason;
pub mod wanted;
pub mod whereabouts;
