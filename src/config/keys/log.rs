//! The keys of `[log]`.

use crate::config::choices::LogFormat;
use crate::config::rule::ValueType;
use crate::config::table::section;
use crate::named_enum::Named;

section! {
    /// The log on standard error.
    [log] Log, scope: Node {
        /// The least severe lines that are written, or directives for single modules. Redeliveries
        /// are at debug.
        level: String = "info".to_owned(),
            ValueType::LogLevel.only(),
            reload: Live,
            elsewhere: "mosquitto `log_type`, EMQX `log.console.level`, FlashMQ `log_level`";
        /// "text" is one line for people, with the fields behind the message. "json" is one object
        /// on a line. "journal" is text for systemd's journal: a priority in place of time and
        /// level. "auto" is "journal" if standard error is the journal, else "text". All go to
        /// standard error.
        format: LogFormat = LogFormat::Auto,
            ValueType::OneOf(LogFormat::NAMES).only(),
            elsewhere: "EMQX `log.console.formatter`";
        /// Connect, refusal and disconnect lines within one second in the whole broker. Further
        /// lines are suppressed, and their number is reported. Lines that the level hides do not
        /// count. A text of a client takes at most 256 characters of a line. If nobody reads
        /// standard error, lines beyond 1 MiB are dropped, counted on `$SYS/broker/log/dropped`
        /// and reported.
        events_per_second: u32 = 100,
            ValueType::Integer(1, 1_000_000).only(),
            reload: Live,
            why: "Many reconnects at once must not also write many lines.";
    }
}
