//! The password file: a line `user:hash` for each user, as `mosquitto_passwd` and `homing passwd`
//! write it.
//!
//! Empty lines and lines that begin with `#` are skipped, and so are blanks around name and hash.

use super::decoy_secret::DecoySecret;
use super::hash::{HashCost, HashKind, PasswordHash};
use super::scram::{DecoyKeys, ScramHash};
use crate::auth::file_error::{FileError, LineErrors, lines};
use crate::mqtt::keyed::Keyed;
use aws_lc_rs::digest::{SHA256, digest};
use hashbrown::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

/// A SCRAM hash with more iterations is compared with the empty password when the file is read.
/// Other SCRAM hashes are compared at the first successful login. With the usual 4,096 iterations a
/// comparison takes 0.4 ms, so a file of 100,000 users would take 40 s to read.
const CHECKED_AT_PROOF: u32 = 20_000;

/// The text about a line that is refused.
const EMPTY_PASSWORD: &str =
    "the hash is that of the empty password, which is refused; set another one with `homing passwd`";

/// All users of a password file. Immutable: a reload makes a new value.
pub struct PasswordFile {
    users: HashMap<Box<str>, PasswordRecord, Keyed>,
    /// A hash with the most common cost of the file. A check of an unknown name takes its time.
    common: Option<PasswordHash>,
    /// The keys of names that have no SCRAM line.
    decoys: DecoyKeys,
}

struct PasswordRecord {
    hash: PasswordHash,
    fingerprint: Fingerprint,
    /// True if a SCRAM hash is that of the empty password. Set at the first proof for the line.
    has_empty: OnceLock<bool>,
}

/// Identifies one line of the file, or a whole file of keys: a changed hash has another
/// fingerprint. The fingerprint reveals nothing about the password.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The password is that of the user.
    Verified,
    /// The user is in the file, with another password.
    WrongPassword,
    /// The user is not in the file. The client must not learn this.
    UnknownUser,
}

impl PasswordFile {
    /// Reads a password file.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes: all of them, with their lines. Plain passwords and
    /// a second line for a user are mistakes.
    pub fn load(file: &Path) -> Result<PasswordFile, FileError> {
        PasswordFile::parse(file, &FileError::read(file)?)
    }

