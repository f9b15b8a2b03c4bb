//! Pure: which partitions of Graphcore's operator are adopted, and why others are not.
//!
//! That operator named them `p-<job>-<namespace>-<instance>`. Two jobs can have the same such name,
//! also jobs of two clusters with the same V-IPU controllers. So a partition is adopted only if the
//! tracker names it, exactly one controller has it in the requested size, and its name fits no
//! other job or IPUPartition.

use std::collections::BTreeSet;

use ipu_api::ipupartition::{ControllerRef, IPUPartition};
use ipu_api::labels;
use ipu_api::naming;
use ipu_api::object_ref::ObjectRef;
use kube::ResourceExt;
use vipu_client::model::ListedPartition;

use ipu_runtime::scope::Scope;

/// Data for the plan.
pub(super) struct Findings<'a> {
    /// The ids in the tracker.
    pub tracked: &'a BTreeSet<String>,
    /// Every IPUJob of the cluster.
    pub jobs: &'a [ObjectRef],
    /// Every IPUPartition of the cluster that can be read.
    pub partitions: &'a [IPUPartition],
    /// The partitions on every V-IPU controller of the list, or why a controller does not answer.
    pub controllers: &'a [Controller],
    /// Namespaces that this release serves.
    pub scope: &'a Scope,
}

/// A V-IPU controller of the list.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    pub reference: ControllerRef,
    /// The partitions on it, or why it does not answer.
    pub listed: Result<Vec<ListedPartition>, String>,
    /// A short hash of the V-IPU user id of the call.
    pub account: Option<String>,
}

/// Decision about one partition.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub id: String,
    pub verdict: Result<Adoption, Refusal>,
}

/// A partition that can be adopted.
#[derive(Clone, Debug)]
pub(super) struct Adoption {
    /// The IPUPartition that adopts it, as it was read.
    pub partition: IPUPartition,
    /// Its controller.
    pub controller: ControllerRef,
    /// A short hash of the V-IPU user id to which the controller shows it.
    pub account: Option<String>,
}

/// Reason why a partition is not adopted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("IPUPartition {0} has it already")]
    Adopted(String),
    #[error("the tracker does not name it, so it may belong to another cluster")]
    NotTracked,
    #[error("its id matches no IPUJob; if no program uses it, remove it by hand")]
    Nobody,
    #[error("its id matches all of {}; delete all but one of them", .0.join(" and "))]
    Ambiguous(Vec<String>),
    #[error("this release does not serve the namespace {0}")]
    NotServed(String),
    #[error("{0} has no IPUPartition for it: it has ended, is suspended, or has fewer instances")]
    NotWanted(String),
    #[error("IPUPartition {0} is being deleted")]
    Deleted(String),
    #[error("the proxy has not reconciled IPUPartition {0} yet; run the command again in a moment")]
    NotSeen(String),
    #[error("IPUPartition {0} already lists another partition; delete its owner to begin again")]
    AlreadyAttempted(String),
    #[error("{0} does not list its partitions: {1}; run the command again when it answers")]
    Unreachable(String, String),
    #[error("no V-IPU controller of the list has it")]
    NotFound,
    #[error("several V-IPU controllers have it: {}; remove the unused one by hand", .0.join(" and "))]
    Twice(Vec<String>),
    #[error("it has {found}, and IPUPartition {partition} requests {wanted}")]
    OtherSize {
        partition: String,
        found: String,
        wanted: String,
    },
}

/// Decides about each partition that the tracker names, or whose name fits a live job.
pub(super) fn plan(findings: &Findings<'_>) -> Vec<Entry> {
    let listed = findings.controllers.iter();
    let listed = listed.flat_map(|one| one.listed.iter().flatten());
    let strays = listed.map(|found| &found.id);
    let strays = strays.filter(|id| !candidates(findings, id).is_empty());
    let ids: BTreeSet<&String> = findings.tracked.iter().chain(strays).collect();
    let entries = ids.into_iter().map(|id| Entry {
        id: id.clone(),
        verdict: judge(findings, id),
    });
    entries.collect()
}

