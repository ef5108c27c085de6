//! The password that the command stores, and where it comes from.

use super::PasswdError;
use crate::auth::random::random_text;
use std::io::{self, BufRead};
use zeroize::Zeroizing;

/// A password. Its memory is overwritten when it is dropped.
pub type NewPassword = Zeroizing<String>;

/// A CONNECT has at most 65,535 bytes of password.
const LONGEST: usize = 65_535;

/// The place where a password comes from.
#[derive(Clone, Copy, Debug)]
pub enum SecretSource<'a> {
    /// The command line.
    Argument(&'a str),
    /// The first line of standard input.
    Stdin,
    /// The terminal, without echo.
    Terminal,
    /// The randomness of the system.
    Random,
}

/// The number of times that the terminal asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Once.
    Once,
    /// Twice, because nobody sees a typing error.
    Twice,
}

/// Returns a password.
///
/// # Errors
/// The source cannot be read, the two passwords differ, or the password is empty, too long, or has
/// U+0000.
pub fn read(source: SecretSource<'_>, repeat: Repeat) -> Result<NewPassword, PasswdError> {
    let password = match source {
        SecretSource::Argument(password) => Zeroizing::new(password.to_owned()),
        SecretSource::Stdin => first_line(&mut io::stdin().lock())?,
        SecretSource::Terminal => ask(repeat)?,
        SecretSource::Random => random_text()?,
    };
    check(&password)?;
    Ok(password)
}

fn ask(repeat: Repeat) -> Result<NewPassword, PasswdError> {
    let ask = |prompt| rpassword::prompt_password(prompt).map(Zeroizing::new).map_err(PasswdError::Terminal);
    let password = ask("Password: ")?;
    if repeat == Repeat::Twice && ask("Again: ")? != password {
        return Err(PasswdError::Password("the two passwords are not the same"));
    }
    Ok(password)
}

fn first_line(input: &mut impl BufRead) -> Result<NewPassword, PasswdError> {
    let mut line = Zeroizing::new(String::new());
    input.read_line(&mut line).map_err(PasswdError::Terminal)?;
    let end = line.trim_end_matches(['\n', '\r']).len();
    line.truncate(end);
    Ok(line)
}

/// Checks that a client can send a password, and that it can be stored. Errors: the password is
/// empty, too long, or has U+0000.
pub(super) fn check(password: &str) -> Result<(), PasswdError> {
    if password.is_empty() {
        return Err(PasswdError::Password("the password is empty"));
    }
    if password.len() > LONGEST {
        return Err(PasswdError::Password(
            "the password has more than 65,535 bytes, which no client can send",
        ));
    }
    if password.contains('\0') {
        return Err(PasswdError::Password("the password has U+0000, where mosquitto would end it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    #[test]
    fn the_first_line_is_the_password() {
        let read = |text: &str| first_line(&mut text.as_bytes()).unwrap().to_string();
        assert_eq!(
            (read("secret\r\nmore\n"), read("with blank ")),
            ("secret".to_owned(), "with blank ".to_owned())
        );
        assert_eq!(read(""), "");
    }

    #[test]
    fn a_random_secret_has_256_bits() {
        let one = read(SecretSource::Random, Repeat::Once).unwrap();
        let other = read(SecretSource::Random, Repeat::Once).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(one.as_bytes()).unwrap().len(), 32);
        assert_ne!(one, other);
    }

    #[test]
    fn a_password_that_no_client_can_send_is_refused() {
        assert!(read(SecretSource::Argument(""), Repeat::Once).is_err());
        assert!(read(SecretSource::Argument("a\0b"), Repeat::Once).is_err());
        assert!(read(SecretSource::Argument(&"x".repeat(65_536)), Repeat::Once).is_err());
        assert!(read(SecretSource::Argument(&"x".repeat(65_535)), Repeat::Once).is_ok());
    }
}
