//! Texts of a service, without the secrets that the sink has sent to it. A service may write the
//! request into its answer.

/// Bytes of the shortest value that is hidden. A shorter one would hide half of each text.
const VALUE: usize = 4;

/// Bytes of the shortest word of a value that is hidden, such as the token behind `Bearer`.
const WORD: usize = 8;

/// Returns a text with `...` in place of each secret: of whole values, and of their words.
pub(super) fn hide<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let words = |value: &'a str| value.split_ascii_whitespace().filter(|word| word.len() >= WORD);
    let mut all: Vec<&str> = secrets
        .filter(|value| value.len() >= VALUE)
        .flat_map(|value| std::iter::once(value).chain(words(value)))
        .collect();
    // A value before the words in it.
    all.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    all.into_iter().fold(text.to_owned(), |text, secret| match text.contains(secret) {
        true => text.replace(secret, "..."),
        false => text,
    })
}

/// Returns an address without its query.
pub(super) fn without_query(address: &str) -> String {
    match address.split_once('?') {
        Some((before, _)) => format!("{before}?..."),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_repeats_of_a_request_is_hidden() {
        let secrets = ["Bearer eyJhbGciOi.x", "hunter2", "key=a1b2c3", "1"];
        let hidden = |text: &str| hide(text, secrets.into_iter());
        assert_eq!(hidden("Authorization: Bearer eyJhbGciOi.x is old"), "Authorization: ... is old");
        assert_eq!(hidden("the token eyJhbGciOi.x is old"), "the token ... is old");
        assert_eq!(hidden("Bearer? hunter2! /in?key=a1b2c3 1"), "Bearer? ...! /in?... 1");
        assert_eq!(without_query("https://idp/login?token=a"), "https://idp/login?...");
        assert_eq!(without_query("https://idp/login"), "https://idp/login");
    }
}
