//! Every name, label and annotation that the operator gives, in one place.

use sha2::{Digest, Sha256};

use crate::api::ipupartition::PartitionOwner;

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "ipu-operator";

/// Finalizer on IPUJobs: held until Pods and partitions of the job are gone (the original's name).
pub const JOB_FINALIZER: &str = "ipu.finalizers.graphcore.ai";

/// Finalizer on IPUPartitions: held until nothing of it is left on any V-IPU controller.
pub const PARTITION_FINALIZER: &str = "partition.finalizers.graphcore.ai";

/// Annotation on an IPUPartition: `true` gives up what its controller still holds (it is swept later).
pub const FORCE_ANNOTATION: &str = "graphcore.ai/force-release";

/// Annotation on an IPUJob: `true` makes its partitions reconfigurable.
pub const RECONFIGURABLE_ANNOTATION: &str = "graphcore.ai/reconfigurable";

/// Annotation on an IPUJob: `true` makes its partitions relocatable.
pub const RELOCATABLE_ANNOTATION: &str = "graphcore.ai/relocatable";

/// Label of everything that belongs to a job: the job's UID.
pub const JOB_UID_LABEL: &str = "graphcore.ai/job-uid";

/// Label of everything that belongs to a job: the job's name, cut and hashed beyond 63 characters.
pub const JOB_NAME_LABEL: &str = "graphcore.ai/job-name";

/// Label of a job's Pods: `worker` or `launcher`.
pub const ROLE_LABEL: &str = "graphcore.ai/role";

/// Label of a job's worker Pods: which instance they belong to, from 0.
pub const INSTANCE_LABEL: &str = "graphcore.ai/instance";

/// Label of a job's worker Pods: their index within the instance, which is their GCD.
pub const GCD_LABEL: &str = "graphcore.ai/gcd";

/// Label of every Pod that uses a partition: the partition's id. A partition is not removed while
/// a live Pod carries its id.
pub const PARTITION_ID_LABEL: &str = "graphcore.ai/partition-id";

/// Annotation of a job's worker Pods: a hash of the template that they were made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "graphcore.ai/template-hash";

/// Annotation of a job's Pods: the container whose end is the Pod's end, whatever runs beside it.
pub const MAIN_CONTAINER_ANNOTATION: &str = "graphcore.ai/main-container";

pub use crate::agent::DEFAULT_CONTAINER_ANNOTATION;

/// Label of a job's Pods: which run of the job they belong to, from 0.
pub const RUN_LABEL: &str = "graphcore.ai/run";

/// The value of `spec.managedBy` that means this operator, which a missing one means as well.
pub const JOB_CONTROLLER: &str = "graphcore.ai/ipu-operator";

/// Label of everything that the operator makes; its value is `MANAGED_BY`.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Value of `app.kubernetes.io/managed-by` on everything the operator makes.
pub const MANAGED_BY: &str = "ipu-operator";

/// Annotation of a webhook configuration, and label of an IPUPolicy: the namespace of the release that it
/// is of.
pub const OPERATOR_NAMESPACE: &str = "graphcore.ai/operator-namespace";

/// Annotation of a webhook configuration: the namespaces whose jobs its release serves, with commas
/// between them; empty: all.
pub const WATCH_NAMESPACES: &str = "graphcore.ai/watch-namespaces";

/// Longest id that the operator gives a V-IPU partition, in characters.
pub const PARTITION_ID_MAX: usize = 36;

/// Length of the hash at the end of a partition id, in characters.
const UNIQUE: usize = 10;

/// Name of worker `index` of a job; the index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Name of a job's launcher Pod, ServiceAccount, Role and RoleBinding.
pub fn launcher(job: &str) -> String {
    format!("{job}-launcher")
}

/// Name of a job's ConfigMap with `kubeexec.sh` and `hostfile`.
pub fn config_map(job: &str) -> String {
    format!("{job}-config")
}

/// A label value that stands for `name`: the name itself where it fits, else its start and a hash.
pub fn label_value(name: &str) -> String {
    shorten(name, 63)
}

/// A short word that is the same for the same Pod template, given as JSON.
pub fn template_hash(template: &str) -> String {
    hash(&[template], 10)
}

/// Name of the IPUPartition for one slot of an owner. It holds the owner's UID as a hash, so that
/// an owner that is deleted and made again never meets its predecessor's object.
pub fn partition_object(owner: &PartitionOwner, slot: u32) -> String {
    let tag = hash(
        &[
            &owner.api_version,
            &owner.kind,
            &owner.namespace,
            &owner.name,
            &owner.uid,
        ],
        5,
    );
    let readable = format!("{}.{}-{slot}", owner.namespace, owner.name);
    format!("{}-{tag}", shorten(&readable, 240))
}

/// Prefix of every partition id that this installation gives, up to and including the hash of the
/// installation: what the sweep looks for is `-<tag>-` before the last part.
pub fn installation_tag(installation: &str) -> String {
    hash(&[installation], 4)
}

