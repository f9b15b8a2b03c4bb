//! Pure: reads from VIPUControllers which V-IPU controllers accept no new partitions and why, and
//! what fits now.

use std::collections::BTreeMap;

use ipu_api::naming;
use ipu_api::vipu_controller::{VIPUController, VIPUControllerSpec, VIPUControllerStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;

use crate::condition::shown;

/// Condition: the V-IPU controller answers.
pub const READY: &str = "Ready";

/// Condition: it is in the admin's list.
pub const LISTED: &str = "Listed";

/// Condition: it is being drained, and has no partition of the operator left.
pub const DRAINED: &str = "Drained";

/// A V-IPU controller that accepts no new partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnavailableController {
    /// `host:port`.
    pub controller: String,
    /// A sentence for each reason.
    pub reasons: Vec<String>,
}

/// A V-IPU controller whose free capacity is reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReservedController {
    /// `host:port`.
    pub controller: String,
    /// The request with the reservation.
    pub reserved_for: String,
}

/// The largest partition that a new request would get now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fit {
    /// Its IPUs.
    pub ipus: u32,
    /// The V-IPU controllers with that capacity.
    pub controllers: Vec<String>,
}

/// The name of the object.
pub fn name(one: &VIPUController) -> &str {
    one.metadata.name.as_deref().unwrap_or_default()
}

/// The name of the object for a user's input: the name itself, with or without its kind, or
/// `host:port`.
pub fn object_name(typed: &str) -> String {
    let bare = typed.split_once('/').map_or(typed, |(_, name)| name);
    if bare.contains(':') {
        naming::vipu_controller(bare)
    } else {
        bare.to_owned()
    }
}

/// `host:port`. An object without a status has only its name.
pub fn address(one: &VIPUController) -> String {
    let address = one.status.as_ref().map(|status| status.address.as_str());
    let known = address.filter(|address| !address.is_empty());
    shown(known.unwrap_or_else(|| name(one)))
}

/// A condition of it.
pub fn condition<'a>(one: &'a VIPUController, type_: &str) -> Option<&'a Condition> {
    let conditions = &one.status.as_ref()?.conditions;
    conditions.iter().find(|found| found.type_ == type_)
}

/// Returns why it accepts no new partitions. `None`: it accepts some.
pub fn unavailable(one: &VIPUController) -> Option<UnavailableController> {
    let unanswered = match condition(one, READY) {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(problem("is not ready", ready)),
        None => Some("has not been seen by the operator yet".to_owned()),
    };
    let unlisted = condition(one, LISTED).filter(|listed| listed.status == "False");
    let unlisted = unlisted.map(|listed| problem("is not in the admin's list", listed));
    let reasons = [cordon_reason(&one.spec), unanswered, unlisted];
    let reasons: Vec<_> = reasons.into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| UnavailableController {
        controller: address(one),
        reasons,
    })
}

/// The user who has cordoned or drained it, and the reason.
fn cordon_reason(spec: &VIPUControllerSpec) -> Option<String> {
    let state = match (spec.cordoned, spec.draining) {
        (_, true) => "is being drained",
        (true, false) => "is cordoned",
        (false, false) => return None,
    };
    let by = spec.requested_by.as_deref();
    let by = by.map_or_else(String::new, |user| format!(" by {}", shown(user)));
    let why = spec.reason.as_deref();
    let why = why.map_or_else(String::new, |words| format!(": {}", shown(words)));
    Some(format!("{state}{by}{why}"))
}

fn problem(state: &str, of: &Condition) -> String {
    let mut text = format!("{state} since {}", of.last_transition_time.0);
    for words in [&of.reason, &of.message] {
        if !words.is_empty() {
            text.push_str(": ");
            text.push_str(&shown(words));
        }
    }
    text
}

/// The largest partition that a new request would get now, on an open V-IPU controller with nodes
/// for this node selector. `None`: nothing fits.
pub fn largest_fit<'a>(
    all: impl Iterator<Item = &'a VIPUController>,
    node_selector: &BTreeMap<String, String>,
) -> Option<Fit> {
    let mut best: Option<Fit> = None;
    let open = all.filter(|one| unavailable(one).is_none());
    for one in open.filter(|one| suits(one, node_selector)) {
        let largest = one.status.as_ref().map(fit);
        let Some(ipus) = largest.filter(|ipus| *ipus > 0) else {
            continue;
        };
        match &mut best {
            Some(fit) if fit.ipus > ipus => {}
            Some(fit) if fit.ipus == ipus => fit.controllers.push(address(one)),
            _ => {
                best = Some(Fit {
                    ipus,
                    controllers: vec![address(one)],
                });
            }
        }
    }
    best
}

/// The request with the reservation of its free capacity.
pub fn reserved(one: &VIPUController) -> Option<ReservedController> {
    let whom = one.status.as_ref()?.reserved_for.as_deref()?;
    Some(ReservedController {
        controller: address(one),
        reserved_for: shown(whom),
    })
}

