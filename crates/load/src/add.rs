//! `homing load add`: the JSON reports of several processes or machines as one.
//!
//! The processes know nothing of each other: each has its own topics, verifies its own messages,
//! and is started by whatever starts programs there. So there is no coordinator that could fail,
//! and no port between load generators. The price: the sum can only say afterwards if the parts ran
//! at the same time, and their clocks must agree (NTP).

use super::args::AddArguments;
use super::refused::Refused;
use super::report::LoadReport;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest report that is read, in bytes. One of an hour has some 3 MiB.
const REPORT_MAX: u64 = 64 << 20;

/// Reads the reports and returns their sum, and a warning if they cannot be of one run.
///
/// # Errors
/// A file is no report, or is one of another scenario, version or QoS than the first.
pub(super) fn add(arguments: &AddArguments) -> Result<(LoadReport, Option<String>), Refused> {
    let mut parts = Vec::new();
    for file in &arguments.files {
        parts.push(read(file)?);
    }
    let warning = apart(&parts);
    let mut parts = parts.into_iter();
    let first = parts.next().ok_or_else(|| Refused("there is nothing to add".to_owned()))?;
    let others = parts.collect::<Vec<_>>();
    for (part, file) in others.iter().zip(arguments.files.iter().skip(1)) {
        let differs = |what: &str, one: &str, other: &str| {
            let file = file.display();
            Err(Refused(format!(
                "{file}: {what} is {other}, and {one} in the first report; such figures do not add up"
            )))
        };
        if part.scenario != first.scenario {
            return differs("the scenario", &first.scenario, &part.scenario);
        }
        if part.mqtt != first.mqtt {
            return differs("the MQTT version", &first.mqtt, &part.mqtt);
        }
        if part.qos != first.qos {
            return differs("the QoS", &first.qos.to_string(), &part.qos.to_string());
        }
    }
    Ok((first.add(others), warning))
}

fn read(file: &Path) -> Result<LoadReport, Refused> {
    let refused = |why: String| Refused(format!("{}: {why}", file.display()));
    let mut text = String::new();
    File::open(file)
        .and_then(|opened| opened.take(REPORT_MAX).read_to_string(&mut text))
        .map_err(|error| refused(format!("cannot be read: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| refused(format!("is not the output of homing load ... --json: {error}")))
}

/// Returns a warning if there is no moment that all parts measured.
fn apart(parts: &[LoadReport]) -> Option<String> {
    let last_begin = parts.iter().map(|part| part.measured_from_unix_s).fold(f64::NEG_INFINITY, f64::max);
    let first_end = parts.iter().map(|part| part.measured_until_unix_s).fold(f64::INFINITY, f64::min);
    let gap = last_begin - first_end;
    (gap > 0.0).then(|| {
        format!(
            "no moment was measured by all parts: one began {gap:.1} s after another had ended, or their clocks differ. \
             The rate is over the whole time"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn parts_that_did_not_overlap_are_told() {
        assert_eq!(apart(&[report(100.0, 1, 1), report(100.5, 1, 1)]), None);
        let warning = apart(&[report(100.0, 1, 1), report(103.0, 1, 1)]).unwrap();
        assert!(warning.contains("began 2.0 s after"), "{warning}");
    }
}
