//! Pure: which guests are asked at a hook, in which order, and in whose place.

use std::collections::BTreeMap;

use ipu_api::ipupolicy::{BUILT_IN, Hook, IPUPolicy, IPUPolicySpec, Mode};
use jiff::Timestamp;
use kube::ResourceExt;

use super::report::spec_of;

/// The active version of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Name of the IPUPolicy.
    pub name: String,
    /// UID of the IPUPolicy.
    pub uid: String,
    /// The `metadata.generation` that this version came from.
    pub generation: i64,
    /// What it asks for.
    pub spec: IPUPolicySpec,
    /// Whether its answers count.
    pub counts: bool,
    /// When the IPUPolicy was made: of two that claim one place the older has it.
    pub created: Option<Timestamp>,
}

/// Who is asked at one hook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineup {
    /// In this order. At Placement there is exactly one seat.
    pub seats: Vec<Seat>,
    /// Whose answers are compared.
    pub trials: Vec<Trial>,
    /// Members that have no seat of their own, and why.
    pub aside: BTreeMap<String, Aside>,
}

/// One place in a chain: the first of these guests that the request concerns is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Names of IPUPolicies, or [`BUILT_IN`].
    pub guests: Vec<String>,
    /// Its place; lower ones come first.
    pub order: i32,
}

/// A guest whose answers are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Name of the IPUPolicy.
    pub guest: String,
    /// The guest that sits in the seat that it would take; none where it would have one of its own.
    pub against: Option<String>,
    /// Its place in the chain, where it would have a seat of its own.
    pub order: i32,
}

/// Why a member that counts has no seat of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// That policy decides in its place.
    Replaced(String),
    /// It contradicts others, in a sentence.
    Refused(String),
}

/// The active versions of all policies.
pub fn members<'a>(policies: impl Iterator<Item = &'a IPUPolicy>) -> Vec<Member> {
    policies.filter_map(member).collect()
}

/// The guests that a hook asks, where `members` are active.
pub fn lineup(members: &[Member], hook: Hook) -> Lineup {
    let mut of_hook: Vec<&Member> = members.iter().filter(|m| m.spec.hook == hook).collect();
    of_hook.sort_by_key(|member| (member.created, &member.name));
    let counting = || of_hook.iter().copied().filter(|member| member.counts);
    let claiming: Vec<&Member> = counting().collect();
    let (heirs, mut aside) = heirs(&claiming, hook);

    let mut seats: Vec<Seat> = Vec::new();
    // Who is refused may still be replaced: then its heir has the seat, and it has none.
    let mut sit = |name: &str, order| {
        let mut guests = line_of(name, &heirs);
        guests.retain(|guest| !aside.contains_key(guest));
        if !guests.is_empty() {
            seats.push(Seat { guests, order });
        }
    };
    let is_heir = |member: &Member| heirs.values().any(|heir| *heir == member.name);
    if hook != Hook::Placement {
        for member in counting().filter(|member| !is_heir(member)) {
            sit(&member.name, member.spec.order);
        }
    }
    seats.sort_by_key(|seat| seat.order);
    let built_in = Seat {
        guests: line_of(BUILT_IN, &heirs),
        order: 0,
    };
    let before = seats.partition_point(|seat| seat.order < 0);
    seats.insert(before, built_in);

    for (replaced, heir) in &heirs {
        if replaced != BUILT_IN {
            aside.insert(replaced.clone(), Aside::Replaced(heir.clone()));
        }
    }
    let trials = of_hook.iter().filter(|member| !member.counts);
    let trials = trials.map(|member| Trial {
        guest: member.name.clone(),
        against: member
            .spec
            .place_of()
            .map(|place| line_of(place, &heirs).swap_remove(0)),
        order: member.spec.order,
    });
    Lineup {
        trials: trials.collect(),
        seats,
        aside,
    }
}

fn member(policy: &IPUPolicy) -> Option<Member> {
    let active = policy.status.as_ref()?.active.as_ref()?;
    let spec = spec_of(active)?;
    Some(Member {
        name: policy.name_any(),
        uid: policy.uid().unwrap_or_default(),
        generation: active.generation,
        counts: spec.mode == Mode::Enforce || active.promoted,
        created: policy.creation_timestamp().map(|time| time.0),
        spec,
    })
}

/// Who decides in whose place, and who is refused: claims are heard in the order of their age.
fn heirs(claiming: &[&Member], hook: Hook) -> (BTreeMap<String, String>, BTreeMap<String, Aside>) {
    let mut heirs = BTreeMap::<String, String>::new();
    let mut aside = BTreeMap::new();
    for member in claiming {
        let Some(mut place) = member.spec.place_of() else {
            continue;
        };
        let is_there = |name: &str| name == BUILT_IN || claiming.iter().any(|m| m.name == name);
        if !is_there(place) {
            // Whom it replaced is gone: what is left of its wish is to decide.
            if hook != Hook::Placement {
                continue;
            }
            place = BUILT_IN;
        }
        let refusal = if let Some(heir) = heirs.get(place) {
            Some(format!(
                "the IPUPolicy {heir} decides in the place of {place} already; of two the older one \
                 does: set spec.replaces to {heir} to decide in its place"
            ))
        } else if line_of(&member.name, &heirs)
            .iter()
            .any(|heir| heir == place)
        {
            Some(format!(
                "spec.replaces is {place:?}, which itself decides in the place of this one; of two \
                 that replace each other the older one does"
            ))
        } else {
            None
        };
        match refusal {
            Some(refusal) => {
                aside.insert(member.name.clone(), Aside::Refused(refusal));
            }
            None => {
                heirs.insert(place.to_owned(), member.name.clone());
            }
        }
    }
    (heirs, aside)
}