    /// Reads the content of a password file. `file` is its name in errors.
    ///
    /// # Errors
    /// All mistakes, with their lines.
    pub fn parse(file: &Path, content: &[u8]) -> Result<PasswordFile, FileError> {
        let mut errors = LineErrors::default();
        let mut users: HashMap<Box<str>, PasswordRecord, Keyed> = HashMap::default();
        for (number, line) in lines(content, &mut errors) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match record(line) {
                Err(what) => errors.push(number, what),
                Ok((user, _)) if users.contains_key(user) => {
                    errors.push(number, format!("the user {user:?} already has a line above"));
                }
                Ok((user, record)) => {
                    users.insert(user.into(), record);
                }
            }
        }
        let common = most_common(users.values());
        let decoys = decoys(&users);
        errors.or(file, PasswordFile { users, common, decoys })
    }

    /// Makes the salts of unknown names from this secret. Otherwise they come from some lines of
    /// the file, and change with these lines.
    pub fn with_decoys(mut self, secret: &DecoySecret) -> PasswordFile {
        self.decoys.rekey(secret.bytes());
        self
    }

    /// Checks the password of a user. Blocks for the time of [`PasswordFile::cost`].
    ///
    /// An unknown name takes as long as a hash of the file's most common cost, so that the time
    /// does not show which names exist.
    pub fn verify(&self, user: &str, password: &[u8]) -> Verdict {
        match (self.users.get(user), &self.common) {
            (Some(record), _) if record.hash.verify(password) => Verdict::Verified,
            (Some(_), _) => Verdict::WrongPassword,
            (None, Some(common)) => {
                // Only the time counts.
                std::hint::black_box(common.verify(password));
                Verdict::UnknownUser
            }
            (None, None) => Verdict::UnknownUser,
        }
    }

    /// Returns the work of a check for this name, or `None` if the file has no user at all.
    pub fn cost(&self, user: &str) -> Option<HashCost> {
        let hash = self.users.get(user).map(|record| &record.hash).or(self.common.as_ref())?;
        Some(hash.cost())
    }

    /// Returns the fingerprint of the user's line, or `None` if the user is not in the file.
    pub fn fingerprint(&self, user: &str) -> Option<Fingerprint> {
        self.users.get(user).map(|record| record.fingerprint)
    }

    /// Returns the keys for a SCRAM exchange with this name, and the fingerprint of the user's
    /// line. A name without a SCRAM line has decoy keys and no fingerprint. Both take equally long.
    pub fn scram(&self, user: &str) -> (ScramHash, Option<Fingerprint>) {
        let decoy = self.decoys.of(user);
        match self.users.get(user) {
            Some(PasswordRecord { hash: PasswordHash::Scram(hash), fingerprint, .. }) => {
                (hash.clone(), Some(*fingerprint))
            }
            _ => (decoy, None),
        }
    }

    /// Returns true if the user's SCRAM hash is that of the empty password, which is refused. Takes
    /// the time of [`Self::proof_us`], because the hash alone does not show it.
    pub fn has_empty_password(&self, user: &str) -> bool {
        let Some(PasswordRecord { hash: PasswordHash::Scram(hash), has_empty, .. }) = self.users.get(user)
        else {
            return false;
        };
        *has_empty.get_or_init(|| hash.verify(b""))
    }

    /// Returns the estimated time of the next [`Self::has_empty_password`] in microseconds: at most
    /// 2 ms. The result is remembered, so it is 0 after the first one for a line.
    pub fn proof_us(&self, user: &str) -> u64 {
        match self.users.get(user) {
            Some(PasswordRecord { hash: hash @ PasswordHash::Scram(_), has_empty, .. })
                if has_empty.get().is_none() =>
            {
                hash.cost().estimated_us
            }
            _ => 0,
        }
    }

    /// Returns the number of users.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Iterates over the users with the kinds of their hashes, in no order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, HashKind)> {
        self.users.iter().map(|(user, record)| (&**user, record.hash.cost().kind))
    }

    /// Returns the number of users with a hash of this kind. Linear in the number of users.
    pub fn count(&self, kind: HashKind) -> usize {
        self.users.values().filter(|record| record.hash.cost().kind == kind).count()
    }
}

impl Fingerprint {
    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(text: &str) -> Fingerprint {
        Fingerprint::of_bytes(text.as_bytes())
    }

    /// Returns the fingerprint of these bytes.
    pub fn of_bytes(text: &[u8]) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text).as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Debug for PasswordFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordFile").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(..)")
    }
}

/// Splits a line. The error has the user name at most: a line without a colon may be a password.
fn record(line: &str) -> Result<(&str, PasswordRecord), String> {
    let Some((user, text)) = line.split_once(':') else {
        return Err("the line has no colon; a line is user:hash".to_owned());
    };
    let (user, text) = (user.trim(), text.trim());
    if user.is_empty() {
        return Err("the user name before the colon is empty".to_owned());
    }
    let hash = PasswordHash::parse(text).map_err(|error| format!("user {user:?}: {error}"))?;
    let has_empty = OnceLock::new();
    if let PasswordHash::Scram(scram) = &hash
        && scram.iterations() > CHECKED_AT_PROOF
    {
        if scram.verify(b"") {
            return Err(format!("user {user:?}: {EMPTY_PASSWORD}"));
        }
        let _ = has_empty.set(false);
    }
    Ok((user, PasswordRecord { hash, fingerprint: Fingerprint::of(text), has_empty }))
}

/// Returns the decoys of a file, for a broker without a data directory.
///
/// Their secret stays the same over restarts and over most changes of the file. Otherwise the salt
/// of an unknown name would change while the salts of users stay. So the secret comes from the few
/// lines with the lowest fingerprints. To know the secret one must know the passwords of all these
/// users.
fn decoys(users: &HashMap<Box<str>, PasswordRecord, Keyed>) -> DecoyKeys {
    const LINES: usize = 4;
    let mut lowest: Vec<[u8; 32]> = users.values().map(|record| record.fingerprint.0).collect();
    lowest.sort_unstable();
    lowest.truncate(LINES);
    let scram = users.values().filter(|record| record.hash.cost().kind == HashKind::Scram);
    let common = match most_common(scram) {
        Some(PasswordHash::Scram(hash)) => Some(hash),
        _ => None,
    };
    DecoyKeys::new(Fingerprint::of_bytes(&lowest.concat()).as_bytes(), common.as_ref())
}

