//! The logins of the pages: a cookie for each.
//!
//! A cookie is 256 random bits. A login ends after half an hour without a request, after eight
//! hours, at a logout, and with the process.

use super::access::Caller;
use crate::auth::random::random_text;
use crate::time::Instant;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A login without a request for this long ends.
const IDLE: Duration = Duration::from_mins(30);

/// A login ends after this time, whatever it does.
const LONGEST: Duration = Duration::from_hours(8);

/// Logins at once. Of the credential with the most logins, the login without a request for the
/// longest time makes room. So nobody ends the logins of others by logging in again and again.
const MOST: usize = 64;

/// A one-time code ends after this time.
const CODE: Duration = Duration::from_secs(60);

/// Codes at once. The oldest one of the credential with the most makes room.
const CODES: usize = 16;

/// Bytes of the path and query of a page that says an answer.
const PLACE: usize = 4096;

/// The logins, and the one-time codes that begin one.
#[derive(Default)]
pub(super) struct PageLogins {
    logins: Mutex<HashMap<String, Login>>,
    codes: Mutex<Vec<LoginCode>>,
}

struct LoginCode {
    code: String,
    caller: Caller,
    ends: Instant,
}

#[derive(Clone)]
struct Login {
    caller: Caller,
    csrf: String,
    began: Instant,
    used: Instant,
    /// The answer to the last action, and the page that says it.
    answer: Option<(String, String)>,
}

/// A login that a request belongs to.
#[derive(Clone, Debug)]
pub(super) struct LoggedIn {
    pub(super) caller: Caller,
    /// The text that every form of this login has: another web page cannot know it.
    pub(super) csrf: String,
}

impl PageLogins {
    /// Begins a login. Returns the value of its cookie; `None` if the system has no randomness.
    pub(super) fn begin(&self, now: Instant, caller: Caller) -> Option<String> {
        let text = || Some(random_text().ok()?.to_string());
        let (cookie, csrf) = (text()?, text()?);
        let mut logins = self.lock(now);
        if logins.len() >= MOST {
            let all: Vec<_> = logins.iter().map(|(key, login)| (&login.caller, login.used, key)).collect();
            if let Some(key) = first_to_go(&all).map(|(_, _, key)| (*key).clone()) {
                logins.remove(&key);
            }
        }
        logins.insert(cookie.clone(), Login { caller, csrf, began: now, used: now, answer: None });
        Some(cookie)
    }

    /// Returns the login of a cookie, if it has not ended.
    pub(super) fn find(&self, now: Instant, cookie: &str) -> Option<LoggedIn> {
        let mut logins = self.lock(now);
        let login = logins.get_mut(cookie)?;
        login.used = now;
        Some(LoggedIn { caller: login.caller.clone(), csrf: login.csrf.clone() })
    }

    /// Keeps the answer to an action for the page that follows: its path and query, and a sentence.
    /// A login has one answer at most, and none for a longer path than `PLACE`.
    pub(super) fn tell(&self, now: Instant, cookie: &str, (place, said): (&str, String)) {
        if let Some(login) = self.lock(now).get_mut(cookie).filter(|_| place.len() <= PLACE) {
            login.answer = Some((place.to_owned(), said));
        }
    }

    /// Removes and returns the answer that waits for a page.
    pub(super) fn told(&self, now: Instant, cookie: &str, place: &str) -> Option<String> {
        let mut logins = self.lock(now);
        let answer = logins.get_mut(cookie)?.answer.take_if(|(of, _)| of == place)?;
        Some(answer.1)
    }

    /// Makes a code that begins one login of this caller within a minute; `None` if the system has
    /// no randomness.
    pub(super) fn code_for(&self, now: Instant, caller: Caller) -> Option<String> {
        let code = random_text().ok()?.to_string();
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| now < code.ends);
        if codes.len() >= CODES {
            let all: Vec<_> = (0..).zip(&*codes).map(|(at, code)| (&code.caller, code.ends, at)).collect();
            if let Some(at) = first_to_go(&all).map(|(_, _, at)| *at) {
                codes.remove(at);
            }
        }
        codes.push(LoginCode { code: code.clone(), caller, ends: now + CODE });
        Some(code)
    }

    /// Returns the caller of a code, and ends the code.
    pub(super) fn redeem(&self, now: Instant, given: &str) -> Option<Caller> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|code| now < code.ends);
        let is_given = |code: &LoginCode| {
            aws_lc_rs::constant_time::verify_slices_are_equal(code.code.as_bytes(), given.as_bytes()).is_ok()
        };
        let at = codes.iter().position(is_given)?;
        Some(codes.remove(at).caller)
    }

    pub(super) fn end(&self, now: Instant, cookie: &str) {
        self.lock(now).remove(cookie);
    }

    /// Locks the logins, without those that have ended.
    fn lock(&self, now: Instant) -> MutexGuard<'_, HashMap<String, Login>> {
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|_, login| now < login.used + IDLE && now < login.began + LONGEST);
        logins
    }
}