/// The largest new partition on it. Earlier versions of the operator report only the free IPUs.
fn fit(status: &VIPUControllerStatus) -> u32 {
    status.ipus.largest_fit.unwrap_or(status.ipus.largest_free)
}

fn suits(one: &VIPUController, node_selector: &BTreeMap<String, String>) -> bool {
    let status = one.status.as_ref();
    status.is_some_and(|status| {
        let required = node_selector.get(&status.label_key);
        required.is_none_or(|value| *value == status.label_value)
    })
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "objects of tests read best as literals where they are used"
)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn controller(name: &str, spec: Value, ready: &str, largest: u32) -> VIPUController {
        let condition = |type_: &str, status: &str| {
            json!({
                "type": type_, "status": status, "reason": "Unreachable", "message": "it does not answer",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "VIPUController",
            "metadata": {"name": format!("{name}-8090")},
            "spec": spec,
            "status": {
                "address": format!("{name}:8090"), "summary": "",
                "ipus": {"total": 16, "used": 0, "usedByOthers": 0, "largestFree": largest},
                "conditions": [condition("Ready", ready), condition("Listed", "True")],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_controller_is_named_by_its_object_or_its_address() {
        for (typed, expected) in [
            ("pod1.lab-8090", "pod1.lab-8090"),
            ("pod1.lab:8090", "pod1.lab-8090"),
            ("vipucontroller.graphcore.ai/pod1.lab-8090", "pod1.lab-8090"),
            ("vipu/pod1.lab-8090", "pod1.lab-8090"),
        ] {
            assert_eq!(object_name(typed), expected, "{typed}");
        }
        assert!(object_name("[fd00::1]:8090").starts_with("vipu-"));
    }

    #[test]
    fn a_controller_that_takes_no_partitions_says_who_closed_it_and_why() {
        let cordoned = json!({"cordoned": true, "requestedBy": "alice", "reason": "new firmware"});
        let draining = json!({"cordoned": true, "draining": true});
        for (spec, ready, expected) in [
            (json!({}), "True", &[][..]),
            (
                cordoned,
                "True",
                &["is cordoned by alice: new firmware"][..],
            ),
            (
                draining,
                "False",
                &[
                    "is being drained",
                    "is not ready since 2026-01-01T00:00:00Z: Unreachable: it does not answer",
                ],
            ),
        ] {
            let found = unavailable(&controller("pod1", spec, ready, 4));
            let reasons = found.map(|one| one.reasons).unwrap_or_default();
            assert_eq!(reasons, expected);
        }
        let mut unseen = controller("pod1", json!({}), "True", 4);
        unseen.status = None;
        let found = unavailable(&unseen).unwrap();
        assert_eq!(found.controller, "pod1-8090");
        assert_eq!(found.reasons, ["has not been seen by the operator yet"]);
    }

    #[test]
    fn the_largest_fit_is_that_of_controllers_that_take_partitions() {
        let open = || json!({});
        let all = [
            controller("pod1", json!({"cordoned": true}), "True", 64),
            controller("pod2", open(), "False", 32),
            controller("pod3", open(), "True", 4),
            controller("pod4", open(), "True", 8),
            controller("pod5", open(), "True", 8),
        ];
        let expected = Fit {
            ipus: 8,
            controllers: vec!["pod4:8090".to_owned(), "pod5:8090".to_owned()],
        };
        let any = BTreeMap::new();
        assert_eq!(largest_fit(all.iter(), &any), Some(expected));
        assert_eq!(largest_fit(all[..2].iter(), &any), None);
        let full = controller("pod6", open(), "True", 0);
        assert_eq!(largest_fit([full].iter(), &any), None);
    }

    #[test]
    fn what_is_reserved_or_has_other_nodes_does_not_fit() {
        let mut all = [
            controller("pod1", json!({}), "True", 16),
            controller("pod2", json!({}), "True", 8),
            controller("pod3", json!({}), "True", 4),
        ];
        for (one, label) in all.iter_mut().zip(["pod1", "pod2", "pod3"]) {
            let status = one.status.as_mut().unwrap();
            "ipunode".clone_into(&mut status.label_key);
            label.clone_into(&mut status.label_value);
        }
        let first = all[0].status.as_mut().unwrap();
        first.ipus.largest_fit = Some(0);
        first.reserved_for = Some("default/large".to_owned());
        let sizes = |selector: &[(&str, &str)]| {
            let selector = selector.iter();
            let selector = selector.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            largest_fit(all.iter(), &selector.collect()).map(|fit| fit.ipus)
        };
        assert_eq!(sizes(&[]), Some(8));
        assert_eq!(sizes(&[("zone", "a")]), Some(8));
        assert_eq!(sizes(&[("ipunode", "pod3")]), Some(4));
        assert_eq!(sizes(&[("ipunode", "pod1")]), None);
        let reserved: Vec<_> = all.iter().filter_map(reserved).collect();
        let expected = ReservedController {
            controller: "pod1:8090".to_owned(),
            reserved_for: "default/large".to_owned(),
        };
        assert_eq!(reserved, [expected]);
    }
}