fn most_common<'a>(records: impl Iterator<Item = &'a PasswordRecord>) -> Option<PasswordHash> {
    let mut costs: HashMap<HashCost, (usize, &PasswordHash)> = HashMap::new();
    for PasswordRecord { hash, .. } in records {
        costs.entry(hash.cost()).or_insert((0, hash)).0 += 1;
    }
    // The higher cost wins a tie, so that the result does not depend on the order of the table.
    let most = costs.into_iter().max_by_key(|(cost, (count, _))| (*count, *cost));
    most.map(|(_, (_, hash))| hash.clone())
}

#[cfg(test)]
mod tests {
    use super::super::argon2::Argon2Hash;
    use super::super::pbkdf2::Pbkdf2Hash;
    use super::*;

    // Written by mosquitto_passwd 2.0.11, the first with `-H sha512`; the password is `secret`.
    const MOSQUITTO_6: &str = "$6$tM3NJBQwy0brWiNN$NHKRx25NC7qzNvJMWSRtyZkmwrnak/EY37lJhV4BUUrf2dSnrYxMRvV68iGmmW0kQ6Zem1eXZIQBz9wgyDwQig==";
    const MOSQUITTO_7: &str = "$7$101$jlvChdHoZx68XeCC$J294P4wMHGuzGBCFcSu6pywlhVdAi79/l1aNc8jS7LMgspZY7IfPqT3fKjEdQp8JgLp6uUBN7YlSx99Yu4RKvw==";
    // Written by the reference implementation: argon2 somesalt -id -t 2 -k 65536 -p 1.
    const REFERENCE: &str =
        "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";

    fn file(text: &str) -> PasswordFile {
        PasswordFile::parse(Path::new("passwd"), text.as_bytes()).unwrap()
    }

