//! Pure: which VIPUControllers are created, taken over, written and deleted.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::vipu_controller::{CordonState, VIPUController, VIPUControllerStatus};
use ipu_api::{labels, naming};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::status::{self, Change, LISTED, Observed, ObservedSpec};

/// For so long a status in which only figures change is not written again.
pub(super) const FIGURES_AGE: SignedDuration = SignedDuration::from_secs(10);

/// Statuses in which only figures change that are written within that time. With more
/// controllers, their figures are older: those of 256 controllers that change all the time are
/// written every 128 seconds.
pub(super) const FIGURES_MAX: usize = 20;

/// A VIPUController, as far as decisions need it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub uid: String,
    pub resource_version: String,
    /// Namespace of the release that keeps it. `None`: no release does, for example since an admin
    /// has created it.
    pub release: Option<String>,
    pub spec: ObservedSpec,
    pub status: Option<VIPUControllerStatus>,
    pub is_deleted: bool,
}

impl Object {
    /// Reads an object.
    pub(super) fn of(mut object: VIPUController) -> Self {
        let status = object.status.take();
        Object {
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
            release: object.labels().get(labels::OPERATOR_NAMESPACE).cloned(),
            spec: ObservedSpec {
                cordon_state: CordonState::of(&object.spec),
                generation: object.metadata.generation,
            },
            status,
            is_deleted: object.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Its status, if the controller is in the list of its release.
    pub(super) fn listed_status(self) -> Option<VIPUControllerStatus> {
        if self.is_unlisted() {
            None
        } else {
            self.status
        }
    }

    /// Whether its status reports that its controller has left the list of its release.
    fn is_unlisted(&self) -> bool {
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|one| one.type_ == LISTED && one.status == "False")
    }
}

/// Data for the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// Namespace of the release that plans.
    pub release: &'a str,
    /// Namespaces of the other releases that are there. `None`: they are not known.
    pub other_releases: Option<&'a BTreeSet<String>>,
    /// The controllers of the list, those that have left it while partitions of the release are on
    /// them, and those that have left it and have an object of the release.
    pub controllers: &'a [Observed],
    /// Whether the list is the one that the admin has now.
    pub is_list_current: bool,
    /// Whether entries of the list name no controller. One of them may be that of any object.
    pub has_bad_entries: bool,
    /// All objects, by name.
    pub objects: &'a BTreeMap<String, Object>,
    /// Time of the last write of the status of each.
    pub written: &'a BTreeMap<String, Timestamp>,
    pub now: Timestamp,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Creates it, and writes its status.
    Create(Box<VIPUControllerStatus>),
    /// Makes the release the manager of this object.
    Adopt {
        uid: String,
        resource_version: String,
    },
    /// Writes its status.
    Write {
        uid: String,
        status: Box<VIPUControllerStatus>,
    },
    /// Deletes this version of it.
    Delete {
        uid: String,
        resource_version: String,
    },
}

/// The changes to apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The changes, each with the name of its object, in their order.
    pub actions: Vec<(String, Action)>,
    /// Objects of controllers that another release manages: their names, and the namespace of that
    /// release.
    pub of_others: BTreeMap<String, String>,
}

/// The addresses of the controllers whose objects a release manages, from their statuses. A status
/// with an address that does not fit the name of its object is ignored.
pub(super) fn addresses<'a>(
    objects: &'a BTreeMap<String, Object>,
    release: &str,
) -> impl Iterator<Item = &'a String> {
    let of_release = objects
        .iter()
        .filter(move |(_, object)| object.release.as_deref() == Some(release));
    of_release.filter_map(|(name, object)| {
        let address = &object.status.as_ref()?.address;
        (naming::vipu_controller(address) == *name).then_some(address)
    })
}

