//! The time of a refusal must not tell which user names are known.

use crate::support::process::Homing;
use crate::support::{Connect, RawClient, V5, now};
use crate::{by_build, median, turn};
use homing::auth::password::hash::PasswordHash;
use homing::auth::password::pbkdf2::Pbkdf2Hash;
use std::io::Write;

const LOGINS: usize = by_build(200, 1_000);

/// The difference of the medians, at most. 5 % are promised, and the rest is for the machine.
const DIFFERENCE: f64 = if cfg!(debug_assertions) { 0.5 } else { 0.1 };

#[test]
fn an_unknown_name_is_refused_after_the_same_time_as_a_wrong_password() {
    let _turn = turn();
    let hash = Pbkdf2Hash::create(b"right", 1_000, &[7; 12]);
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    writeln!(file, "ann:{}", PasswordHash::Pbkdf2(hash).to_text()).expect("a writable file");
    let passwords = format!("auth.password_file={}", file.path().display());
    let homing = Homing::serve(&["--ephemeral", "--log-level", "error", "--set", &passwords]);
    let refused_after = |user: &str| {
        let mut client = RawClient::open(homing.address, V5);
        let connect = Connect::new(V5, "c").user_name(user).password(b"wrong").encode();
        let sent = now();
        client.send(&connect);
        assert_eq!(client.expect_connack().code, 0x87);
        sent.elapsed().as_secs_f64() * 1e6
    };
    // One after the other, so that both meet the same machine.
    let times = (0..LOGINS).map(|n| (refused_after(&format!("nobody{n}")), refused_after("ann")));
    let (unknown, wrong): (Vec<f64>, Vec<f64>) = times.unzip();
    let (unknown, wrong) = (median(unknown), median(wrong));
    println!("{LOGINS} logins each: an unknown name {unknown:.0} us, a wrong password {wrong:.0} us");
    assert!((unknown / wrong - 1.0).abs() < DIFFERENCE, "{unknown} us, {wrong} us");
}