/// Id of the V-IPU partition for one generation of one slot: a readable start, the installation's
/// tag, and a hash of all that makes it unique. The same input always gives the same id, and no
/// two generations share one. `request` is the UID of the IPUPartition: a slot that is given back
/// and wanted again begins at generation 1 with another object, and must not meet an old id.
pub fn partition_id(
    installation: &str,
    owner: &PartitionOwner,
    slot: u32,
    request: &str,
    generation: i64,
) -> String {
    let unique = hash(
        &[
            installation,
            &owner.namespace,
            &owner.name,
            &owner.uid,
            &slot.to_string(),
            request,
            &generation.to_string(),
        ],
        UNIQUE,
    );
    format!("{}{unique}", partition_id_start(installation, owner))
}

/// Id that Graphcore's operator gave the V-IPU partition for one instance of a job.
pub fn inherited_partition(owner: &PartitionOwner, slot: u32) -> String {
    format!("p-{}-{}-{slot}", owner.name, owner.namespace)
}

/// Whether `id` has the form of those that `partition_id` gives for this owner.
pub fn is_of_owner(id: &str, installation: &str, owner: &PartitionOwner) -> bool {
    let unique = id.strip_prefix(&partition_id_start(installation, owner));
    unique.is_some_and(|unique| {
        unique.len() == UNIQUE && unique.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// All of a partition id but the hash at its end.
fn partition_id_start(installation: &str, owner: &PartitionOwner) -> String {
    let tag = installation_tag(installation);
    let room = PARTITION_ID_MAX - "p-".len() - tag.len() - UNIQUE - 2;
    let readable: String = owner
        .name
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .take(room)
        .collect();
    format!("p-{}-{tag}-", readable.trim_end_matches('-'))
}

/// Whether `id` is one that `partition_id` gave for this installation.
pub fn is_of_installation(id: &str, installation: &str) -> bool {
    let mut parts = id.rsplit('-');
    let unique = parts.next().unwrap_or_default();
    let tag = parts.next().unwrap_or_default();
    id.starts_with("p-") && unique.len() == UNIQUE && tag == installation_tag(installation)
}

/// `name` where it fits into `max` characters, else its start and a hash of the whole.
fn shorten(name: &str, max: usize) -> String {
    if name.len() <= max {
        return name.to_owned();
    }
    let tag = hash(&[name], 8);
    let start: String = name.chars().take(max - tag.len() - 1).collect();
    format!("{}-{tag}", start.trim_end_matches(['-', '.']))
}

/// The first `length` characters of a hash over `parts`, in an alphabet that every Kubernetes name
/// allows and that spells no words.
fn hash(parts: &[&str], length: usize) -> String {
    const ALPHABET: &[u8; 30] = b"0123456789bcdfghjklmnpqrstvwxz";
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hasher
        .finalize()
        .iter()
        .take(length)
        .map(|byte| char::from(ALPHABET[usize::from(byte % 30)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> PartitionOwner {
        PartitionOwner {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: "beb81bbe-2309-494a-9e28-2a75a704be15".to_owned(),
        }
    }

    #[test]
    fn an_id_tells_whose_it_is() {
        let (mine, other) = (owner("mnist"), owner("mnist-1"));
        let id = partition_id("here", &mine, 0, "uid", 1);
        assert!(is_of_owner(&id, "here", &mine), "{id}");
        assert!(!is_of_owner(&id, "there", &mine));
        assert!(!is_of_owner(&id, "here", &other));
        for odd in [
            &format!("{id}x"),
            &id[1..],
            "",
            "handmade",
            "p-mnist-default-0",
        ] {
            assert!(!is_of_owner(odd, "here", &mine), "{odd}");
        }
    }

    #[test]
    fn ids_fit_and_differ_by_generation() {
        let long = "a".repeat(253);
        for name in ["mnist", "a.b.c", long.as_str()] {
            let first = partition_id("here", &owner(name), 0, "request", 1);
            let second = partition_id("here", &owner(name), 0, "request", 2);
            assert!(first.len() <= PARTITION_ID_MAX, "{first}");
            assert_ne!(first, second);
            assert!(is_of_installation(&first, "here"));
            assert!(!is_of_installation(&first, "there"));
        }
    }

    #[test]
    fn names_that_differ_late_stay_different() {
        let stem = "x".repeat(70);
        let (a, b) = (format!("{stem}a"), format!("{stem}b"));
        assert_ne!(label_value(&a), label_value(&b));
        assert!(label_value(&a).len() <= 63);
        assert_ne!(
            partition_object(&owner(&a), 0),
            partition_object(&owner(&b), 0)
        );
    }

    #[test]
    fn a_name_of_the_original_is_not_ours() {
        assert!(!is_of_installation("p-mnist-default-0", "here"));
    }
}
