//! The ACL file, in mosquitto's format.
//!
//! ```text
//! # Lines before the first `user` are for anonymous clients.
//! topic read public/#
//!
//! user ann
//! topic homes/ann/#
//! topic deny homes/ann/keys
//!
//! # For all clients, wherever the line stands.
//! pattern write pumps/%c/state
//! ```
//!
//! The access is `read`, `write`, `readwrite` or `deny`, and `readwrite` if left out. The access
//! must not be left out before a filter with a space. [`crate::access::permit`] says which rule
//! wins.

use super::file_error::{FileError, LineErrors, lines};
use crate::access::acl::{Acl, AclBuilder};
use crate::access::rule::{Access, RuleFilter};
use std::path::Path;

const BLANK: [char; 2] = [' ', '\t'];

/// Reads and compiles an ACL file.
///
/// # Errors
/// The file cannot be read, or has mistakes: all of them, with their lines.
pub fn load(file: &Path) -> Result<Acl, FileError> {
    parse(file, &FileError::read(file)?)
}

/// Compiles the content of an ACL file. `file` is its name in errors.
///
/// # Errors
/// All mistakes, with their lines.
pub fn parse(file: &Path, content: &[u8]) -> Result<Acl, FileError> {
    let mut errors = LineErrors::default();
    let mut builder = AclBuilder::default();
    let mut user: Option<&str> = None;
    for (number, line) in lines(content, &mut errors) {
        let line = line.trim_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = u32::try_from(number).unwrap_or(u32::MAX);
        match parse_line(line) {
            Ok(AclLine::User(name)) => user = Some(name),
            Ok(AclLine::Topic(access, filter)) => builder.topic(user, access, filter, at),
            Ok(AclLine::Pattern(access, filter)) => builder.pattern(access, filter, at),
            Err(what) => errors.push(number, what),
        }
    }
    errors.or(file, builder.build(&file.to_string_lossy()))
}

enum AclLine<'a> {
    User(&'a str),
    Topic(Access, RuleFilter),
    Pattern(Access, RuleFilter),
}

fn parse_line(line: &str) -> Result<AclLine<'_>, String> {
    let (keyword, rest) = word(line);
    match keyword {
        "user" if rest.is_empty() => Err("a user name must follow `user`".to_owned()),
        "user" => Ok(AclLine::User(rest)),
        "topic" => {
            let (access, text) = access(keyword, rest)?;
            let filter = RuleFilter::topic(text).map_err(|error| refused(text, &error))?;
            Ok(AclLine::Topic(access, filter))
        }
        "pattern" => {
            let (access, text) = access(keyword, rest)?;
            let filter = RuleFilter::pattern(text).map_err(|error| refused(text, &error))?;
            Ok(AclLine::Pattern(access, filter))
        }
        other => Err(format!("a line begins with `user`, `topic`, `pattern` or `#`, not with {other:?}")),
    }
}

fn refused(text: &str, error: &crate::access::rule::RuleError) -> String {
    format!("the filter {text:?} is not valid: {error}")
}

/// Splits off the access. Text without a blank is a filter, even if it reads `deny`.
fn access<'a>(keyword: &str, text: &'a str) -> Result<(Access, &'a str), String> {
    if text.is_empty() {
        return Err(format!("a topic filter must follow `{keyword}`"));
    }
    match word(text) {
        (_, "") => Ok((Access::ReadWrite, text)),
        ("read", filter) => Ok((Access::Read, filter)),
        ("write", filter) => Ok((Access::Write, filter)),
        ("readwrite", filter) => Ok((Access::ReadWrite, filter)),
        ("deny", filter) => Ok((Access::Deny, filter)),
        (other, _) => Err(format!(
            "the access must be read, write, readwrite or deny, not {other:?}; a filter with a space needs it"
        )),
    }
}