fn judge(findings: &Findings<'_>, id: &str) -> Result<Adoption, Refusal> {
    let mut partitions = findings.partitions.iter();
    if let Some(one) = partitions.find(|one| has(one, id)) {
        return Err(Refusal::Adopted(one.name_any()));
    }
    if !findings.tracked.contains(id) {
        return Err(Refusal::NotTracked);
    }
    let candidates: Vec<_> = candidates(findings, id).into_iter().collect();
    let (candidate, kind) = match &candidates[..] {
        [] => return Err(Refusal::Nobody),
        [candidate] => candidate,
        several => {
            let names = several.iter().map(|(one, kind)| format!("{kind} {one}"));
            return Err(Refusal::Ambiguous(names.collect()));
        }
    };
    if !findings.scope.contains(&candidate.namespace) {
        return Err(Refusal::NotServed(candidate.namespace.to_string()));
    }
    let mut partitions = findings.partitions.iter();
    let partition = partitions.find(|one| is_meant(one, id));
    let partition = partition.ok_or_else(|| Refusal::NotWanted(format!("{kind} {candidate}")))?;
    can_take(partition)?;
    let (controller, found) = holder(findings.controllers, id)?;
    let spec = &partition.spec;
    if (found.ipus, found.gcds) != (spec.ipus, spec.gcds) {
        return Err(Refusal::OtherSize {
            partition: partition.name_any(),
            found: size(found.ipus, found.gcds),
            wanted: size(spec.ipus, spec.gcds),
        });
    }
    Ok(Adoption {
        partition: partition.clone(),
        controller: controller.reference.clone(),
        account: controller.account.clone(),
    })
}

/// Every owner whose name fits an id, with its kind: `p-a-b-c-0` fits both `a` in `b-c` and `a-b`
/// in `c`.
fn candidates<'a>(findings: &Findings<'a>, id: &str) -> BTreeSet<(ObjectRef, &'a str)> {
    let jobs = findings.jobs.iter().filter(|job| could_have(job, id));
    let jobs = jobs.map(|job| (job.clone(), "IPUJob"));
    let owners = findings.partitions.iter().filter(|one| is_meant(one, id));
    let owners = owners.map(|one| &one.spec.owner);
    let owners = owners.map(|owner| (ObjectRef::of_owner(owner), owner.kind.as_str()));
    jobs.chain(owners).collect()
}

/// Whether this id fits any instance of the job in the naming of Graphcore's operator.
fn could_have(job: &ObjectRef, id: &str) -> bool {
    let start = format!("p-{}-{}-", job.name, job.namespace);
    let instance = id.strip_prefix(&start);
    let number = instance.and_then(|instance| instance.parse::<u32>().ok());
    number.is_some_and(|number| instance == Some(number.to_string().as_str()))
}

fn is_meant(partition: &IPUPartition, id: &str) -> bool {
    naming::adoptable_partition(&partition.spec.owner, partition.spec.slot) == id
}

fn has(partition: &IPUPartition, id: &str) -> bool {
    let attempts = partition.status.iter().flat_map(|status| &status.attempts);
    attempts
        .filter(|attempt| attempt.is_held())
        .any(|attempt| attempt.id == id)
}

/// Whether this IPUPartition has no partition yet, and its finalizer keeps it until its partition
/// is released.
fn can_take(partition: &IPUPartition) -> Result<(), Refusal> {
    let name = partition.name_any();
    if partition.metadata.deletion_timestamp.is_some() {
        return Err(Refusal::Deleted(name));
    }
    let mut finalizers = partition.finalizers().iter();
    if !finalizers.any(|one| one == labels::PARTITION_FINALIZER) {
        return Err(Refusal::NotSeen(name));
    }
    let status = partition.status.as_ref();
    if status.is_some_and(|status| status.generation != 0 || !status.attempts.is_empty()) {
        return Err(Refusal::AlreadyAttempted(name));
    }
    Ok(())
}

/// The only controller that has partition `id`. This is known only if all controllers answer.
fn holder<'a>(
    controllers: &'a [Controller],
    id: &str,
) -> Result<(&'a Controller, &'a ListedPartition), Refusal> {
    let mut holders = Vec::new();
    for controller in controllers {
        let listed = controller
            .listed
            .as_ref()
            .map_err(|why| Refusal::Unreachable(controller.reference.name.clone(), why.clone()))?;
        let found = listed.iter().filter(|found| found.id == id);
        holders.extend(found.map(|found| (controller, found)));
    }
    match &holders[..] {
        [] => Err(Refusal::NotFound),
        [holder] => Ok(*holder),
        several => {
            let names = several
                .iter()
                .map(|(controller, _)| controller.reference.name.clone());
            Err(Refusal::Twice(names.collect()))
        }
    }
}

/// Formats a size for users.
pub(super) fn size(ipus: u32, gcds: u32) -> String {
    format!("{ipus} IPUs with {gcds} GCDs")
}

#[cfg(test)]
mod tests;
