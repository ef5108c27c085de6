//! Bridges to other brokers.

use crate::config::bridge::{self, Bridge};
use crate::config::rule::ValueType;
use crate::config::table::section;

section! {
    /// Bridges to other brokers, 1,000 at most. A bridge is a session of this broker, with the
    /// client identifier `$bridge/NAME`, whose connection the broker itself makes. So messages for
    /// the other broker wait in its queue while that one is away, within `limits.queue_messages` and
    /// `limits.queue_bytes`. docs/bridges.md describes the keys, and what is guaranteed.
    ///
    /// `name`, `addresses` and at least one `[[bridges.topics]]` with `direction` and `filter` are
    /// needed. Other keys of a bridge: `balance`, `client_id`, `version`, `user`, `password_file`,
    /// `ca`, `certificate`, `key`, `server_name`, `alpn`, `keep_alive`, `session_expiry`,
    /// `clean_start`, `in_flight`, `queue_messages`, `queue_bytes`, `max_packet_size`,
    /// `connect_timeout`, `ack_timeout`, `connect`, `idle_timeout`, `backoff`, `max_backoff`,
    /// `acl_user`, `bridge_bit`, `notifications`, `notification_topic`. Other keys of a topic: `qos`, `local_prefix`,
    /// `remote_prefix`, `retain`. The first topic that matches a message names it at the other side.
    ///
    /// A reload begins new bridges, ends those that are gone, and connects changed ones again. The
    /// session of a bridge that is gone stays until its `session_expiry`.
    [[bridges]] Bridge, ValueType::Tables("bridges", bridge::problems).only(), reload: Live,
    example: "[[bridges]]\n\
              name = \"plant-to-cloud\"\n\
              addresses = [\"tls://cloud.example:8883\", \"tls://cloud2.example:8883\"]\n\
              user = \"plant-7\"\n\
              password_file = \"/etc/homing/cloud.secret\"\n\
              ca = \"/etc/ssl/cloud-ca.pem\"\n\
              \n\
              [[bridges.topics]]\n\
              direction = \"out\"\n\
              filter = \"sensors/#\"\n\
              remote_prefix = \"plant-7/\"\n\
              \n\
              [[bridges.topics]]\n\
              direction = \"in\"\n\
              filter = \"orders/#\"\n\
              qos = 2\n\
              remote_prefix = \"plant-7/\"\n";
}
