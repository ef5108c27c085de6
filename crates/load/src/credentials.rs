//! The user names and passwords of the clients of a run. The command line has no password, because
//! other users of the machine can see it.

use super::args::ClientArguments;
use super::refused::Refused;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use zeroize::Zeroizing;

/// The environment variable with the password.
const VARIABLE: &str = "HOMING_LOAD_PASSWORD";
/// Longest password in bytes (MQTT: Binary Data).
const PASSWORD_MAX: u64 = 65_535;
/// Largest users file in bytes: a million lines of 64 bytes.
const USERS_MAX: u64 = 64 << 20;

/// A user name and its password.
#[derive(Clone)]
pub(super) struct LoadCredentials {
    pub user: String,
    /// The password; empty for none.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for LoadCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The credentials of all clients. Client n has the nth one; after the last one comes the first
/// again.
#[derive(Debug)]
pub(super) struct LoadUsers(Vec<LoadCredentials>);

impl LoadUsers {
    /// Returns the users of the file, or the one user name of the arguments with the password of
    /// its file, else of the environment. Without either, no client has a user name.
    ///
    /// # Errors
    /// A file cannot be read, or a password is too long.
    pub(super) fn of(arguments: &ClientArguments) -> Result<LoadUsers, Refused> {
        if let Some(file) = &arguments.users {
            return from_file(file).map(LoadUsers);
        }
        let Some(user) = arguments.user.clone() else { return Ok(LoadUsers(Vec::new())) };
        let password = match &arguments.password_file {
            Some(file) => first_line(file)?,
            None => match std::env::var(VARIABLE) {
                Ok(password) => Zeroizing::new(password),
                Err(std::env::VarError::NotPresent) => Zeroizing::default(),
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(Refused(format!("the password in {VARIABLE} is not UTF-8")));
                }
            },
        };
        Ok(LoadUsers(vec![LoadCredentials { user, password }]))
    }

    /// Returns the credentials of a client; `None` without users.
    pub(super) fn of_client(&self, number: u32) -> Option<&LoadCredentials> {
        self.0.get((number as usize).checked_rem(self.0.len())?)
    }
}

fn first_line(file: &Path) -> Result<Zeroizing<String>, Refused> {
    let refused = |why: &str| Refused(format!("--password-file {}: {why}", file.display()));
    let text = read(file, PASSWORD_MAX + 3, &refused)?;
    let line = text.lines().next().ok_or_else(|| refused("is empty; its first line is the password"))?;
    if line.len() as u64 > PASSWORD_MAX {
        return Err(refused("the password has more than 65535 bytes"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Reads a file with a line `NAME:PASSWORD` for each user. Empty lines are left out.
fn from_file(file: &Path) -> Result<Vec<LoadCredentials>, Refused> {
    let refused = |why: &str| Refused(format!("--users {}: {why}", file.display()));
    let text = read(file, USERS_MAX + 1, &refused)?;
    if text.len() as u64 > USERS_MAX {
        return Err(refused("has more than 64 MiB"));
    }
    let mut users = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let number = index + 1;
        // The line is not shown, because it may be a password.
        let (user, password) = line
            .split_once(':')
            .filter(|(user, _)| !user.is_empty())
            .ok_or_else(|| refused(&format!("line {number} is not NAME:PASSWORD")))?;
        if user.len().max(password.len()) as u64 > PASSWORD_MAX {
            return Err(refused(&format!("line {number}: a name or password has more than 65535 bytes")));
        }
        users.push(LoadCredentials { user: user.to_owned(), password: Zeroizing::new(password.to_owned()) });
    }
    if users.is_empty() {
        return Err(refused("is empty; it has a line NAME:PASSWORD for each user"));
    }
    Ok(users)
}

/// Reads at most `limit` bytes of a file.
fn read(file: &Path, limit: u64, refused: &impl Fn(&str) -> Refused) -> Result<Zeroizing<String>, Refused> {
    let unreadable = |error: std::io::Error| refused(&format!("cannot be read: {error}"));
    let mut text = Zeroizing::new(String::new());
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(limit).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(text: &str) -> Result<LoadUsers, Refused> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        std::fs::write(&file, text).unwrap();
        from_file(&file).map(LoadUsers)
    }

    #[test]
    fn clients_take_the_lines_in_turn() {
        let users = users("ann:a:b\n\nbob:\r\n").unwrap();
        let of =
            |number| users.of_client(number).map(|one| (one.user.as_str(), one.password.as_str())).unwrap();
        assert_eq!([of(0), of(1), of(2)], [("ann", "a:b"), ("bob", ""), ("ann", "a:b")]);
        assert!(LoadUsers(Vec::new()).of_client(3).is_none());
    }

    #[test]
    fn a_bad_line_is_told_by_its_number_and_not_shown() {
        for (text, has) in
            [("ann:a\nsecret\n", "line 2 is not"), (":x", "line 1 is not"), ("\n\n", "is empty")]
        {
            let refused = users(text).unwrap_err().0;
            assert!(refused.contains(has) && !refused.contains("secret"), "{refused}");
        }
    }
}
