//! Any bytes as an ACL file, with the user `ann`. A filter that a permit covers, or is disjoint
//! from, must decide so for each topic of a small alphabet.
#![no_main]

use homing::access::permit::Coverage;
use homing::access::rule::ClientNames;
use homing::auth::acl_file;
use homing::mqtt::topic;
use std::path::Path;

const TOPICS: [&str; 12] =
    ["a", "b", "a/b", "a/", "/", "/a", "a/b/c", "ann", "a/ann", "ann/c", "$x", "$x/a"];
const FILTERS: [&str; 10] = ["#", "+", "a/#", "a/+", "+/b", "a/b", "/#", "ann/#", "$x/#", "+/+/#"];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Ok(acl) = acl_file::parse(Path::new("acl"), input) else { return };
    for user in [None, Some("ann")] {
        let (permit, names) = (acl.permit_of(user), ClientNames::new(user, "c"));
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
    }
});
