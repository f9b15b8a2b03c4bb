//! Pure: the active set of a hook: the guests that it calls, their order, and which of them replace
//! others.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::{BUILT_IN, Hook, IPUPolicySpec, Mode};
use jiff::Timestamp;
use kube::ResourceExt;

use super::observed_policy::{ObservedPolicy, partial_spec};
use super::report::spec_of;

/// A version of a policy: its UID and the generation of its spec.
pub type Version = (String, i64);

/// The active version of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveVersion {
    /// Name of the IPUPolicy.
    pub name: String,
    /// UID of the IPUPolicy.
    pub uid: String,
    /// The `metadata.generation` of this version.
    pub generation: i64,
    /// The `spec` of this version.
    pub spec: IPUPolicySpec,
    /// Whether its answers take effect; otherwise the operator only compares them.
    pub is_enforced: bool,
    /// Creation time of the IPUPolicy. The oldest policy wins a conflict.
    pub created: Option<Timestamp>,
    /// Reason why this version of the operator cannot read the spec, so that the guest is missing.
    pub unreadable: Option<String>,
}

/// The guests of one hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveSet {
    /// The stages of the chain, in order. Placement has exactly one.
    pub stages: Vec<Stage>,
    /// The policies in shadow mode.
    pub shadows: Vec<Shadow>,
    /// The enforced policies without a stage of their own.
    pub inactive: BTreeMap<String, Inactive>,
}

/// One stage of a chain. The operator calls the first of these guests whose `spec.match` selects
/// the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Names of IPUPolicies, or [`BUILT_IN`].
    pub guests: Vec<String>,
    /// Position in the chain; the lowest comes first.
    pub order: i32,
}

/// A policy in shadow mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Name of the IPUPolicy.
    pub policy: String,
    /// The guest that it would replace. `None` if it would get a stage of its own.
    pub replaces: Option<String>,
    /// Position in the chain, if it would get a stage of its own.
    pub order: i32,
}

/// Reason why an enforced policy has no stage of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// This policy replaces it.
    Replaced(String),
    /// It conflicts with another policy, for this reason.
    Refused(String),
}

/// Returns the active versions of all policies.
pub fn active_versions<'a>(
    policies: impl Iterator<Item = &'a ObservedPolicy>,
) -> Vec<ActiveVersion> {
    policies.filter_map(active_version).collect()
}

/// Builds the active set of a hook from the active versions of all policies.
pub fn active_set(versions: &[ActiveVersion], hook: Hook) -> ActiveSet {
    let mut of_hook: Vec<&ActiveVersion> = versions
        .iter()
        .filter(|version| version.spec.hook == hook)
        .collect();
    of_hook.sort_by_key(|version| (version.created, &version.name));
    let enforced = || {
        of_hook
            .iter()
            .copied()
            .filter(|version| version.is_enforced)
    };
    let (replacements, mut inactive) = replacements(&enforced().collect::<Vec<_>>(), hook);

    let mut stages: Vec<Stage> = Vec::new();
    // A refused policy can still be replaced; the replacement takes its stage.
    let mut push = |name: &str, order| {
        let mut guests = with_replacements(name, &replacements);
        guests.retain(|guest| !inactive.contains_key(guest));
        if !guests.is_empty() {
            stages.push(Stage { guests, order });
        }
    };
    let is_replacement = |version: &ActiveVersion| {
        let mut names = replacements.values();
        names.any(|name| *name == version.name)
    };
    if hook != Hook::Placement {
        for version in enforced().filter(|version| !is_replacement(version)) {
            push(&version.name, version.spec.order);
        }
    }
    // By name, not by age: restored or recreated policies keep their order.
    stages.sort_by(|first, second| {
        (first.order, first.guests.last()).cmp(&(second.order, second.guests.last()))
    });
    let built_in = Stage {
        guests: with_replacements(BUILT_IN, &replacements),
        order: 0,
    };
    let before = stages.partition_point(|stage| stage.order < 0);
    stages.insert(before, built_in);

    for (replaced, replacement) in &replacements {
        if replaced != BUILT_IN {
            inactive.insert(replaced.clone(), Inactive::Replaced(replacement.clone()));
        }
    }
    let shadows = of_hook.iter().filter(|version| !version.is_enforced);
    let shadows = shadows.map(|version| Shadow {
        policy: version.name.clone(),
        replaces: version
            .spec
            .replaced_guest()
            .map(|replaced| with_replacements(replaced, &replacements).swap_remove(0)),
        order: version.spec.order,
    });
    ActiveSet {
        shadows: shadows.collect(),
        stages,
        inactive,
    }
}

