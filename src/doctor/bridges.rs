//! The other brokers of the bridges: each address is tried as the bridge does it.

use crate::broker::bridges::probe::{Accepts, Probed, probe};
use crate::config::{Bridge, Config};
use crate::finding::{Check, Finding};

/// Returns a finding for each address of a bridge, and one for each thing that its broker refuses.
/// An address that fails is a fault only if no other address of the bridge is accepted.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    if config.bridges.is_empty() {
        return Vec::new();
    }
    match probe(&config.bridges) {
        Ok(all) => config.bridges.iter().flat_map(|bridge| of_bridge(bridge, &all)).collect(),
        Err(error) => vec![Finding::warn(Check::Bridge, format!("the bridges cannot be tried: {error}"))],
    }
}

fn of_bridge(bridge: &Bridge, all: &[Probed]) -> Vec<Finding> {
    let own = all.iter().filter(|probed| probed.bridge == bridge.label());
    let has_other = own.clone().any(|probed| matches!(probed.found, Some(Ok(_))));
    own.flat_map(|probed| of_address(probed, has_other)).collect()
}

fn of_address(probed: &Probed, has_other: bool) -> Vec<Finding> {
    let Probed { bridge, address, client_id, found } = probed;
    let place = format!("{bridge}: {address}");
    match found {
        None => {
            vec![Finding::warn(Check::Bridge, format!("{place}: not tried, because others took a minute"))]
        }
        Some(Ok(accepts)) => accepted(&place, accepts),
        Some(Err(why)) if has_other => {
            vec![Finding::warn(
                Check::Bridge,
                format!("{place}: {why}; another address of the bridge accepts it"),
            )]
        }
        Some(Err(why)) => {
            let advice =
                format!("The bridge tries again and again. This was tried as the client {client_id}");
            vec![Finding::fail(Check::Bridge, format!("{place}: {why}")).advise(advice)]
        }
    }
}

fn accepted(place: &str, accepts: &Accepts) -> Vec<Finding> {
    let Accepts { version, filters, refused, limits } = accepts;
    let granted = match (filters - refused.len(), filters) {
        (_, 0) => "and is asked for no filter".to_owned(),
        (granted, asked) => format!("and grants {granted} of {asked} filters"),
    };
    let mut all = vec![Finding::ok(Check::Bridge, format!("{place} accepts MQTT {version}, {granted}"))];
    all.extend(refused.iter().map(|(filter, reason)| {
        let text = format!("{place} does not let the bridge subscribe to {filter}: {reason}");
        Finding::fail(Check::Bridge, text)
            .advise("Its messages do not come. Change the rules there, or the topics of the bridge")
    }));
    all.extend(limits.iter().map(|limit| Finding::warn(Check::Bridge, format!("{place} {limit}"))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    #[test]
    fn an_address_that_fails_is_a_fault_unless_another_one_is_accepted() {
        let probed = |address: &str, found| Probed {
            bridge: "cloud".to_owned(),
            address: address.to_owned(),
            client_id: "homing-cloud-doctor".to_owned(),
            found,
        };
        let accepts = || Accepts {
            version: crate::mqtt::packet::ProtocolVersion::V5,
            filters: 2,
            refused: vec![("orders/#".to_owned(), crate::mqtt::packet::ReasonCode::NOT_AUTHORIZED)],
            limits: vec!["keeps no retained messages".to_owned()],
        };
        let bridge = Bridge { name: Some("cloud".to_owned()), ..Bridge::default() };
        let severities = |all: &[Probed]| -> Vec<Severity> {
            of_bridge(&bridge, all).iter().map(|finding| finding.severity).collect()
        };
        let down = || probed("mqtt://a", Some(Err("cannot connect".to_owned())));
        assert_eq!(severities(&[down()]), [Severity::Fail]);
        assert_eq!(severities(&[probed("mqtt://a", None)]), [Severity::Warn]);
        let up = probed("mqtt://b", Some(Ok(accepts())));
        let of_all = [Severity::Warn, Severity::Ok, Severity::Fail, Severity::Warn];
        assert_eq!(severities(&[down(), up]), of_all);
    }
}
