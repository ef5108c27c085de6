//! The file of bans.
//!
//! ```text
//! # A client id, or a glob of client ids.
//! client test-*
//! user ann until 2027-01-31T12:00:00Z
//! address 192.0.2.0/24
//! # The serial number of a certificate, as `openssl x509 -serial` prints it.
//! serial 0A:1B:2C
//! ```

use super::file_error::{FileError, LineErrors, entries};
use crate::access::bans::{BanEnd, BanList, Banned, GLOBS};
use crate::access::network::{NoNetwork, network};
use std::path::Path;
use x509_cert::der::DateTime;

/// Reads a file of bans.
///
/// # Errors
/// The file cannot be read, or has mistakes: all of them, with their lines.
pub fn load(file: &Path) -> Result<BanList, FileError> {
    parse(file, &FileError::read(file)?)
}

/// Reads the content of a file of bans. `file` is its name in errors.
///
/// # Errors
/// All mistakes, with their lines.
pub fn parse(file: &Path, content: &[u8]) -> Result<BanList, FileError> {
    let (mut errors, mut bans) = (LineErrors::default(), BanList::default());
    for (number, line) in entries(content, &mut errors) {
        match parse_line(line) {
            Ok((Banned::Clients(_), _)) if bans.globs() == GLOBS => {
                errors.push(number, format!("more than {GLOBS} globs of client ids; name the clients"));
            }
            Ok((banned, end)) => bans.add(banned, end),
            Err(what) => errors.push(number, what),
        }
    }
    errors.or(file, bans)
}

const BLANK: [char; 2] = [' ', '\t'];

/// A line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanLine<'a> {
    /// `client`, `user`, `address` or `serial`.
    pub kind: &'a str,
    /// The client id, the user name, the network or the serial number.
    pub value: &'a str,
    /// The end of the ban, in milliseconds since 1970; `None` for no end.
    pub until_ms: BanEnd,
}

impl BanLine<'_> {
    /// Returns a line of a valid file; `None` for a comment and an empty line.
    pub fn of(line: &str) -> Option<BanLine<'_>> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (kind, rest) = line.split_once(BLANK)?;
        let (value, until_ms) = value_and_end(rest.trim()).ok()?;
        Some(BanLine { kind, value, until_ms })
    }
}

fn parse_line(line: &str) -> Result<(Banned, BanEnd), String> {
    let (keyword, rest) = line.split_once(BLANK).unwrap_or((line, ""));
    let (value, end) = value_and_end(rest.trim())?;
    let banned = match keyword {
        "client" | "user" | "address" | "serial" if value.is_empty() => {
            return Err(format!("a value must follow `{keyword}`"));
        }
        "client" => client(value)?,
        "user" => Banned::User(value.into()),
        "address" => banned_network(value)?,
        "serial" => serial(value)?,
        other => {
            return Err(format!(
                "a line begins with `client`, `user`, `address`, `serial` or `#`, not with {other:?}"
            ));
        }
    };
    Ok((banned, end))
}

/// Splits `VALUE until TIME`, or returns a value without an end. The last `until` counts.
fn value_and_end(text: &str) -> Result<(&str, BanEnd), String> {
    let words = text.rmatch_indices("until").map(|(at, word)| (&text[..at], &text[at + word.len()..]));
    let mut split = words.filter(|(value, time)| match value.is_empty() {
        // The value is missing, which is an error. A bare `until` is a value.
        true => time.starts_with(BLANK),
        false => value.ends_with(BLANK) && (time.is_empty() || time.starts_with(BLANK)),
    });
    match split.next() {
        Some((value, time)) => Ok((value.trim_end(), Some(unix_millis(time.trim_start())?))),
        None => Ok((text, None)),
    }
}

/// Returns the milliseconds since 1970.
fn unix_millis(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("the time after `until` must be in UTC, such as 2027-01-31T12:00:00Z, not {text:?}");
    let time: DateTime = text.parse().map_err(|_| wrong())?;
    u64::try_from(time.unix_duration().as_millis()).map_err(|_| wrong())
}

fn client(text: &str) -> Result<Banned, String> {
    if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
        return Ok(Banned::Client(text.into()));
    }
    let glob = text.parse().map_err(|error| format!("the glob {text:?} is not valid: {error}"))?;
    Ok(Banned::Clients(glob))
}

