//! HTTP services that get messages.

use crate::config::rule::ValueType;
use crate::config::sink::{self, Sink};
use crate::config::table::section;

section! {
    /// HTTP services that get messages by POST, 1,000 at most. A sink is a session of this broker,
    /// with the client identifier `$sink/NAME`, whose client is the broker itself. So messages wait
    /// in its queue while the service is away, within `queue_messages` and `queue_bytes` of the sink.
    /// docs/sinks.md describes the keys, and what is guaranteed.
    ///
    /// `name`, `url` and `filters` are needed. Other keys: `headers`, `header_files`, `qos`,
    /// `format`, `in_flight`, `batch_messages`, `batch_bytes`, `batch_wait`, `timeout`, `backoff`,
    /// `max_backoff`, `ca`, `certificate`, `key`, `session_expiry`, `queue_messages`,
    /// `queue_bytes`, `acl_user`.
    ///
    /// A reload begins new sinks, ends those that are gone, and begins changed ones anew with their
    /// session. The session of a sink that is gone stays until its `session_expiry`.
    [[sinks]] Sink, ValueType::Tables("sinks", sink::problems).only(), reload: Live,
    example: "[[sinks]]\n\
              name = \"measurements\"\n\
              url = \"https://data.example/mqtt\"\n\
              filters = [\"sensors/#\"]\n\
              header_files = { Authorization = \"/etc/homing/data.token\" }\n\
              batch_messages = 500\n";
}