fn active_version(observed: &ObservedPolicy) -> Option<ActiveVersion> {
    let policy = &observed.policy;
    let status = policy.status.as_ref();
    let active = status.and_then(|status| status.active.as_ref());
    let (spec, unreadable) = match (active.map(spec_of), &observed.unreadable) {
        (Some(Ok(spec)), _) => (spec, None),
        (Some(Err(reason)), _) => {
            let read = active.and_then(|active| partial_spec(&active.spec));
            (read.unwrap_or_else(|| policy.spec.clone()), Some(reason))
        }
        (None, Some(reason)) => (policy.spec.clone(), Some(reason.clone())),
        (None, None) => return None,
    };
    let generation = active.map(|active| active.generation);
    Some(ActiveVersion {
        name: policy.name_any(),
        uid: policy.uid().unwrap_or_default(),
        generation: generation
            .or(policy.metadata.generation)
            .unwrap_or_default(),
        is_enforced: spec.mode == Mode::Enforce || active.is_some_and(|active| active.promoted),
        created: policy.creation_timestamp().map(|time| time.0),
        spec,
        unreadable,
    })
}

/// Returns the replacement of each replaced guest, and the refused policies. The oldest policy
/// comes first.
fn replacements(
    enforced: &[&ActiveVersion],
    hook: Hook,
) -> (BTreeMap<String, String>, BTreeMap<String, Inactive>) {
    let mut replacements = BTreeMap::<String, String>::new();
    let mut inactive = BTreeMap::new();
    for version in enforced {
        let Some(mut replaced) = version.spec.replaced_guest() else {
            continue;
        };
        let exists = |name: &str| name == BUILT_IN || enforced.iter().any(|v| v.name == name);
        if !exists(replaced) {
            // Without the replaced policy, the version gets a stage of its own. Placement has only
            // one stage.
            if hook != Hook::Placement {
                continue;
            }
            replaced = BUILT_IN;
        }
        let refusal = if let Some(replacement) = replacements.get(replaced) {
            Some(format!(
                "the IPUPolicy {replacement} already replaces {replaced}, and the oldest replacement wins; to replace \
                 that IPUPolicy instead, set spec.replaces to {replacement}"
            ))
        } else if with_replacements(&version.name, &replacements)
            .iter()
            .any(|name| name == replaced)
        {
            Some(format!(
                "spec.replaces is {replaced:?}, which already replaces this IPUPolicy, and the older one wins; \
                 remove spec.replaces from one of them"
            ))
        } else {
            None
        };
        match refusal {
            Some(refusal) => {
                inactive.insert(version.name.clone(), Inactive::Refused(refusal));
            }
            None => {
                replacements.insert(replaced.to_owned(), version.name.clone());
            }
        }
    }
    (replacements, inactive)
}

