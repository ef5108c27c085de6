//! The user name and password of all clients of a run. The command line has no password, because
//! other users of the machine can see it.

use super::args::Common;
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

impl LoadCredentials {
    /// Returns the user name of the arguments with the password of the file, else of the
    /// environment. Returns `None` without a user name.
    ///
    /// # Errors
    /// The password cannot be read, or is too long.
    pub(super) fn of(common: &Common) -> Result<Option<LoadCredentials>, Refused> {
        let Some(user) = common.user.clone() else { return Ok(None) };
        let password = match &common.password_file {
            Some(file) => first_line(file)?,
            None => match std::env::var(VARIABLE) {
                Ok(password) => Zeroizing::new(password),
                Err(std::env::VarError::NotPresent) => Zeroizing::default(),
                Err(std::env::VarError::NotUnicode(_)) => {
                    return Err(Refused(format!("the password in {VARIABLE} is not UTF-8")));
                }
            },
        };
        Ok(Some(LoadCredentials { user, password }))
    }
}

fn first_line(file: &Path) -> Result<Zeroizing<String>, Refused> {
    let refused = |why: &str| Refused(format!("--password-file {}: {why}", file.display()));
    let unreadable = |error: std::io::Error| refused(&format!("cannot be read: {error}"));
    let mut text = Zeroizing::new(String::new());
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(PASSWORD_MAX + 3).read_to_string(&mut text).map_err(unreadable)?;
    let line = text.lines().next().ok_or_else(|| refused("is empty; its first line is the password"))?;
    if line.len() as u64 > PASSWORD_MAX {
        return Err(refused("the password has more than 65535 bytes"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}