fn banned_network(text: &str) -> Result<Banned, String> {
    network(text).map(Banned::Network).map_err(|why| match why {
        NoNetwork::MappedIpv4 => {
            format!("write the network {text:?} in the form of IPv4, such as 192.0.2.0/24")
        }
        NoNetwork::Unreadable => {
            format!("an address or a network, such as 192.0.2.0/24, must follow `address`, not {text:?}")
        }
    })
}

fn serial(text: &str) -> Result<Banned, String> {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_uppercase()).collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(format!("a serial number is hexadecimal, such as 0A1B2C, not {text:?}"));
    }
    // A certificate has whole bytes, and no zeros before them.
    let digits = digits.trim_start_matches('0');
    let zero = if digits.is_empty() {
        "00"
    } else if digits.len() % 2 == 1 {
        "0"
    } else {
        ""
    };
    Ok(Banned::Serial(format!("{zero}{digits}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::bans::GlobSearch;

    fn bans(text: &str) -> BanList {
        parse(Path::new("bans"), text.as_bytes()).unwrap()
    }

    #[test]
    fn each_kind_of_line_bans_its_clients() {
        let bans = bans(
            "# comment\r\n\n client\ttest-* \nclient pump until 1970-01-01T00:00:01Z\nuser ann lee\n\
             address 192.0.2.0/24\naddress ::ffff:198.51.100.7\naddress 2001:db8::1\nserial 0a:1b\nserial 00ABC\n",
        );
        assert!(
            bans.search_globs(0, "test-1", 0, 1) == GlobSearch::Banned
                && bans.has_client(999, "pump")
                && !bans.has_client(1_000, "pump")
        );
        assert!(bans.has_user(u64::MAX, "ann lee") && !bans.has_user(0, "ann"));
        for address in ["192.0.2.9", "198.51.100.7", "2001:db8::1"] {
            assert!(bans.has_address(0, address.parse().unwrap()), "{address}");
        }
        assert!(bans.has_serial(0, "0A1B") && bans.has_serial(0, "0ABC") && !bans.has_serial(0, "1B"));
        assert_eq!(bans.len(), 8);
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines() {
        let text = "clients x\nuser\nclient [a\naddress 10.0.0/8\naddress ::ffff:10.0.0.0/104\nserial xyz\n\
                    user ann until tomorrow\nuser ann until\nuser ann until 2027-01-31 12:00:00\n\
                    user until 2027-01-31T12:00:00Z\nclient  until 2027-01-31T12:00:00Z\n";
        let error = parse(Path::new("bans"), text.as_bytes()).unwrap_err().to_string();
        let expected = "\
bans:1: a line begins with `client`, `user`, `address`, `serial` or `#`, not with \"clients\"
bans:2: a value must follow `user`
bans:3: the glob \"[a\" is not valid: unclosed character class; missing ']'
bans:4: an address or a network, such as 192.0.2.0/24, must follow `address`, not \"10.0.0/8\"
bans:5: write the network \"::ffff:10.0.0.0/104\" in the form of IPv4, such as 192.0.2.0/24
bans:6: a serial number is hexadecimal, such as 0A1B2C, not \"xyz\"
bans:7: the time after `until` must be in UTC, such as 2027-01-31T12:00:00Z, not \"tomorrow\"
bans:8: the time after `until` must be in UTC, such as 2027-01-31T12:00:00Z, not \"\"
bans:9: the time after `until` must be in UTC, such as 2027-01-31T12:00:00Z, not \"2027-01-31 12:00:00\"
bans:10: a value must follow `user`
bans:11: a value must follow `client`";
        assert_eq!(error, expected);
    }

    #[test]
    fn any_blanks_stand_around_until_and_a_name_may_have_the_word_in_it() {
        let bans = bans(
            "user\tann\tuntil\t1970-01-01T00:00:01Z\nuser bob  until  1970-01-01T00:00:01Z\nuser until\n\
             user wait until then until 1970-01-01T00:00:01Z\nuser until-x\n",
        );
        for user in ["ann", "bob", "wait until then"] {
            assert!(bans.has_user(999, user) && !bans.has_user(1_000, user), "{user}");
        }
        assert!(bans.has_user(u64::MAX, "until") && bans.has_user(u64::MAX, "until-x"));
        assert_eq!(bans.len(), 5);
    }

    #[test]
    fn globs_are_bounded() {
        let text = "client a*\n".repeat(GLOBS + 1);
        let error = parse(Path::new("bans"), text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "bans:257: more than 256 globs of client ids; name the clients");
    }
}