/// Returns `name` after its replacements, the last replacement first.
fn with_replacements(name: &str, replacements: &BTreeMap<String, String>) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    while let Some(replacement) = replacements.get(&names[0]) {
        names.insert(0, replacement.clone());
    }
    names
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An active version of a policy that was created at the second `age`.
    fn one(name: &str, age: i64, spec: &Value) -> ActiveVersion {
        let mut whole = json!({"hook": "Validation", "module": {"image": {"file": "x.wasm"}}});
        json_patch::merge(&mut whole, spec);
        let spec: IPUPolicySpec = serde_json::from_value(whole).unwrap();
        ActiveVersion {
            name: name.to_owned(),
            uid: name.to_owned(),
            generation: 1,
            is_enforced: spec.mode == Mode::Enforce,
            spec,
            created: Some(Timestamp::from_second(age).unwrap()),
            unreadable: None,
        }
    }

    fn stages(versions: &[ActiveVersion], hook: Hook) -> Vec<Vec<String>> {
        let active_set = active_set(versions, hook);
        let stages = active_set.stages.into_iter();
        stages.map(|stage| stage.guests).collect()
    }

    #[test]
    fn without_a_policy_the_chain_is_the_built_in_guest() {
        for hook in [Hook::Defaulting, Hook::Validation, Hook::Placement] {
            assert_eq!(stages(&[], hook), [["built-in"]]);
        }
    }

    #[test]
    fn a_chain_has_the_built_in_guest_at_0_before_others_of_that_order() {
        let versions = [
            one("last", 1, &json!({"order": 5})),
            one("beside", 2, &json!({})),
            one("first", 3, &json!({"order": -1})),
            one("other-hook", 4, &json!({"hook": "Defaulting"})),
        ];
        assert_eq!(
            stages(&versions, Hook::Validation),
            [["first"], ["built-in"], ["beside"], ["last"]]
        );
    }

    #[test]
    fn policies_of_one_order_are_called_by_name_whatever_their_age() {
        let chain = |ages: [i64; 3]| {
            let [first, second, third] = ages;
            let versions = [
                one("b", first, &json!({"order": 2})),
                one("a", second, &json!({"order": 2})),
                one("new-a", third, &json!({"order": 9, "replaces": "a"})),
            ];
            stages(&versions, Hook::Validation)
        };
        let expected = [vec!["built-in"], vec!["new-a", "a"], vec!["b"]];
        for ages in [[1, 2, 3], [3, 2, 1], [2, 1, 1]] {
            assert_eq!(chain(ages), expected, "{ages:?}");
        }
    }

    #[test]
    fn a_replacement_precedes_the_replaced_policy_in_its_stage() {
        let versions = [
            one("a", 1, &json!({"order": 7})),
            one("b", 2, &json!({"replaces": "a"})),
            one("c", 3, &json!({"replaces": "b", "order": -9})),
            one("d", 4, &json!({"replaces": "built-in"})),
        ];
        assert_eq!(
            stages(&versions, Hook::Validation),
            [vec!["d", "built-in"], vec!["c", "b", "a"]]
        );
        let active_set = active_set(&versions, Hook::Validation);
        let replaced = |by: &str| Inactive::Replaced(by.to_owned());
        let inactive = [("a", replaced("b")), ("b", replaced("c"))];
        let inactive = inactive.map(|(name, why)| (name.to_owned(), why));
        assert_eq!(active_set.inactive, BTreeMap::from(inactive));
    }

    #[test]
    fn placement_has_one_stage_and_the_oldest_policy_wins() {
        let versions = [
            one("later", 9, &json!({"hook": "Placement"})),
            one("older", 3, &json!({"hook": "Placement", "order": 4})),
        ];
        assert_eq!(
            stages(&versions, Hook::Placement),
            [vec!["older", "built-in"]]
        );
        let active_set = active_set(&versions, Hook::Placement);
        let Some(Inactive::Refused(why)) = active_set.inactive.get("later") else {
            panic!("{active_set:?}");
        };
        assert!(why.contains("set spec.replaces to older"), "{why}");
    }

    #[test]
    fn a_policy_outlives_the_policy_that_it_replaces() {
        let placement = json!({"hook": "Placement", "replaces": "gone"});
        assert_eq!(
            stages(&[one("a", 1, &placement)], Hook::Placement),
            [vec!["a", "built-in"]]
        );
        let validation = one("a", 1, &json!({"replaces": "gone", "order": 2}));
        assert_eq!(
            stages(&[validation], Hook::Validation),
            [["built-in"], ["a"]]
        );
    }

    #[test]
    fn the_older_of_two_policies_that_replace_each_other_wins() {
        let versions = [
            one("a", 1, &json!({"replaces": "b"})),
            one("b", 2, &json!({"replaces": "a"})),
            one("self", 3, &json!({"replaces": "self"})),
        ];
        let active_set = active_set(&versions, Hook::Validation);
        let guests: Vec<_> = active_set
            .stages
            .iter()
            .map(|stage| stage.guests.join(" "))
            .collect();
        assert_eq!(guests, ["built-in", "a"]);
        assert!(
            matches!(active_set.inactive["b"], Inactive::Replaced(_)),
            "{active_set:?}"
        );
        assert!(matches!(active_set.inactive["self"], Inactive::Refused(_)));
    }

    #[test]
    fn a_shadow_policy_is_compared_with_the_guest_that_it_would_replace() {
        let placement = json!({"hook": "Placement", "mode": "Shadow"});
        let beside = json!({"mode": "Shadow", "order": 3});
        let versions = [
            one("active", 1, &json!({"hook": "Placement"})),
            one("candidate", 2, &placement),
            one("extra", 3, &beside),
        ];
        let shadow = &active_set(&versions, Hook::Placement).shadows[0];
        assert_eq!(shadow.replaces.as_deref(), Some("active"));
        let shadow = &active_set(&versions, Hook::Validation).shadows[0];
        assert_eq!((shadow.replaces.as_deref(), shadow.order), (None, 3));
    }
}