/// Returns the item that makes room for another: the oldest one of the credential with the most
/// items. Compares each item with each other one; there are 64 at most.
fn first_to_go<'a, T>(all: &'a [(&Caller, Instant, T)]) -> Option<&'a (&'a Caller, Instant, T)> {
    let count_of = |caller: &Caller| all.iter().filter(|(other, ..)| other.is_same(caller)).count();
    // Of equal ones the first, which is the last one of the reversed list.
    all.iter().rev().max_by_key(|(caller, since, _)| (count_of(caller), Reverse(*since)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::access::{Origin, Scope};

    fn caller() -> Caller {
        Caller { name: "ann".to_owned(), scope: Scope::Viewer, credential: None, origin: Origin::default() }
    }

    #[test]
    fn a_login_ends_when_it_is_idle_when_it_is_old_and_at_a_logout() {
        let (logins, start) = (PageLogins::default(), Instant::ZERO);
        let idle = logins.begin(start, caller()).expect("randomness");
        assert!(logins.find(start + IDLE - Duration::from_secs(1), &idle).is_some());
        assert!(logins.find(start + IDLE * 2, &idle).is_none());
        let old = logins.begin(start, caller()).expect("randomness");
        let mut now = start;
        while now < start + LONGEST {
            assert!(logins.find(now, &old).is_some());
            now = now + IDLE / 2;
        }
        assert!(logins.find(now, &old).is_none());
        let ended = logins.begin(now, caller()).expect("randomness");
        logins.end(now, &ended);
        assert!(logins.find(now, &ended).is_none());
    }

    #[test]
    fn an_answer_is_said_once_on_its_page_and_in_its_login() {
        let (logins, now) = (PageLogins::default(), Instant::ZERO);
        let [own, other] = [(), ()].map(|()| logins.begin(now, caller()).expect("randomness"));
        logins.tell(now, &own, ("/clients/a", "done".to_owned()));
        assert_eq!(logins.told(now, &other, "/clients/a"), None);
        assert_eq!(logins.told(now, &own, "/clients/b"), None);
        assert_eq!(logins.told(now, &own, "/clients/a").as_deref(), Some("done"));
        assert_eq!(logins.told(now, &own, "/clients/a"), None);
    }

    #[test]
    fn a_code_begins_one_login_within_a_minute() {
        let (logins, start) = (PageLogins::default(), Instant::ZERO);
        let code = logins.code_for(start, caller()).expect("randomness");
        assert!(logins.redeem(start, "guessed").is_none());
        assert_eq!(logins.redeem(start, &code), Some(caller()));
        assert!(logins.redeem(start, &code).is_none(), "used");
        let late = logins.code_for(start, caller()).expect("randomness");
        assert!(logins.redeem(start + CODE, &late).is_none());
        let first = logins.code_for(start, caller()).expect("randomness");
        for _ in 0..CODES {
            logins.code_for(start, caller());
        }
        assert!(logins.redeem(start, &first).is_none(), "pushed out");
    }

    #[test]
    fn a_viewer_who_logs_in_again_and_again_ends_its_own_logins_alone() {
        let (logins, start) = (PageLogins::default(), Instant::ZERO);
        let ann = Caller { name: "operator".to_owned(), ..caller() };
        let operator = logins.begin(start, ann.clone()).expect("randomness");
        let code = logins.code_for(start, ann).expect("randomness");
        let second = |n: u64| start + Duration::from_secs(n);
        let viewers: Vec<_> =
            (1..200).map(|n| logins.begin(second(n), caller()).expect("randomness")).collect();
        for _ in 0..CODES * 2 {
            logins.code_for(start, caller());
        }
        assert!(logins.find(second(200), &operator).is_some(), "a viewer has logged an operator out");
        assert!(logins.redeem(start, &code).is_some(), "a viewer has ended the code of an operator");
        assert!(logins.find(second(200), &viewers[0]).is_none());
        assert!(logins.find(second(200), &viewers[198]).is_some());
    }

    #[test]
    fn many_logins_push_out_the_one_that_was_not_used_for_the_longest_time() {
        let (logins, start) = (PageLogins::default(), Instant::ZERO);
        let first = logins.begin(start, caller()).expect("randomness");
        for n in 1..=MOST as u64 {
            logins.begin(start + Duration::from_secs(n), caller());
        }
        assert!(logins.find(start + Duration::from_secs(99), &first).is_none());
    }
}
