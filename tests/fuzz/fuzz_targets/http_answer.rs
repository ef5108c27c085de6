//! Any bytes as an answer of the HTTP service that decides logins, and as the file with the headers
//! of requests. The first byte chooses the status. Nobody is let in but by 204, or by 200 with a
//! JSON object whose `result` is "allow", and whose rules never contradict their own coverage.
#![no_main]

use homing::access::grant::SessionRules;
use homing::access::permit::Coverage;
use homing::access::rule::ClientNames;
use homing::auth::http::answer::{HttpAnswer, read_answer};
use homing::auth::http::headers::HttpHeaders;
use homing::mqtt::topic;
use serde_json::Value;
use std::path::Path;

const NOW: u64 = 1_780_000_000_000;
const STATUSES: [u16; 8] = [200, 204, 100, 201, 302, 401, 500, 599];
const TOPICS: [&str; 7] = ["a", "a/b", "/", "ann", "ann/c", "$x", "$x/a"];
const FILTERS: [&str; 6] = ["#", "+", "a/#", "a/b", "ann/#", "$x/#"];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(headers) = HttpHeaders::parse(Path::new("headers"), input) {
        let is_line = |text: &str| text.bytes().all(|byte| byte == b'\t' || (b' '..0x7F).contains(&byte));
        assert!(headers.iter().all(|(name, value)| !name.is_empty() && is_line(name) && is_line(value)));
    }
    let Some((first, body)) = input.split_first() else { return };
    let status = STATUSES[usize::from(*first) % STATUSES.len()];
    let Ok(HttpAnswer::Allow { rules, remaining_ms }) = read_answer(NOW, status, body) else { return };
    if status == 204 {
        return assert!(rules.is_none() && remaining_ms.is_none());
    }
    let object: Value = serde_json::from_slice(body).expect("JSON");
    assert_eq!((status, object.get("result").and_then(Value::as_str)), (200, Some("allow")));
    assert_ne!(remaining_ms, Some(0));
    let Some(SessionRules::Permit(permit)) = rules else { return };
    let names = ClientNames::new(Some("ann"), "c");
    for filter in FILTERS {
        let coverage = permit.coverage(filter, names);
        for topic in TOPICS.into_iter().filter(|topic| topic::matches(filter, topic)) {
            match coverage {
                Coverage::Covered => assert!(permit.may_read(topic, names), "{filter} {topic}"),
                Coverage::Disjoint => assert!(!permit.may_read(topic, names), "{filter} {topic}"),
                Coverage::Partial => {}
            }
        }
    }
});
