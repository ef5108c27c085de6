//! `homing passwd`: makes and changes a password file, as `mosquitto_passwd` does.
//!
//! - [`edit`]: the lines of the file.
//! - [`secret`]: the password, from a terminal, a pipe, an argument or the system's randomness.

pub mod edit;
pub mod secret;

use super::file_error::FileError;
use super::password::argon2::Argon2Hash;
use super::password::hash::{HashKind, PasswordHash};
use super::password::pbkdf2::Pbkdf2Hash;
use super::password::scram::ScramHash;
use super::password::{PasswordFile, Verdict};
use super::random::{NoRandomness, random};
use super::replacement::{Replacement, ReplacementError};
use crate::named_enum::named_enum;
use clap::{Args, ValueEnum};
use edit::PasswordLines;
use secret::SecretSource;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// mosquitto 2.1 takes as many, and mosquitto 2.0 reads them.
const PBKDF2_ITERATIONS: u32 = 1_000;
/// mosquitto 2.0.11 refuses every other length.
const PBKDF2_SALT: usize = 12;
const SALT: usize = 16;

/// Flags of `homing passwd`.
#[derive(Args, Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "these are the flags of a command line")]
#[command(after_help = EXAMPLES)]
pub struct PasswdArguments {
    /// Create the file; an existing file is emptied first
    #[arg(short = 'c', conflicts_with_all = ["delete", "upgrade", "check"])]
    create: bool,
    /// Take the password from the command line, where other users of the machine can see it
    #[arg(short = 'b', conflicts_with_all = ["stdin", "device", "delete", "upgrade"])]
    batch: bool,
    /// Delete the user
    #[arg(short = 'D', conflicts_with_all = ["upgrade", "check"])]
    delete: bool,
    /// Hash the plain passwords of the file; hashed ones stay as they are
    #[arg(short = 'U', conflicts_with = "check")]
    upgrade: bool,
    /// Kind of hash
    #[arg(short = 'H', value_name = "HASH", value_enum)]
    hash: Option<HashChoice>,
    /// Iterations of pbkdf2 [default: 1000]
    #[arg(short = 'I', value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    iterations: Option<u32>,
    /// Check that the broker accepts the file, or with USER that the password is right; change
    /// nothing
    #[arg(long, conflicts_with = "device")]
    check: bool,
    /// Read the password from the first line of standard input
    #[arg(long)]
    stdin: bool,
    /// Make a random secret for a device, store it as scram, and print it
    #[arg(long, conflicts_with_all = ["stdin", "delete", "upgrade", "hash"])]
    device: bool,
    /// The password file
    file: PathBuf,
    /// The user name
    user: Option<String>,
    /// The password, only with -b
    password: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  homing passwd -c /etc/homing/passwd ann      create the file with the user ann; asks for the password
  homing passwd /etc/homing/passwd bob         add bob, or change the password of bob
  homing passwd --device /etc/homing/passwd pump-7 > pump-7.secret
  homing passwd -D /etc/homing/passwd bob      delete bob
  homing passwd --check /etc/homing/passwd     check the file
  homing passwd -H pbkdf2 FILE USER            a hash that mosquitto 2.0 reads, too";

/// The last line after each change. The line goes to standard error, because standard output may
/// have a secret and nothing else.
const EFFECTIVE: &str = "a running broker uses it after `homing ctl reload`; `homing ctl users` changes the file and the broker at once";

named_enum! {
    /// Kinds of hash that the command writes.
    #[derive(Default, ValueEnum)]
    pub enum HashChoice {
        /// For people: slow to guess. 20 ms for each login
        #[default]
        Argon2id = "argon2id",
        /// As mosquitto 2.x writes it. 0.4 ms for each login
        #[value(alias = "sha512-pbkdf2")]
        Pbkdf2 = "pbkdf2",
        /// For random secrets, and for clients that log in by SCRAM-SHA-256. 0.4 ms for each login
        #[value(alias = "scram-sha-256")]
        Scram = "scram",
    }
}

/// The output of the command.
#[derive(Debug, Default)]
pub struct Report {
    /// Lines for standard output.
    pub lines: Vec<String>,
    /// Lines for standard error.
    pub warnings: Vec<String>,
    /// False if a check failed.
    pub is_sound: bool,
}

/// The reason why the command changed nothing.
#[derive(Debug, Error)]
pub enum PasswdError {
    /// The arguments do not go together.
    #[error("{0}")]
    Arguments(&'static str),
    /// The user name is not possible in a file.
    #[error(
        "the user name {0:?} is not possible: it must not be empty, begin with #, begin or end with a blank, or have a colon or a control character"
    )]
    UserName(String),
    /// The password cannot be stored.
    #[error("{0}")]
    Password(&'static str),
    /// The password cannot be read.
    #[error("the password cannot be read: {0}; without a terminal, use --stdin")]
    Terminal(io::Error),
    /// There is no such user.
    #[error("{}: no user {user:?}", .file.display())]
    NoSuchUser {
        /// The password file.
        file: PathBuf,
        /// The name.
        user: String,
    },
    /// The file does not exist.
    #[error("{} does not exist; -c creates it", .0.display())]
    NoSuchFile(PathBuf),
    /// The file cannot be replaced.
    #[error(transparent)]
    File(#[from] ReplacementError),
    /// There is no salt, or no secret for a device.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    /// The content is not text.
    #[error(transparent)]
    Content(#[from] FileError),
}

/// Carries out the command. Asks for a password on the terminal where no argument gives it.
///
/// # Errors
/// Nothing was changed, for the reason in the error.
pub fn run(arguments: &PasswdArguments) -> Result<Report, PasswdError> {
    arguments.validate()?;
    match &arguments.user {
        None if arguments.check => Ok(check_file(&arguments.file)),
        Some(user) if arguments.check => check_password(arguments, user),
        None => hash_plain_passwords(arguments),
        Some(user) if arguments.delete => delete_user(&arguments.file, user),
        Some(user) => set_password(arguments, user),
    }
}

impl PasswdArguments {
    fn validate(&self) -> Result<(), PasswdError> {
        let refuse = |rule| Err(PasswdError::Arguments(rule));
        match (&self.user, &self.password) {
            (Some(_), _) if self.upgrade => return refuse("-U hashes the whole file, so no user follows it"),
            (None, _) if !self.upgrade && !self.check => return refuse("a user name must follow the file"),
            (_, None) if self.batch => return refuse("with -b the password must follow the user name"),
            (_, Some(_)) if !self.batch => {
                return refuse("a password on the command line needs -b; better: --stdin, or let it ask");
            }
            (None, _) if self.stdin || self.device => return refuse("a user name must follow the file"),
            _ => {}
        }
        if self.iterations.is_some() && self.hash != Some(HashChoice::Pbkdf2) {
            return refuse("-I is the number of iterations of -H pbkdf2");
        }
        if let Some(user) = &self.user
            && !is_user_name(user)
        {
            return Err(PasswdError::UserName(user.clone()));
        }
        Ok(())
    }

    fn secret_source(&self) -> SecretSource<'_> {
        match (&self.password, self.stdin, self.device) {
            (Some(password), ..) => SecretSource::Argument(password),
            (None, true, _) => SecretSource::Stdin,
            (None, false, true) => SecretSource::Random,
            (None, false, false) => SecretSource::Terminal,
        }
    }

    fn hash_choice(&self) -> HashChoice {
        self.hash.unwrap_or(if self.device { HashChoice::Scram } else { HashChoice::Argon2id })
    }

    /// Hashes a password with a random salt.
    fn hash(&self, password: &str) -> Result<PasswordHash, PasswdError> {
        hash_as(self.hash_choice(), self.iterations, password)
    }
}

/// Returns the hash of a password with a random salt. `iterations` are those of pbkdf2; `None` for
/// the usual ones. Takes 20 ms for argon2id.
///
/// # Errors
/// The password cannot be stored so, or the system has no randomness.
pub fn hash_as(
    choice: HashChoice,
    iterations: Option<u32>,
    password: &str,
) -> Result<PasswordHash, PasswdError> {
    secret::check(password)?;
    let bytes = password.as_bytes();
    match choice {
        HashChoice::Argon2id => hash_for_people(password),
        HashChoice::Pbkdf2 => {
            let iterations = iterations.unwrap_or(PBKDF2_ITERATIONS);
            let salt = random::<PBKDF2_SALT>()?;
            Ok(PasswordHash::Pbkdf2(Pbkdf2Hash::create(bytes, iterations, salt.as_slice())))
        }
        HashChoice::Scram if !password.is_ascii() => Err(PasswdError::Password(
            "scram needs a password of ASCII characters, because clients change others before they hash them; \
             take another password, or -H argon2id",
        )),
        HashChoice::Scram => Ok(PasswordHash::Scram(ScramHash::create(bytes, random::<SALT>()?.as_slice()))),
    }
}

/// Returns the hash of a password that a person chose: slow to guess, with a random salt. Takes 20
/// ms.
///
/// # Errors
/// The system has no randomness.
pub fn hash_for_people(password: &str) -> Result<PasswordHash, PasswdError> {
    Argon2Hash::create(password.as_bytes(), random::<SALT>()?.as_slice())
        .map(PasswordHash::Argon2)
        .map_err(|_| PasswdError::Password("argon2 cannot hash this password"))
}

/// Returns true for a name that means the same user when the file is read again.
pub fn is_user_name(user: &str) -> bool {
    let is_allowed = |c: char| c != ':' && !c.is_control();
    !user.is_empty() && user.trim() == user && !user.starts_with('#') && user.chars().all(is_allowed)
}

fn set_password(arguments: &PasswdArguments, user: &str) -> Result<Report, PasswdError> {
    // The terminal is asked before the lock is taken.
    let password = secret::read(arguments.secret_source(), secret::Repeat::Twice)?;
    let hash = arguments.hash(&password)?;
    let file = &arguments.file;
    let replacement = Replacement::begin(file)?;
    let mut lines = match (arguments.create, replacement.content()) {
        (true, _) => PasswordLines::default(),
        (false, None) => return Err(PasswdError::NoSuchFile(file.clone())),
        (false, Some(content)) => PasswordLines::parse(file, content)?,
    };
    let is_new = lines.set(user, &hash);
    let mut report = write(replacement, file, &lines)?;
    if arguments.device {
        report.lines.push(password.as_str().to_owned());
    } else {
        let action = if is_new { "added" } else { "changed" };
        report.lines.push(format!("{}: {action} user {user:?}", file.display()));
    }
    Ok(report)
}

fn delete_user(file: &Path, user: &str) -> Result<Report, PasswdError> {
    let replacement = Replacement::begin(file)?;
    let content = replacement.content().ok_or_else(|| PasswdError::NoSuchFile(file.to_owned()))?;
    let mut lines = PasswordLines::parse(file, content)?;
    if !lines.remove(user) {
        return Err(PasswdError::NoSuchUser { file: file.to_owned(), user: user.to_owned() });
    }
    let mut report = write(replacement, file, &lines)?;
    report.lines.push(format!("{}: deleted user {user:?}", file.display()));
    Ok(report)
}

fn hash_plain_passwords(arguments: &PasswdArguments) -> Result<Report, PasswdError> {
    let file = &arguments.file;
    let replacement = Replacement::begin(file)?;
    let content = replacement.content().ok_or_else(|| PasswdError::NoSuchFile(file.clone()))?;
    let mut lines = PasswordLines::parse(file, content)?;
    let hashed = lines.hash_plain(|password| arguments.hash(password))?;
    let mut report = write(replacement, file, &lines)?;
    report.lines.push(format!("{}: hashed {hashed} plain passwords", file.display()));
    Ok(report)
}

/// Writes the file. The report warns of the lines for which the broker would refuse the file.
fn write(replacement: Replacement, file: &Path, lines: &PasswordLines) -> Result<Report, PasswdError> {
    let text = lines.to_text();
    replacement.commit(text.as_bytes())?;
    let mut warnings = match PasswordFile::parse(file, text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(error) => error.lines(),
    };
    warnings.push(EFFECTIVE.to_owned());
    Ok(Report { lines: Vec::new(), warnings, is_sound: true })
}

fn check_file(file: &Path) -> Report {
    match PasswordFile::load(file) {
        Ok(users) => {
            let kinds = [
                (HashKind::Argon2, "argon2id"),
                (HashKind::Pbkdf2, "pbkdf2"),
                (HashKind::Scram, "scram"),
                (HashKind::Sha512, "sha512 (weak: one round; give these users a new hash)"),
            ];
            let counts = kinds.map(|(kind, name)| (users.count(kind), name));
            let parts = counts.iter().filter(|(count, _)| *count > 0);
            let parts: Vec<String> = parts.map(|(count, name)| format!("{count} {name}")).collect();
            let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
            let line = format!("{} is valid; {} users{parts}", file.display(), users.users());
            Report { lines: vec![line], warnings: Vec::new(), is_sound: true }
        }
        Err(error) => Report { lines: Vec::new(), warnings: error.lines(), is_sound: false },
    }
}

fn check_password(arguments: &PasswdArguments, user: &str) -> Result<Report, PasswdError> {
    let file = &arguments.file;
    let users = PasswordFile::load(file)?;
    let password = secret::read(arguments.secret_source(), secret::Repeat::Once)?;
    let (is_sound, line) = match users.verify(user, password.as_bytes()) {
        Verdict::Verified => (true, format!("the password is that of user {user:?}")),
        Verdict::WrongPassword => (false, format!("the password is not that of user {user:?}")),
        Verdict::UnknownUser => {
            return Err(PasswdError::NoSuchUser { file: file.clone(), user: user.to_owned() });
        }
    };
    let (lines, warnings) = if is_sound { (vec![line], Vec::new()) } else { (Vec::new(), vec![line]) };
    Ok(Report { lines, warnings, is_sound })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_name_means_the_same_when_it_is_read_again() {
        for name in ["ann", "ann lee", "müller", "a#b", "$x"] {
            assert!(is_user_name(name), "{name}");
        }
        for name in ["", " ann", "ann ", "#ann", "a:b", "a\nb", "a\0b"] {
            assert!(!is_user_name(name), "{name:?}");
        }
    }
}
