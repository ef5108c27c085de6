//! One log line: as text with logfmt fields, as a JSON object, or for systemd's journal.
//!
//! No value can break a line or write on a terminal: [`escape`] has the characters that are
//! escaped. A value takes at most `LONGEST` characters.

use crate::escape::{self, is_harmful};
#[cfg(feature = "otlp")]
use crate::log::tap;
use serde_json::{Map, Value};
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Maximum number of characters of one value. Texts of clients are shortened to 256 before.
const LONGEST: usize = 4_096;

/// The event code of a line that has none: a line of a library.
const FOREIGN: &str = "library";

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// Time, level, target and message, then the fields in logfmt.
    Text,
    /// One object.
    Json,
    /// As text, with the priority of syslog in place of time and level: the journal adds the time.
    Journal,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = LineFields::default();
        event.record(&mut line);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        #[cfg(feature = "otlp")]
        if tap::takes_lines() {
            tap::pending().push(line.to_tapped(level, target));
        }
        match self {
            LineFormat::Text => {
                SystemTime.format_time(&mut out)?;
                let name = level.as_str();
                match out.has_ansi_escapes() {
                    true => write!(out, " \x1b[{}m{name:>5}\x1b[0m {target}: ", colour(level))?,
                    false => write!(out, " {name:>5} {target}: ")?,
                }
                line.write_text(&mut out)
            }
            LineFormat::Journal => {
                write!(out, "<{}>{target}: ", priority(level))?;
                line.write_text(&mut out)
            }
            LineFormat::Json => {
                let mut time = String::new();
                SystemTime.format_time(&mut Writer::new(&mut time))?;
                writeln!(out, "{}", escape::json(&line.into_json(time, level, target).to_string()))
            }
        }
    }
}

/// Returns the priority of syslog: 3 error, 4 warning, 6 information, 7 debug.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        _ => 34,
    }
}

/// The values of one event.
#[derive(Default)]
struct LineFields {
    code: Option<String>,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl LineFields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = shortened(text),
            ("event", Value::String(text)) => self.code = Some(text),
            (name, Value::String(text)) => self.fields.push((name, shortened(text).into())),
            (name, value) => self.fields.push((name, value)),
        }
    }

    /// Returns a copy for the export by OTLP.
    #[cfg(feature = "otlp")]
    fn to_tapped(&self, level: Level, target: &'static str) -> tap::TappedLine {
        tap::TappedLine {
            unix_ms: crate::clock::unix_millis(),
            level,
            target,
            event: self.code.as_deref().unwrap_or(FOREIGN).to_owned(),
            message: self.message.clone(),
            fields: self.fields.clone(),
        }
    }

    fn write_text(&self, out: &mut impl Write) -> fmt::Result {
        self.message.chars().try_for_each(|c| escape::put(out, c))?;
        write!(out, " event={}", self.code.as_deref().unwrap_or(FOREIGN))?;
        for (name, value) in &self.fields {
            write!(out, " {name}=")?;
            match value {
                Value::String(text) => put_value(out, text)?,
                other => write!(out, "{other}")?,
            }
        }
        out.write_char('\n')
    }

    fn into_json(self, time: String, level: Level, target: &str) -> Value {
        let code = self.code.unwrap_or_else(|| FOREIGN.to_owned());
        let mut object: Map<String, Value> =
            self.fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let head = [("time", time.as_str()), ("level", level.as_str()), ("target", target)];
        object.extend(head.map(|(name, value)| (name.to_owned(), value.into())));
        object.insert("event".to_owned(), code.into());
        object.insert("message".to_owned(), self.message.into());
        Value::Object(object)
    }
}

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

/// Returns the text, cut behind `LONGEST` characters.
fn shortened(mut text: String) -> String {
    if let Some((at, _)) = text.char_indices().nth(LONGEST) {
        let bytes = text.len();
        text.truncate(at);
        // Writing to a string cannot fail.
        let _ = write!(text, "... ({bytes} bytes)");
    }
    text
}

/// Writes a value of logfmt: in quotes if it is empty or has a space, a quote or an equals sign.
fn put_value(out: &mut impl Write, text: &str) -> fmt::Result {
    let needs_quotes = |c: char| c.is_whitespace() || is_harmful(c) || matches!(c, '"' | '=');
    if !text.is_empty() && !text.contains(needs_quotes) {
        return out.write_str(text);
    }
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(out, "\\{c}")?,
            c => escape::put(out, c)?,
        }
    }
    out.write_char('"')
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing::{error, info, warn};

    /// A page that collects the lines of a test.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines that `log` writes in this form, at this level and above.
    pub(crate) fn written(form: LineFormat, most: Level, log: impl FnOnce()) -> String {
        let page = Page::default();
        let lines = Arc::clone(&page.0);
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(most);
        let subscriber = subscriber.event_format(form).with_writer(move || page.clone()).finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn one_line() {
        let client_id = "pump 7\n<6>forged\u{202e}\"";
        warn!(event = "test.line", client_id, %client_id, count = 3, late = true, ratio = 0.5, empty = "", "it\nis {}", "so");
    }

    #[test]
    fn text_ends_in_logfmt_and_no_value_breaks_the_line() {
        let text = written(LineFormat::Text, Level::INFO, one_line);
        let (head, rest) = text.split_once("Z  WARN ").unwrap();
        assert_eq!(head.len(), "2026-11-22T23:54:07.123456".len());
        let value = r#""pump 7\n<6>forged\u{202e}\"""#;
        let target = module_path!();
        let line = format!(
            "{target}: it\\nis so event=test.line client_id={value} client_id={value} count=3 late=true ratio=0.5 empty=\"\"\n"
        );
        assert_eq!(rest, line);
    }

    #[test]
    fn the_journal_gets_a_priority_and_no_time() {
        let text = written(LineFormat::Journal, Level::DEBUG, || {
            error!(event = "test.a", "a");
            warn!(event = "test.b", "b");
            info!(event = "test.c", x = "y", "c");
            tracing::debug!("d");
        });
        let target = module_path!();
        let line = |priority: u8, rest: &str| format!("<{priority}>{target}: {rest}\n");
        let lines = [
            line(3, "a event=test.a"),
            line(4, "b event=test.b"),
            line(6, "c event=test.c x=y"),
            line(7, "d event=library"),
        ];
        assert_eq!(text, lines.concat());
    }

    #[test]
    fn json_has_time_level_target_event_and_message_beside_the_fields() {
        let text = written(LineFormat::Json, Level::INFO, one_line);
        assert_eq!(text.lines().count(), 1);
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["level"], &line["event"]), (&"WARN".into(), &"test.line".into()));
        assert_eq!((&line["message"], &line["target"]), (&"it\nis so".into(), &module_path!().into()));
        assert_eq!((&line["count"], &line["late"], &line["ratio"]), (&3.into(), &true.into(), &0.5.into()));
        assert_eq!(line["client_id"], "pump 7\n<6>forged\u{202e}\"");
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
    }

    #[test]
    fn a_value_has_a_bounded_length() {
        let long = "é".repeat(LONGEST + 1);
        let text = written(LineFormat::Text, Level::INFO, || info!(event = "test.long", long, "{long}"));
        assert!(text.chars().count() < 2 * LONGEST + 200);
        assert_eq!(text.matches("... (8194 bytes)").count(), 2);
    }
}
