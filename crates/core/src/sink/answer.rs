//! The meaning of an answer of a service.

use std::time::Duration;

/// The answer of a service to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceAnswer {
    /// The status.
    pub status: u16,
    /// The time that Retry-After asks for.
    pub retry_after: Option<Duration>,
    /// The value of Location.
    pub location: Option<String>,
    /// The beginning of the body, for operators.
    pub excerpt: String,
}

/// What an answer says about the messages of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The service has the messages.
    Accepted,
    /// The request is sent again.
    Again,
    /// The service will never take this request.
    Refused,
}

impl Verdict {
    /// Returns the verdict of a status.
    ///
    /// 401, 403 and 407 speak of the credentials of the sink, and not of its messages: a token that
    /// is renewed a minute late must not turn a queue into dead letters. 3xx is not followed, so an
    /// operator has to change the URL.
    pub fn of(status: u16) -> Verdict {
        match status {
            200..=299 => Verdict::Accepted,
            408 | 425 | 429 => Verdict::Again,
            status if Verdict::speaks_of_credentials(status) => Verdict::Again,
            400..=499 => Verdict::Refused,
            _ => Verdict::Again,
        }
    }

    /// Returns true for a status that speaks of the credentials of the sink.
    pub fn speaks_of_credentials(status: u16) -> bool {
        matches!(status, 401 | 403 | 407)
    }
}

impl ServiceAnswer {
    /// Says for operators what is wrong with the answer.
    pub fn complaint(&self) -> String {
        let ServiceAnswer { status, location, excerpt, .. } = self;
        let mut text = match (status, location) {
            (300..=399, Some(location)) => format!(
                "the service redirects to {location} (HTTP {status}), which is not followed: change the url of the sink"
            ),
            (300..=399, None) => {
                format!(
                    "the service redirects (HTTP {status}), which is not followed: change the url of the sink"
                )
            }
            (401 | 403 | 407, _) => {
                format!(
                    "the service refuses the credentials of the sink (HTTP {status}): see its headers and header_files"
                )
            }
            _ => format!("the service answers HTTP {status}"),
        };
        if !excerpt.is_empty() {
            text += ": ";
            text += excerpt;
        }
        text
    }
}

/// Returns the time that a value of Retry-After asks for: seconds, or a date such as
/// `Wed, 21 Oct 2026 07:28:00 GMT`. `unix_secs` is the time of day.
// RFC 9110 sections 10.2.3 and 5.6.7
pub fn retry_after(value: &str, unix_secs: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(Duration::from_secs(http_date(value)?.saturating_sub(unix_secs)))
}

/// Returns the seconds since 1970 of a date in the form that RFC 9110 prefers.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let parts: [&str; 5] = date.split(' ').collect::<Vec<_>>().try_into().ok()?;
    let [day, month, year, time, "GMT"] = parts else { return None };
    let time: [u64; 3] =
        time.split(':').map(|part| part.parse().ok()).collect::<Option<Vec<_>>>()?.try_into().ok()?;
    let [hour, minute, second] = time;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin with March here, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    /// Days from 1 March of the year 0 to 1 January 1970.
    const EPOCH: u64 = 719_468;
    Some((days - EPOCH) * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_if_the_service_has_the_messages() {
        for (verdict, statuses) in [
            (Verdict::Accepted, &[200, 201, 202, 204, 299][..]),
            (Verdict::Refused, &[400, 404, 405, 409, 410, 413, 415, 422, 431, 499]),
            (
                Verdict::Again,
                &[100, 301, 307, 308, 401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 599, 999],
            ),
        ] {
            for status in statuses {
                assert_eq!(Verdict::of(*status), verdict, "{status}");
            }
        }
    }

    #[test]
    fn a_complaint_names_the_location_of_a_redirect_and_the_beginning_of_the_body() {
        let answer = |status: u16, location: Option<&str>, excerpt: &str| ServiceAnswer {
            status,
            location: location.map(str::to_owned),
            excerpt: excerpt.to_owned(),
            ..ServiceAnswer::default()
        };
        let redirect = answer(308, Some("https://b/"), "").complaint();
        assert!(redirect.contains("redirects to https://b/ (HTTP 308)"), "{redirect}");
        assert_eq!(
            answer(422, None, "no such field").complaint(),
            "the service answers HTTP 422: no such field"
        );
        assert!(answer(401, None, "").complaint().contains("header_files"));
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let seconds = Duration::from_secs;
        assert_eq!(retry_after(" 120 ", 0), Some(seconds(120)));
        // 784111777 is the example of RFC 9110.
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(retry_after(date, 784_111_770), Some(seconds(7)));
        assert_eq!(retry_after(date, 784_111_780), Some(seconds(0)));
        assert_eq!(retry_after("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_799), Some(seconds(1)));
        for text in ["", "-1", "soon", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "1.5"] {
            assert_eq!(retry_after(text, 0), None, "{text}");
        }
        assert_eq!(retry_after("18446744073709551615", 0), Some(seconds(u64::MAX)));
        assert_eq!(retry_after("Sun, 99 Nov 1994 08:49:37 GMT", 0), None);
    }
}