/// Plans the changes. A change of a state is due at once. If only figures have changed, a status
/// waits its turn.
pub(super) fn plan(facts: &Facts<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut names = BTreeSet::new();
    let mut figures = Vec::new();
    for observed in facts.controllers {
        let name = naming::vipu_controller(&observed.address);
        if !is_kept(facts, observed, &name) || !names.insert(name.clone()) {
            continue;
        }
        let Some(object) = facts.objects.get(&name) else {
            let status = Box::new(status::desired(
                observed,
                None,
                ObservedSpec::default(),
                facts.now,
            ));
            plan.actions.push((name, Action::Create(status)));
            continue;
        };
        match step(facts, observed, object) {
            Step::Nothing => {}
            Step::OfOther(release) => {
                plan.of_others.insert(name, release);
            }
            Step::Now(action) => plan.actions.push((name, action)),
            Step::Later(action) => figures.push((name, action)),
        }
    }
    let figures = due(facts, figures, plan.actions.len());
    plan.actions.extend(figures);
    if facts.is_list_current {
        let left = facts.objects.iter().filter(|(name, object)| {
            object.release.as_deref() == Some(facts.release)
                && !object.is_deleted
                && !names.contains(*name)
                && !is_needed(facts, object)
        });
        plan.actions.extend(left.map(|(name, object)| {
            let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
            let delete = Action::Delete {
                uid,
                resource_version,
            };
            (name.clone(), delete)
        }));
    }
    plan
}

/// Whether a controller has an object with the current list. The object of an unlisted controller
/// without partitions stays only while it is needed. An outdated list decides nothing.
fn is_kept(facts: &Facts<'_>, observed: &Observed, name: &str) -> bool {
    if observed.listed.is_some() || observed.is_used || observed.duplicate_of.is_some() {
        return true;
    }
    let object = facts.objects.get(name);
    facts.is_list_current && object.is_some_and(|object| is_needed(facts, object))
}

/// Whether the object of a controller that is not in the list stays. A mistake in the list must not
/// end a cordon.
fn is_needed(facts: &Facts<'_>, object: &Object) -> bool {
    facts.has_bad_entries || object.spec.cordon_state.is_some()
}

/// Action that an object needs.
enum Step {
    Nothing,
    /// Another release manages it.
    OfOther(String),
    Now(Action),
    Later(Action),
}

fn step(facts: &Facts<'_>, observed: &Observed, object: &Object) -> Step {
    if object.is_deleted {
        return Step::Nothing;
    }
    if object.release.as_deref() != Some(facts.release) {
        return match other_manager(facts, observed, object) {
            Some(release) => Step::OfOther(release.to_owned()),
            None => Step::Now(Action::Adopt {
                uid: object.uid.clone(),
                resource_version: object.resource_version.clone(),
            }),
        };
    }
    let before = object.status.as_ref();
    let status = status::desired(observed, before, object.spec, facts.now);
    let change = status::change(before, &status);
    let write = Action::Write {
        uid: object.uid.clone(),
        status: Box::new(status),
    };
    match change {
        Change::Nothing => Step::Nothing,
        Change::Figures => Step::Later(write),
        Change::State => Step::Now(write),
    }
}

/// The other release that still manages an object. A release that no longer exists does not, nor
/// does a release without the controller in its list, if this release lists it.
fn other_manager<'a>(
    facts: &Facts<'_>,
    observed: &Observed,
    object: &'a Object,
) -> Option<&'a str> {
    let release = object.release.as_deref()?;
    let is_there = facts
        .other_releases
        .is_none_or(|others| others.contains(release));
    let is_left = observed.listed.is_some() && object.is_unlisted();
    (is_there && !is_left).then_some(release)
}

/// Those of the writes of figures that are due, the oldest status first. The writes of the last
/// time, and as many `others` now, count as well.
fn due(
    facts: &Facts<'_>,
    mut figures: Vec<(String, Action)>,
    others: usize,
) -> Vec<(String, Action)> {
    let is_recent = |written: Timestamp| {
        let age = facts.now.duration_since(written);
        // A future time comes from a clock that was set back.
        age >= SignedDuration::ZERO && age < FIGURES_AGE
    };
    let recent = facts.written.values().filter(|at| is_recent(**at)).count();
    let last = |name: &String| facts.written.get(name).copied();
    figures.retain(|(name, _)| last(name).is_none_or(|at| !is_recent(at)));
    figures.sort_by_key(|(name, _)| last(name));
    figures.truncate(FIGURES_MAX.saturating_sub(recent + others));
    figures
}

#[cfg(test)]
mod tests;
