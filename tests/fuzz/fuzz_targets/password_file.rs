//! Any bytes as a password file: read, changed by `homing passwd`, and read again.
#![no_main]

use homing::auth::passwd::edit::PasswordLines;
use homing::auth::password::PasswordFile;
use homing::auth::password::hash::PasswordHash;
use std::path::Path;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let file = Path::new("passwd");
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(hash) = PasswordHash::parse(text)
    {
        let again = PasswordHash::parse(&hash.to_text()).expect("a written hash is read again");
        assert_eq!(again.to_text(), hash.to_text());
    }
    let Ok(users) = PasswordFile::parse(file, input) else { return };
    let mut lines = PasswordLines::parse(file, input).expect("a valid file is text");
    let same = PasswordFile::parse(file, lines.to_text().as_bytes()).expect("it is still valid");
    assert_eq!(same.users(), users.users());
    let hash = PasswordHash::parse("$6$AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==");
    let is_new = lines.set("fuzz", &hash.expect("a hash"));
    let more = PasswordFile::parse(file, lines.to_text().as_bytes()).expect("it is still valid");
    assert_eq!(more.users(), users.users() + usize::from(is_new));
});
