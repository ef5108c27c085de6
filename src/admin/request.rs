//! A request: who asks, and with which parameters.
//!
//! The table of routes admits the caller of a request for programs before its handler runs. So a
//! handler that needs the caller takes an [`Asker`], and no handler can forget the scope.

use super::access::{Caller, PeerUser, Scope};
use super::browser_login::{login_of, may_use};
use super::failed::Failed;
use super::request_origin::origin_of;
use super::state::State;
use crate::clock;
use actix_web::HttpRequest;
use actix_web::error::QueryPayloadError;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{QueryConfig, ReqData};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Borrow;
use std::borrow::Cow;
use std::fmt::{self, Display, LowerHex};
use std::marker::PhantomData;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The caller of a request, whom the table of routes has admitted.
pub(super) type Asker = ReqData<Caller>;

/// Returns the rule that a query string with a mistake is a problem with its name.
pub(super) fn query_config() -> QueryConfig {
    QueryConfig::default()
        .error_handler(|error, request| mistake_in_query(&error, request.query_string()).into())
}

/// The parameters that are whole numbers, whichever request has them.
const NUMBERS: [&str; 5] = ["limit", "after", "min_queued", "min_queued_bytes", "min_in_flight"];

/// Returns the mistake of a query string. The error of a number does not name its parameter.
fn mistake_in_query(error: &QueryPayloadError, query: &str) -> Failed {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut numbers = pairs.filter(|(name, _)| NUMBERS.contains(name));
    match error {
        QueryPayloadError::Deserialize(mistake) if !mistake.to_string().contains('`') => {
            let wrong = numbers.find(|(_, value)| value.parse::<usize>().is_err());
            let named = |(name, value)| format!("{name} is {value:?}, and must be a whole number");
            Failed::Parameter(wrong.map_or_else(|| mistake.to_string(), named))
        }
        QueryPayloadError::Deserialize(mistake) => Failed::Parameter(mistake.to_string()),
        error => Failed::Parameter(error.to_string()),
    }
}

/// Returns the caller, who must have this scope. Errors: nothing proves who asks, another site may
/// have sent the request, or the scope is too small.
pub(super) fn caller(request: &HttpRequest, needed: Scope) -> Result<Caller, Failed> {
    let caller = known(request)?;
    permit(&caller, needed)?;
    Ok(caller)
}

/// Checks that a caller has this scope. Errors: the scope is too small.
pub(super) fn permit(caller: &Caller, needed: Scope) -> Result<(), Failed> {
    if caller.scope.includes(needed) { Ok(()) } else { Err(Failed::Forbidden(needed)) }
}

/// Returns the caller that the Unix socket, a token or the login of a browser proves. Errors:
/// nothing proves who asks, or another site may have sent the request.
fn known(request: &HttpRequest) -> Result<Caller, Failed> {
    if let Some(user) = request.conn_data::<PeerUser>() {
        return Ok(user.caller().with_origin(origin_of(request)));
    }
    let state = request.app_data::<State>().ok_or(Failed::Unauthorized)?;
    if let Some(header) = request.headers().get(AUTHORIZATION) {
        let token = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
        let token = token.ok_or(Failed::UnknownToken)?;
        let caller = state.credentials.known().caller_of_token(token, clock::unix_millis());
        return Ok(caller.map_err(Failed::from)?.with_origin(origin_of(request)));
    }
    let login = login_of(request, state).ok_or(Failed::Unauthorized)?;
    if may_use(request, &login) { Ok(login.caller) } else { Err(Failed::ForeignRequest) }
}

/// Reads the text of a query string. Errors: a parameter is unknown, or its value cannot be read.
pub(super) fn parse_query<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Failed> {
    let query = actix_web::web::Query::<T>::from_query(text);
    query.map(actix_web::web::Query::into_inner).map_err(|error| mistake_in_query(&error, text))
}

/// Returns the number of rows that a request asks for: 1 to `most`, and `default` if it names none.
/// Errors: the number is out of range.
pub(super) fn limit_of(given: Option<usize>, default: usize, most: usize) -> Result<usize, Failed> {
    let limit = given.unwrap_or(default);
    if (1..=most).contains(&limit) {
        Ok(limit)
    } else {
        Err(Failed::Parameter(format!("limit is {limit}, and must be 1 to {most}")))
    }
}

/// Returns the place in a list at which a page begins, of the cursor that a request has; 0 without.
/// Errors: the cursor is not one that this broker gave.
pub(super) fn place_of<T: TryFrom<u64>>(cursor: Option<&str>) -> Result<T, Failed> {
    let place = cursor.map_or(Ok(0), |text| u64::from_str_radix(text, 16));
    place.ok().and_then(|place| place.try_into().ok()).ok_or(Failed::Cursor)
}

/// Returns the cursor of the page that begins at a place of a list.
pub(super) fn cursor_to(place: impl LowerHex) -> String {
    format!("{place:x}")
}

