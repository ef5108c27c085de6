//! Password files.

use homing::auth::password::hash::PasswordHash;
use homing::auth::password::pbkdf2::Pbkdf2Hash;

/// Returns the text of a password file with these users and passwords. Its hashes are quick to
/// check.
pub fn password_file(users: &[(&str, &str)]) -> String {
    let line = |(user, password): &(&str, &str)| {
        let hash = Pbkdf2Hash::create(password.as_bytes(), 101, &[7; 12]);
        format!("{user}:{}\n", PasswordHash::Pbkdf2(hash).to_text())
    };
    users.iter().map(line).collect()
}
