//! The keys of `[bans]`.

use super::paths::path_of;
use crate::access::strikes::StrikeRule;
use crate::config::count_in;
use crate::config::rule::ValueType;
use crate::config::table::section;
use std::path::PathBuf;

section! {
    /// Clients that may not enter.
    [bans] Bans {
        /// The file with the bans: lines `client GLOB`, `user NAME`, `address NETWORK` and
        /// `serial HEX`, each with ` until 2027-01-31T12:00:00Z` behind it if the ban has an end. A
        /// banned client gets 0x8A, and 5 in 3.x. A banned user gets it only with the right
        /// credentials. SIGHUP reads the file again and disconnects clients that are banned now
        /// (5.0: 0x98). A file with a mistake changes nothing.
        file: String = String::new(),
            ValueType::Path.or("off", "no file"),
            elsewhere: "EMQX `banned`";
        /// Connects of one client within a time, after which it is banned: "15 in 1m for 5m". The
        /// 15th connect is accepted; further ones get 0x8A, and 5 in 3.x, for five minutes. A
        /// client is a client id with an authenticated user, so nobody else can get it banned.
        /// Clients without one are not counted. Disconnects for an overdue acknowledgement do not
        /// count.
        flapping: StrikeRule = StrikeRule::default(),
            ValueType::Checked(count_in::is_rule, count_in::WORDS).or("off", "connects are not counted"),
            reload: Live,
            why: "A bad network makes clients reconnect, too.",
            elsewhere: "EMQX `flapping_detect`";
    }
}

impl Bans {
    /// Returns the path of the file of bans; `None` without one.
    pub fn path(&self) -> Option<PathBuf> {
        path_of(&self.file)
    }
}
