//! The lines of a password file. Changes leave comments and the lines of other users as they are.

use crate::auth::file_error::{FileError, LineErrors, lines};
use crate::auth::password::hash::PasswordHash;
use crate::auth::password::hash_text::HashError;
use std::path::Path;
use zeroize::Zeroize;

/// The lines of a password file, without line ends. Lines may contain plain passwords, so they are
/// zeroized.
#[derive(Default)]
pub struct PasswordLines(Vec<String>);

impl PasswordLines {
    /// Splits the content of a file. `file` is its name in errors.
    ///
    /// # Errors
    /// Lines that are not UTF-8.
    pub fn parse(file: &Path, content: &[u8]) -> Result<PasswordLines, FileError> {
        let mut errors = LineErrors::default();
        let mut all: Vec<String> =
            lines(content, &mut errors).into_iter().map(|(_, line)| line.to_owned()).collect();
        // The text behind the last line end is no line.
        if all.last().is_some_and(String::is_empty) {
            all.pop();
        }
        errors.or(file, PasswordLines(all))
    }

    /// Sets the hash of a user, in its present place or at the end. Returns true if the user is
    /// new.
    pub fn set(&mut self, user: &str, hash: &PasswordHash) -> bool {
        let line = format!("{user}:{}", hash.to_text());
        let first = self.0.iter().position(|line| user_of(line) == Some(user));
        match first {
            None => self.0.push(line),
            Some(first) => {
                self.remove(user);
                self.0.insert(first, line);
            }
        }
        first.is_none()
    }

    /// Removes all lines of a user. Returns false if the user has no line.
    pub fn remove(&mut self, user: &str) -> bool {
        let before = self.0.len();
        self.0.retain_mut(|line| {
            let is_kept = user_of(line) != Some(user);
            if !is_kept {
                line.zeroize();
            }
            is_kept
        });
        self.0.len() < before
    }

    /// Hashes each plain password. Returns their number.
    ///
    /// # Errors
    /// The first error of `hash`; the lines are then half done, and must not be written.
    pub fn hash_plain<E>(&mut self, hash: impl Fn(&str) -> Result<PasswordHash, E>) -> Result<usize, E> {
        let mut hashed = 0;
        for line in &mut self.0 {
            if user_of(line).is_none() {
                continue;
            }
            let Some((user, text)) = line.split_once(':') else { continue };
            let password = text.trim();
            if password.is_empty() || PasswordHash::parse(password).err() != Some(HashError::Plain) {
                continue;
            }
            let new = format!("{}:{}", user.trim(), hash(password)?.to_text());
            line.zeroize();
            *line = new;
            hashed += 1;
        }
        Ok(hashed)
    }

    /// Returns the content of the file.
    pub fn to_text(&self) -> zeroize::Zeroizing<String> {
        let length = self.0.iter().map(|line| line.len() + 1).sum();
        let mut text = zeroize::Zeroizing::new(String::with_capacity(length));
        for line in &self.0 {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

impl Drop for PasswordLines {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Zeroize::zeroize);
    }
}

/// Returns the user of a line, or `None` for a comment and an empty line.
fn user_of(line: &str) -> Option<&str> {
    let (user, _) = line.split_once(':')?;
    (!line.starts_with('#')).then_some(user.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::password::pbkdf2::Pbkdf2Hash;

    fn parse(text: &str) -> PasswordLines {
        PasswordLines::parse(Path::new("passwd"), text.as_bytes()).unwrap()
    }

    fn hash(password: &str) -> PasswordHash {
        PasswordHash::Pbkdf2(Pbkdf2Hash::create(password.as_bytes(), 1, b"salt"))
    }

    #[test]
    fn a_user_is_set_in_its_place_or_at_the_end() {
        let mut lines = parse("# people\nann:1\n\nbob:2\nann:3");
        assert!(!lines.set("ann", &hash("x")));
        assert!(lines.set("eve", &hash("y")));
        let expected =
            format!("# people\nann:{}\n\nbob:2\neve:{}\n", hash("x").to_text(), hash("y").to_text());
        assert_eq!(*lines.to_text(), expected);
    }

    #[test]
    fn a_user_is_removed_with_all_its_lines() {
        let mut lines = parse("#ann:0\nann:1\nanna:2\n ann :3\n");
        assert!(lines.remove("ann") && !lines.remove("ann"));
        assert_eq!(*lines.to_text(), "#ann:0\nanna:2\n");
    }

    #[test]
    fn only_plain_passwords_are_hashed() {
        let done = hash("done").to_text();
        let mut lines = parse(&format!("# ann:x\nann:secret\r\nbob:{done}\nno colon\neve:$5$a$b\nfay:\n"));
        assert_eq!(lines.hash_plain(|password| Ok::<_, ()>(hash(password))), Ok(1));
        let expected =
            format!("# ann:x\nann:{}\nbob:{done}\nno colon\neve:$5$a$b\nfay:\n", hash("secret").to_text());
        assert_eq!(*lines.to_text(), expected);
    }
}