    fn mistakes(text: &str) -> String {
        PasswordFile::parse(Path::new("passwd"), text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn hashes_of_other_programs_are_checked() {
        let file = file(&format!("six:{MOSQUITTO_6}\nseven:{MOSQUITTO_7}\nargon:{REFERENCE}\n"));
        for user in ["six", "seven"] {
            assert_eq!(file.verify(user, b"secret"), Verdict::Verified, "{user}");
            assert_eq!(file.verify(user, b"Secret"), Verdict::WrongPassword, "{user}");
            assert_eq!(file.verify(user, b""), Verdict::WrongPassword, "{user}");
        }
        assert_eq!(file.verify("argon", b"password"), Verdict::Verified);
        assert_eq!(file.verify("argon", b"passwort"), Verdict::WrongPassword);
        assert_eq!(file.verify("eight", b"secret"), Verdict::UnknownUser);
        assert_eq!(file.users(), 3);
    }

    #[test]
    fn own_hashes_are_read_again() {
        let hashes = [
            PasswordHash::Pbkdf2(Pbkdf2Hash::create(b"secret", 1_000, &[1; 64])),
            PasswordHash::Argon2(Argon2Hash::create(b"secret", &[2; 16]).unwrap()),
            PasswordHash::Scram(ScramHash::create(b"secret", &[3; 16])),
            PasswordHash::parse(MOSQUITTO_6).unwrap(),
        ];
        for hash in hashes {
            let text = hash.to_text();
            let again = PasswordHash::parse(&text).unwrap();
            assert_eq!((again.to_text(), again.cost()), (text.clone(), hash.cost()));
            assert!(again.verify(b"secret") && !again.verify(b"secrets"), "{text}");
        }
    }

    #[test]
    fn the_empty_password_is_refused_even_if_its_hash_stands_in_the_file() {
        let hashes = [
            PasswordHash::Pbkdf2(Pbkdf2Hash::create(b"", 101, &[1; 64])),
            PasswordHash::Argon2(Argon2Hash::create(b"", &[2; 16]).unwrap()),
            PasswordHash::Scram(ScramHash::create(b"", &[3; 16])),
        ];
        for hash in hashes {
            let file = file(&format!("ann:{}\n", hash.to_text()));
            assert_eq!(file.verify("ann", b""), Verdict::WrongPassword, "{}", hash.to_text());
        }
    }

    #[test]
    fn the_scram_hash_of_the_empty_password_is_found_once() {
        let line = |user: &str, password: &[u8]| {
            format!("{user}:{}\n", ScramHash::create(password, &[3; 16]).to_text())
        };
        let file = file(&format!("{}{}plain:{MOSQUITTO_7}\n", line("ann", b""), line("bob", b"secret")));
        assert_eq!(
            ["ann", "bob", "plain", "none"].map(|user| file.proof_us(user) > 0),
            [true, true, false, false]
        );
        for _ in 0..2 {
            assert!(file.has_empty_password("ann") && !file.has_empty_password("bob"));
            assert_eq!([file.proof_us("ann"), file.proof_us("bob")], [0, 0], "it is remembered");
        }
    }

    #[test]
    fn a_costly_scram_hash_of_the_empty_password_is_a_mistake_in_the_file() {
        let costly = |password: &[u8]| ScramHash::of_iterations(password, CHECKED_AT_PROOF + 1).to_text();
        let text = mistakes(&format!("ann:{}\n", costly(b"")));
        assert!(text.contains("passwd:1: user \"ann\": the hash is that of the empty password"), "{text}");
        let file = file(&format!("ann:{}\n", costly(b"secret")));
        assert_eq!((file.proof_us("ann"), file.has_empty_password("ann")), (0, false));
    }

    #[test]
    fn comments_blank_lines_and_line_ends_are_skipped() {
        let file = file(&format!("# users\r\n\r\n ann : {MOSQUITTO_7} \r\nname with space:{MOSQUITTO_7}"));
        assert_eq!(file.verify("ann", b"secret"), Verdict::Verified);
        assert_eq!(file.verify("name with space", b"secret"), Verdict::Verified);
    }

    #[test]
    fn all_mistakes_are_named_with_their_lines_and_without_secrets() {
        let text = format!(
            "plain:hunter2\nhunter3\n:{MOSQUITTO_7}\nann:{MOSQUITTO_7}\nann:{MOSQUITTO_7}\nbob:$7$0$AA==$AA==\n\
             cat:$7$101$A$AA==\ndan:$7$101$AA==$AA==\neve:$7$101\nfay:$2y$10$hunter4\n"
        );
        let expected = "\
passwd:1: user \"plain\": the password is not hashed; `homing passwd -U FILE` hashes all plain passwords of a file
passwd:2: the line has no colon; a line is user:hash
passwd:3: the user name before the colon is empty
passwd:5: the user \"ann\" already has a line above
passwd:6: user \"bob\": the iterations of the hash must be 1 to 10,000,000
passwd:7: user \"cat\": the salt of the hash is not base64
passwd:8: user \"dan\": the digest of the hash has 1 bytes; allowed are 64
passwd:9: user \"eve\": the hash does not have the form $7$iterations$salt$hash
passwd:10: user \"fay\": the kind of hash is unknown; known are $7$, $6$, $argon2id$ and $scram-sha-256$";
        assert_eq!(mistakes(&text), expected);
    }

    #[test]
    fn costs_beyond_the_bounds_are_refused() {
        for (costs, is_allowed) in [
            ("m=262144,t=16,p=1", true),
            ("m=262145,t=1,p=1", false),
            ("m=19456,t=17,p=1", false),
            ("m=19456,t=0,p=1", false),
            ("m=19456,t=1,p=65", false),
            ("m=8,t=1,p=2", false),
            ("t=1,m=19456,p=1", false),
        ] {
            let text = REFERENCE.replace("m=65536,t=2,p=1", costs);
            assert_eq!(PasswordHash::parse(&text).is_ok(), is_allowed, "{costs}");
        }
        assert!(PasswordHash::parse(&REFERENCE.replace("v=19", "v=16")).is_err());
        let scram = PasswordHash::Scram(ScramHash::create(b"x", &[0; 16])).to_text();
        assert!(PasswordHash::parse(&scram.replace("i=4096", "i=1")).is_err());
    }

    #[test]
    fn an_unknown_name_costs_the_most_common_hash() {
        let fast = Pbkdf2Hash::create(b"x", 101, &[1; 12]).to_text();
        let slow = Pbkdf2Hash::create(b"x", 1_000, &[1; 64]).to_text();
        let file = file(&format!("a:{fast}\nb:{slow}\nc:{slow}\nd:{MOSQUITTO_6}\n"));
        assert_eq!(file.cost("nobody"), file.cost("b"));
        assert_eq!(file.cost("a").unwrap().kind, HashKind::Pbkdf2);
        assert_ne!(file.cost("nobody"), file.cost("a"));
        let empty = PasswordFile::parse(Path::new("passwd"), b"").unwrap();
        assert_eq!((empty.cost("a"), empty.verify("a", b"")), (None, Verdict::UnknownUser));
    }

    #[test]
    fn a_fingerprint_stands_for_the_hash() {
        let one = file(&format!("ann:{MOSQUITTO_7}\nbob:{MOSQUITTO_6}\n"));
        let other = file(&format!("ann: {MOSQUITTO_7}\nbob:{REFERENCE}\n"));
        assert_eq!(one.fingerprint("ann"), other.fingerprint("ann"));
        assert_ne!(one.fingerprint("bob"), other.fingerprint("bob"));
        assert_eq!(one.fingerprint("eve"), None);
    }

    #[test]
    fn a_name_without_a_scram_line_has_a_decoy_that_stays_over_most_changes() {
        let line = |number: u8| {
            let hash = PasswordHash::Scram(ScramHash::create(b"x", &[number; 16])).to_text();
            format!("user-{number}:{hash}\n")
        };
        let lines: Vec<String> = (0..30).map(line).collect();
        let whole = file(&format!("{}argon:{REFERENCE}\n", lines.concat()));
        let (hash, fingerprint) = whole.scram("user-7");
        assert_eq!((hash.salt(), fingerprint), (&[7; 16][..], whole.fingerprint("user-7")));
        for name in ["nobody", "argon"] {
            let (decoy, fingerprint) = whole.scram(name);
            assert_eq!((decoy.salt().len(), decoy.iterations(), fingerprint), (16, 4_096, None));
        }
        let salt = |file: &PasswordFile| file.scram("nobody").0.salt().to_vec();
        let same = (0..30).filter(|left_out| {
            let rest = lines.iter().enumerate().filter(|(number, _)| number != left_out);
            let text: String = rest.map(|(_, line)| line.as_str()).collect();
            salt(&file(&format!("{text}argon:{REFERENCE}\n"))) == salt(&whole)
        });
        assert!(same.count() >= 26);
    }

    #[test]
    fn with_a_secret_of_the_broker_the_decoys_stay_over_every_change_of_the_users() {
        let directory = tempfile::tempdir().unwrap();
        let secret = DecoySecret::of_directory(directory.path()).unwrap();
        let line = |number: u8| {
            let hash = PasswordHash::Scram(ScramHash::create(b"x", &[number; 16])).to_text();
            format!("user-{number}:{hash}\n")
        };
        let salt = |text: &str| {
            let file = file(text).with_decoys(&secret);
            file.scram("nobody").0.salt().to_vec()
        };
        let salts: Vec<_> = (0..10).map(|number| salt(&line(number))).collect();
        assert!(salts.iter().all(|salt| *salt == salts[0]));
        assert_ne!(salts[0], file(&line(0)).scram("nobody").0.salt());
    }

    #[test]
    fn debug_shows_no_secret() {
        let file = file(&format!("ann:{MOSQUITTO_7}\n"));
        assert_eq!(format!("{file:?}"), "PasswordFile { users: 1, .. }");
        assert_eq!(format!("{:?}", file.fingerprint("ann")), "Some(Fingerprint(..))");
    }
}