/// Who sits in the seat of `name`: the last heir first, itself at the end.
fn line_of(name: &str, heirs: &BTreeMap<String, String>) -> Vec<String> {
    let mut line = vec![name.to_owned()];
    while let Some(heir) = heirs.get(&line[0]) {
        line.insert(0, heir.clone());
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A member whose age is its place in the list of a test.
    fn one(name: &str, age: i64, spec: &Value) -> Member {
        let mut whole = json!({"hook": "Validation", "module": {"image": {"file": "x.wasm"}}});
        json_patch::merge(&mut whole, spec);
        let spec: IPUPolicySpec = serde_json::from_value(whole).unwrap();
        Member {
            name: name.to_owned(),
            uid: name.to_owned(),
            generation: 1,
            counts: spec.mode == Mode::Enforce,
            spec,
            created: Some(Timestamp::from_second(age).unwrap()),
        }
    }

    fn seated(members: &[Member], hook: Hook) -> Vec<Vec<String>> {
        let lineup = lineup(members, hook);
        lineup.seats.into_iter().map(|seat| seat.guests).collect()
    }

    #[test]
    fn without_a_policy_the_built_in_guest_is_asked() {
        for hook in [Hook::Defaulting, Hook::Validation, Hook::Placement] {
            assert_eq!(seated(&[], hook), [["built-in"]]);
        }
    }

    #[test]
    fn a_chain_has_the_built_in_guest_at_0_before_others_of_that_order() {
        let members = [
            one("last", 1, &json!({"order": 5})),
            one("beside", 2, &json!({})),
            one("first", 3, &json!({"order": -1})),
            one("other-hook", 4, &json!({"hook": "Defaulting"})),
        ];
        assert_eq!(
            seated(&members, Hook::Validation),
            [["first"], ["built-in"], ["beside"], ["last"]]
        );
    }

    #[test]
    fn who_replaces_another_sits_in_its_seat_and_leaves_it_what_does_not_concern_it() {
        let members = [
            one("a", 1, &json!({"order": 7})),
            one("b", 2, &json!({"replaces": "a"})),
            one("c", 3, &json!({"replaces": "b", "order": -9})),
            one("d", 4, &json!({"replaces": "built-in"})),
        ];
        assert_eq!(
            seated(&members, Hook::Validation),
            [vec!["d", "built-in"], vec!["c", "b", "a"]]
        );
        let lineup = lineup(&members, Hook::Validation);
        let replaced = |by: &str| Aside::Replaced(by.to_owned());
        let aside = [("a", replaced("b")), ("b", replaced("c"))];
        let aside = aside.map(|(name, why)| (name.to_owned(), why));
        assert_eq!(lineup.aside, BTreeMap::from(aside));
    }

    #[test]
    fn placement_has_one_seat_and_of_two_that_want_it_the_older_has_it() {
        let members = [
            one("younger", 9, &json!({"hook": "Placement"})),
            one("older", 3, &json!({"hook": "Placement", "order": 4})),
        ];
        assert_eq!(
            seated(&members, Hook::Placement),
            [vec!["older", "built-in"]]
        );
        let lineup = lineup(&members, Hook::Placement);
        let Some(Aside::Refused(why)) = lineup.aside.get("younger") else {
            panic!("{lineup:?}");
        };
        assert!(why.contains("set spec.replaces to older"), "{why}");
    }

    #[test]
    fn whom_a_policy_replaced_may_go_and_it_still_decides() {
        let placement = json!({"hook": "Placement", "replaces": "gone"});
        assert_eq!(
            seated(&[one("a", 1, &placement)], Hook::Placement),
            [vec!["a", "built-in"]]
        );
        let validation = one("a", 1, &json!({"replaces": "gone", "order": 2}));
        assert_eq!(
            seated(&[validation], Hook::Validation),
            [["built-in"], ["a"]]
        );
    }

    #[test]
    fn of_two_that_replace_each_other_the_older_decides() {
        let members = [
            one("a", 1, &json!({"replaces": "b"})),
            one("b", 2, &json!({"replaces": "a"})),
            one("self", 3, &json!({"replaces": "self"})),
        ];
        let lineup = lineup(&members, Hook::Validation);
        let guests: Vec<_> = lineup
            .seats
            .iter()
            .map(|seat| seat.guests.join(" "))
            .collect();
        assert_eq!(guests, ["built-in", "a"]);
        assert!(
            matches!(lineup.aside["b"], Aside::Replaced(_)),
            "{lineup:?}"
        );
        assert!(matches!(lineup.aside["self"], Aside::Refused(_)));
    }

    #[test]
    fn a_tried_guest_is_compared_with_whoever_decides_in_the_place_it_would_take() {
        let shadow = json!({"hook": "Placement", "mode": "Shadow"});
        let beside = json!({"mode": "Shadow", "order": 3});
        let members = [
            one("in-force", 1, &json!({"hook": "Placement"})),
            one("candidate", 2, &shadow),
            one("extra", 3, &beside),
        ];
        let trial = &lineup(&members, Hook::Placement).trials[0];
        assert_eq!(trial.against.as_deref(), Some("in-force"));
        let trial = &lineup(&members, Hook::Validation).trials[0];
        assert_eq!((trial.against.as_deref(), trial.order), (None, 3));
    }
}