/// Returns the first word, and the rest without the blanks between them.
fn word(text: &str) -> (&str, &str) {
    match text.split_once(BLANK) {
        Some((word, rest)) => (word, rest.trim_start_matches(BLANK)),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::rule::ClientNames;

    fn acl(text: &str) -> Acl {
        parse(Path::new("acl"), text.as_bytes()).unwrap()
    }

    fn mistakes(text: &str) -> String {
        parse(Path::new("acl"), text.as_bytes()).unwrap_err().to_string()
    }

    fn access_of(acl: &Acl, user: Option<&str>, topic: &str) -> &'static str {
        let (permit, names) = (acl.permit_of(user), ClientNames::new(user, "c"));
        match (permit.may_read(topic, names), permit.may_write(topic, names)) {
            (false, false) => "none",
            (true, false) => "read",
            (false, true) => "write",
            (true, true) => "both",
        }
    }

    #[test]
    fn lines_before_the_first_user_are_for_anonymous_clients() {
        let acl = acl("topic read public/#\n\nuser ann\ntopic a\ntopic deny public/x\n");
        assert_eq!(access_of(&acl, None, "public/y"), "read");
        assert_eq!(
            (access_of(&acl, Some("ann"), "public/y"), access_of(&acl, Some("ann"), "a")),
            ("none", "both")
        );
        assert_eq!(access_of(&acl, Some("bob"), "a"), "none");
    }

    #[test]
    fn patterns_are_for_all_clients_wherever_they_stand() {
        let acl = acl("user ann\npattern write pumps/%c\nuser bob\npattern read homes/%u/#\n");
        for user in [None, Some("ann"), Some("eve")] {
            assert_eq!(access_of(&acl, user, "pumps/c"), "write");
        }
        assert_eq!(
            (access_of(&acl, Some("eve"), "homes/eve"), access_of(&acl, None, "homes/eve")),
            ("read", "none")
        );
    }

    #[test]
    fn a_user_may_be_continued_later() {
        let acl = acl("user ann\ntopic read a\nuser bob\ntopic b\nuser ann\ntopic read c\n");
        assert_eq!((access_of(&acl, Some("ann"), "a"), access_of(&acl, Some("ann"), "c")), ("read", "read"));
        assert_eq!(access_of(&acl, Some("ann"), "b"), "none");
    }

    #[test]
    fn line_ends_comments_and_blanks_are_as_mosquitto_writes_them() {
        let acl = acl(
            "# comment\r\n  \r\nuser   ann lee \r\n#topic x\r\ntopic  readwrite  a b/# \r\ntopic read\r\n\ttopic\twrite\tt",
        );
        assert_eq!(access_of(&acl, Some("ann lee"), "a b/c"), "both");
        assert_eq!(access_of(&acl, Some("ann lee"), "read"), "both");
        assert_eq!(
            (access_of(&acl, Some("ann lee"), "x"), access_of(&acl, Some("ann lee"), "t")),
            ("none", "write")
        );
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines() {
        let text =
            "user\ntopic\ntopic reed a\ntopic a/#/b\npattern pumps-%c\nusers ann\ntopic read $share/g/a\n";
        let expected = "\
acl:1: a user name must follow `user`
acl:2: a topic filter must follow `topic`
acl:3: the access must be read, write, readwrite or deny, not \"reed\"; a filter with a space needs it
acl:4: the filter \"a/#/b\" is not valid: # is not a whole level or not the last
acl:5: the filter \"pumps-%c\" is not valid: `%u` and `%c` stand for a whole level, between two slashes
acl:6: a line begins with `user`, `topic`, `pattern` or `#`, not with \"users\"
acl:7: the filter \"$share/g/a\" is not valid: a rule for a shared subscription is the rule for its filter: leave \
out `$share/` and the share name";
        assert_eq!(mistakes(text), expected);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load(Path::new("no/such/acl")).unwrap_err().to_string();
        assert!(error.starts_with("no/such/acl: cannot be read: "), "{error}");
    }

    #[test]
    fn an_empty_file_denies_everything() {
        let acl = acl("");
        assert_eq!((access_of(&acl, None, "a"), access_of(&acl, Some("ann"), "a")), ("none", "none"));
    }
}
