//! The keys of `[acl]`.

use super::paths::path_of;
use crate::config::rule::ValueType;
use crate::config::table::section;
use crate::config::{DeniedPublish, DeniedSubscribe};
use crate::named_enum::Named;
use std::path::PathBuf;

section! {
    /// The topics that clients may publish to and receive.
    [acl] Acl {
        /// The file with the rules, in the format of mosquitto's `acl_file`. Without a file,
        /// clients may publish and subscribe to everything; but once clients are authenticated,
        /// nobody gets `$homing/clients/#`, `$homing/events/#` and `$dead/#` without a
        /// rule. SIGHUP reads the file again. A file with a mistake changes nothing.
        file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "mosquitto `acl_file`, FlashMQ `mosquitto_acl_file`";
        /// The treatment of a filter of which the client may read no topic. "refuse": SUBACK has
        /// 0x87, or 0x80 in 3.x. "filter": the filter is granted, and nothing is delivered. A
        /// filter of which the client may read a part is granted in both cases, and delivers that
        /// part.
        on_denied_subscribe: DeniedSubscribe = DeniedSubscribe::Refuse,
            ValueType::OneOf(DeniedSubscribe::NAMES).only(),
            why: "A client that waits for messages that never come is hard to find.",
            elsewhere: "mosquitto grants, EMQX `authorization.deny_action`";
        /// The treatment of a PUBLISH to a topic that the client may not write. "drop": the message
        /// is dropped and counted; a 5.0 client gets 0x87 at QoS 1 and 2, and 3.x an
        /// acknowledgement. "disconnect": the client is disconnected, too.
        on_denied_publish: DeniedPublish = DeniedPublish::Drop,
            ValueType::OneOf(DeniedPublish::NAMES).only(),
            why: "3.x has no way to refuse a message, and a client that is disconnected sends it again.",
            elsewhere: "EMQX `authorization.deny_action`";
        /// True if a retained message is kept back from new subscriptions once the ACL file no
        /// longer lets its publisher write to the topic. The message stays retained, and is
        /// delivered again when the rules allow it again. The broker remembers the publisher of
        /// each message that is retained while there is an ACL file. A message that was
        /// retained earlier, came by `$delayed/`, or came from a client whose rules came with a
        /// token or from an HTTP service has no known publisher, and is delivered.
        check_retain_source: bool = true,
            ValueType::Boolean.only(),
            why: "Otherwise what a client left behind outlives the loss of its rights.",
            elsewhere: "mosquitto `check_retain_source`";
    }
}

impl Acl {
    /// Returns the path of the ACL file; `None` without one.
    pub fn path(&self) -> Option<PathBuf> {
        path_of(&self.file)
    }
}
