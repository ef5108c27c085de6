//! Attempts to log in, and the count of failed ones.
//!
//! Tokens and one-time codes are 256 random bits, so nobody guesses one. A valid one is admitted
//! after any number of failures, and a flood locks no operator out. Passwords can be guessed, so
//! the password of a user who is blocked at an address is not even looked at.

use super::access::{Caller, Scope};
use super::audit::{AuditedAction, arguments};
use super::failed::Failed;
use super::login_failures::{LoginFailure, Shown};
use super::request::permit;
use super::request_origin::{address_of, origin_of};
use super::state::State;
use crate::clock;
use actix_web::{HttpRequest, web};
use tracing::warn;
use zeroize::Zeroizing;

/// Begins a login of the caller of a request. `by` is the credential of the caller. Returns the
/// value of its cookie. Errors: the caller may not look, or the system has no randomness.
pub(super) fn begin(
    request: &HttpRequest,
    state: &State,
    caller: Caller,
    by: &'static str,
) -> Result<String, Failed> {
    // A publisher has no pages.
    permit(&caller, Scope::Viewer)?;
    let caller = caller.with_origin(origin_of(request));
    let (arguments, result) = (arguments(&[Some(("by", by.to_owned()))]), "done".to_owned());
    state.audit.note(&caller, &AuditedAction { action: "login", target: "", arguments, result });
    state.logins.begin(clock::now(), caller).ok_or(Failed::Busy)
}

/// Returns the user who has this password. Takes 20 ms on a thread for such work; one password at a
/// time, because each takes 19 MiB while it is checked. Errors: there is no such user, the password
/// is another one, too many logins of the user from this address failed, or too many passwords wait
/// to be checked.
pub(super) async fn by_password(
    request: &HttpRequest,
    state: &State,
    user: String,
    password: Zeroizing<String>,
) -> Result<Caller, Failed> {
    let blocked = |address| state.login_failures().is_blocked(clock::now(), address, Shown::Password(&user));
    if address_of(request).is_some_and(blocked) {
        return Err(Failed::TooManyLogins);
    }
    let turn = state.passwords.turn().await.ok_or(Failed::Busy)?;
    let credentials = state.credentials.known();
    let check = move || {
        // The check goes on if the caller goes.
        let _turn = turn;
        (credentials.caller_of_password(&user, password.as_bytes()), user)
    };
    match web::block(check).await {
        Ok((Some(caller), _)) => Ok(caller),
        Ok((None, user)) => {
            Err(failed(request, state, Shown::Password(&user), "an unknown user or a wrong password"))
        }
        Err(_) => Err(Failed::Busy),
    }
}

/// Counts a failed login, and returns its answer. `what` is for the log. The failure that begins a
/// block is the last logged failure.
pub(super) fn failed(request: &HttpRequest, state: &State, shown: Shown<'_>, what: &'static str) -> Failed {
    // Users of the Unix socket have no address, and are known.
    let address = address_of(request);
    let count = |address| state.login_failures().failed(clock::now(), address, shown);
    let failure = address.map_or(LoginFailure::Counted, count);
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    match failure {
        LoginFailure::Counted => {
            warn!(target: "homing::audit", event = "audit.login_refused", address, "a login with {what}");
            Failed::UnknownCredentials
        }
        LoginFailure::BeginsBlock => {
            warn!(target: "homing::audit", event = "audit.login_refused", address, "too many logins with {what}; further ones of this name and address are refused for 5 minutes and not logged");
            Failed::TooManyLogins
        }
        LoginFailure::Blocked => Failed::TooManyLogins,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::credentials::file::CredentialFile;
    use crate::admin::https::Scheme;
    use crate::admin::state::AdminState;
    use crate::admin::terms::AdminTerms;
    use crate::config::Admin;
    use actix_web::test::TestRequest;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::time::timeout;

    #[test]
    fn a_password_is_checked_in_its_turn_also_if_its_caller_goes() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().max_blocking_threads(1).build().expect("an event loop");
        runtime.block_on(async {
            let terms = AdminTerms::of(&Admin::default());
            let state = AdminState::new(Scheme::Http, Vec::new(), CredentialFile::default(), terms);
            let (state, request) = (State::new(state), TestRequest::default().to_http_request());
            let (release, busy) = mpsc::channel::<()>();
            let thread = tokio::task::spawn_blocking(move || busy.recv());
            let login = by_password(&request, &state, "ann".to_owned(), Zeroizing::new("x".to_owned()));
            assert!(timeout(Duration::ZERO, login).await.is_err());
            assert!(timeout(Duration::ZERO, state.passwords.turn()).await.is_err(), "the check is to come");
            drop(release);
            assert!(state.passwords.turn().await.is_some());
            assert!(thread.await.is_ok());
        });
    }
}
