//! Pure: the existing objects that a policy would refuse, as a part of its status.

use ipu_api::ipupolicy::{ExistingObjects, Hook, IPUPolicyStatus, Mode};

use crate::report::spec_of;

/// Returns the newest review by the active version, if it is a Validation policy in mode Shadow.
/// `found` is the last review of this replica; a former leader can have written a newer one into
/// the status.
pub(crate) fn of(
    status: &IPUPolicyStatus,
    found: Option<ExistingObjects>,
) -> Option<ExistingObjects> {
    let active = status.active.as_ref().filter(|active| !active.promoted)?;
    let spec = spec_of(active).ok()?;
    if spec.hook != Hook::Validation || spec.mode != Mode::Shadow {
        return None;
    }
    let reviews = [status.existing.clone(), found].into_iter().flatten();
    reviews
        .filter(|review| review.generation == active.generation)
        .max_by_key(|review| review.at.0)
}

#[cfg(test)]
mod tests {
    use ipu_api::ipupolicy::Revision;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Map, json};

    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn review(generation: i64, second: i64) -> ExistingObjects {
        ExistingObjects {
            generation,
            reviewed: 10,
            refused: 1,
            failed: 0,
            samples: Vec::new(),
            at: at(second),
        }
    }

    fn status(hook: &str, mode: &str, existing: Option<ExistingObjects>) -> IPUPolicyStatus {
        let spec = json!({"hook": hook, "mode": mode, "module": {"image": {"file": "x.wasm"}}});
        let spec: Map<_, _> = serde_json::from_value(spec).unwrap();
        IPUPolicyStatus {
            active: Some(Revision {
                generation: 2,
                digest: "sha256:1".to_owned(),
                since: at(0),
                promoted: false,
                spec,
            }),
            existing,
            ..IPUPolicyStatus::default()
        }
    }

    #[test]
    fn the_newest_review_by_the_active_version_counts() {
        let stored = |existing| status("Validation", "Shadow", existing);
        assert_eq!(of(&stored(None), None), None);
        assert_eq!(of(&stored(None), Some(review(2, 5))), Some(review(2, 5)));
        let newer = stored(Some(review(2, 9)));
        assert_eq!(of(&newer, Some(review(2, 5))), Some(review(2, 9)));
        assert_eq!(of(&newer, None), Some(review(2, 9)));
        let older = stored(Some(review(1, 9)));
        assert_eq!(of(&older, Some(review(3, 9))), None);
    }

    #[test]
    fn only_a_validation_policy_in_mode_shadow_has_a_review() {
        for (hook, mode) in [
            ("Validation", "Enforce"),
            ("Defaulting", "Shadow"),
            ("Placement", "Shadow"),
        ] {
            let status = status(hook, mode, Some(review(2, 9)));
            assert_eq!(of(&status, Some(review(2, 9))), None, "{hook} {mode}");
        }
        let mut promoted = status("Validation", "Shadow", Some(review(2, 9)));
        promoted.active.as_mut().unwrap().promoted = true;
        assert_eq!(of(&promoted, None), None);
    }
}