/// Returns the value that has a word. Errors: none has it. Names all words.
pub(super) fn named<T: Copy, W: Borrow<str> + Display>(
    parameter: &str,
    word: &str,
    values: &[T],
    word_of: impl Fn(T) -> W,
) -> Result<T, Failed> {
    values.iter().copied().find(|value| word_of(*value).borrow() == word).ok_or_else(|| {
        let words: Vec<_> = values.iter().map(|value| word_of(*value)).collect();
        let words = match &*words {
            [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
            _ => words.concat(),
        };
        Failed::Parameter(format!("{parameter} is {word:?}, and must be {words}"))
    })
}

/// Returns the values that have the words of a list with commas. Takes each value once, so that the
/// work is bounded by the number of values. Errors: no value has a word, or a word comes twice.
pub(super) fn named_once<T: Copy + PartialEq>(
    parameter: &str,
    words: &str,
    values: &[T],
    word_of: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, Failed> {
    let mut found = Vec::new();
    for word in words.split(',') {
        let value = named(parameter, word, values, &word_of)?;
        if found.contains(&value) {
            return Err(Failed::Parameter(format!("{parameter} has {word} twice; name it once")));
        }
        found.push(value);
    }
    Ok(found)
}

/// A value that JSON has as an object. serde alone reads a struct from a list, too.
#[derive(Debug, Default)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }
        from.deserialize_map(Fields(PhantomData)).map(Object)
    }
}

/// Reads the JSON of a body. `form` is an example of it. Errors: the body is no object of this
/// form.
pub(super) fn read_body<'a, T: Deserialize<'a>>(body: &'a [u8], form: &str) -> Result<T, Failed> {
    let read: Result<Object<T>, _> = serde_json::from_slice(body);
    read.map(|Object(read)| read)
        .map_err(|error| Failed::Parameter(format!("the body must be like {form}: {error}")))
}

/// A time, such as `10s`.
pub(super) struct DurationText;

impl PartialSchema for DurationText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).examples(["1ms"]);
        text.pattern(Some("^([0-9]+(ms|s|m|h|d) ?)+$")).into()
    }
}

impl ToSchema for DurationText {
    fn name() -> Cow<'static, str> {
        "Duration".into()
    }
}

#[cfg(test)]
mod tests {
    use super::{Failed, Object, cursor_to, named, named_once, parse_query, place_of, read_body};

    #[test]
    fn a_cursor_leads_to_its_place_and_anything_else_is_refused() {
        assert_eq!(place_of::<u64>(None).ok(), Some(0));
        assert_eq!(place_of::<u64>(Some(&cursor_to(u64::MAX))).ok(), Some(u64::MAX));
        assert_eq!(place_of::<u32>(Some(&cursor_to(7_u32))).ok(), Some(7));
        for other in ["", "x", "-1", "100000000"] {
            assert!(matches!(place_of::<u32>(Some(other)), Err(Failed::Cursor)), "{other:?}");
        }
    }

    #[test]
    fn a_parameter_that_is_no_number_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "the text is refused")]
        struct Parameters {
            limit: Option<usize>,
            min_queued: Option<usize>,
        }
        let refused = |text: &str| parse_query::<Parameters>(text).expect_err("refused").to_string();
        assert_eq!(refused("limit=3&min_queued=x"), "min_queued is \"x\", and must be a whole number");
        assert_eq!(refused("limit="), "limit is \"\", and must be a whole number");
        assert_eq!(refused("limit=-1"), "limit is \"-1\", and must be a whole number");
        assert!(refused("limit=3&other=x").contains("`other`"));
    }

    #[test]
    fn a_body_is_an_object_and_no_list_of_its_fields() {
        #[derive(serde::Deserialize)]
        struct Body {
            #[serde(default)]
            inner: Object<Vec<u8>>,
        }
        assert!(read_body::<Body>(b"{}", "{}").is_ok_and(|body| body.inner.0.is_empty()));
        assert!(read_body::<Body>(b"[]", "{}").is_err());
        assert!(read_body::<Body>(br#"{"inner": []}"#, "{}").is_err());
    }

    #[test]
    fn an_unknown_word_is_refused_with_those_that_are_right() {
        let words = ["auto", "resend", "disconnect"];
        assert_eq!(named("by", "resend", &words, |word| word).ok(), Some("resend"));
        let refused = |words: &[&'static str]| match named("by", "x", words, |word| word) {
            Err(Failed::Parameter(what)) => what,
            _ => String::new(),
        };
        assert_eq!(refused(&words), "by is \"x\", and must be auto, resend or disconnect");
        assert_eq!(refused(&words[..2]), "by is \"x\", and must be auto or resend");
        assert_eq!(refused(&words[..1]), "by is \"x\", and must be auto");
    }

    #[test]
    fn a_list_of_words_has_each_once() {
        let words = ["sizes", "kinds"];
        let read = |list| named_once("detail", list, &words, |word| word);
        assert_eq!(read("kinds,sizes").ok(), Some(vec!["kinds", "sizes"]));
        let refused = read("kinds,sizes,kinds").err().map(|failed| failed.to_string());
        assert_eq!(refused.as_deref(), Some("detail has kinds twice; name it once"));
        assert!(read("kinds,").is_err());
    }
}
