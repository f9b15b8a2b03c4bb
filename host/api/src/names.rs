//! Every name, label and annotation that the operator gives, in one place.

use sha2::{Digest, Sha256};

use crate::ipupartition::PartitionOwner;

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "ipu-operator";

/// Finalizer on IPUJobs: held until Pods and partitions of the job are gone. It has a path, as the API server wants
/// it: a finalizer without one makes it warn whoever writes the object.
pub const JOB_FINALIZER: &str = "graphcore.ai/finalizer";

/// The same as Graphcore's operator and version 0.1.0 of this one set it. Ours takes its place.
pub const FORMER_JOB_FINALIZER: &str = "ipu.finalizers.graphcore.ai";

/// Finalizer on IPUPartitions: held until nothing of it is left on any V-IPU controller.
pub const PARTITION_FINALIZER: &str = "partition.finalizers.graphcore.ai";

/// On an IPUPartition that was made over REST: the user who asked for it. The API server knows it as made by the
/// proxy.
pub const REQUESTED_BY_ANNOTATION: &str = "graphcore.ai/requested-by";

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

/// Resource in the limits of a container, and annotation of a Pod: the number of IPUs that the Pod requests.
pub const IPU_RESOURCE: &str = "graphcore.ai/ipu";

/// Annotation of a Pod: the name of an existing IPUPartition that the Pod uses.
pub const PARTITION_ANNOTATION: &str = "graphcore.ai/partition";

/// Annotation of a Pod that uses an existing IPUPartition: its GCD, from 0.
pub const GCD_ANNOTATION: &str = GCD_LABEL;

/// Scheduling gate of a Pod that waits for its partition.
pub const PARTITION_GATE: &str = "graphcore.ai/partition";

/// Condition of a Pod that requests IPUs itself: whether its partition is ready.
pub const PARTITION_READY_CONDITION: &str = "graphcore.ai/PartitionReady";

/// Label of a native Pod, which requests IPUs itself and belongs to no IPUJob: `true`.
pub const NATIVE_POD_LABEL: &str = "graphcore.ai/native-pod";

/// Label of the IPUPartition of a native Pod: the Pod's UID.
pub const POD_UID_LABEL: &str = "graphcore.ai/pod-uid";

/// Annotation of a native Pod: the host of the V-IPU controller of its partition.
pub const VIPU_HOST_ANNOTATION: &str = "graphcore.ai/vipu-host";

/// Annotation of a native Pod: the port of the V-IPU controller of its partition.
pub const VIPU_PORT_ANNOTATION: &str = "graphcore.ai/vipu-port";

/// Value of `IPUOF_VIPU_API_TIMEOUT`: seconds that Poplar waits for the V-IPU controller.
pub const VIPU_TIMEOUT: &str = "120";

/// Annotation of a job's worker Pods: a hash of the template that they were made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "graphcore.ai/template-hash";

/// Annotation of a job's Pods: the container whose end is the Pod's end, whatever runs beside it.
pub const MAIN_CONTAINER_ANNOTATION: &str = "graphcore.ai/main-container";

/// Annotation of a Pod: the container that `kubectl exec`, `kubectl logs` and the agent mean where none is named
/// (kubectl's own).
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

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

/// Length of the tag in a partition id, in characters.
const TAG: usize = 4;

/// Length of the hash at the end of a partition id, in characters.
const UNIQUE: usize = 10;

/// Name of a job's launcher Pod, ServiceAccount, Role and RoleBinding.
pub fn launcher(job: &str) -> String {
    format!("{job}-launcher")
}

/// Name of worker `index` of a job; the index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Whether a finalizer of an IPUJob is the operator's, under its name of today or the one before.
pub fn is_job_finalizer(finalizer: &str) -> bool {
    [JOB_FINALIZER, FORMER_JOB_FINALIZER].contains(&finalizer)
}

/// A label value that stands for `name`: the name itself where it fits, else its start and a hash.
pub fn label_value(name: &str) -> String {
    shorten(name, 63)
}

/// A short word that is the same for the same Pod template, given as JSON.
pub fn template_hash(template: &str) -> String {
    hash(&[template], 10)
}

/// A short word that is the same for the same V-IPU user id.
pub fn account(user_id: &str) -> String {
    hash(&["V-IPU user", user_id], 10)
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

/// Name of the Workload of a job for Kueue. It is also a label value, and contains a hash of the UID, as in Kueue's own jobs.
pub fn workload(job: &str, uid: &str) -> String {
    let readable = shorten(&format!("ipujob-{job}"), 57);
    format!("{readable}-{}", hash(&[job, uid], 5))
}

/// Marks the ids that the releases of one cluster give, among all that are on a V-IPU controller. The mark
/// outlives a release: whichever comes next, in whatever namespace, recognises what the last one left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    tag: String,
    /// The tag of versions that told the releases of a cluster apart.
    former_tag: String,
}

impl Identity {
    /// The mark of the cluster whose namespace `kube-system` has this UID, for the release in `namespace`.
    pub fn new(cluster: &str, namespace: &str) -> Self {
        Self {
            tag: hash(&[cluster], TAG),
            former_tag: hash(&[&format!("{cluster}/{namespace}")], TAG),
        }
    }

    /// The tag in every id that is given from now on.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Whether `id` carries the mark.
    pub fn marks(&self, id: &str) -> bool {
        let mut parts = id.rsplit('-');
        let unique = parts.next().unwrap_or_default();
        let tag = parts.next().unwrap_or_default();
        id.starts_with("p-")
            && unique.len() == UNIQUE
            && (tag == self.tag || tag == self.former_tag)
    }

    /// Id of the V-IPU partition for one attempt at one slot: a readable start, the tag, and a hash of all
    /// that makes it unique. `request` is the UID of the IPUPartition: a slot that is given back and wanted
    /// again begins at generation 1 with another object. `nonce` is random: a restored API server may hand
    /// out a generation a second time. Nothing computes an id again; it is read from the status.
    pub fn partition_id(
        &self,
        owner: &PartitionOwner,
        slot: u32,
        request: &str,
        generation: i64,
        nonce: u64,
    ) -> String {
        let unique = hash(
            &[
                &owner.namespace,
                &owner.name,
                &owner.uid,
                &slot.to_string(),
                request,
                &generation.to_string(),
                &nonce.to_string(),
            ],
            UNIQUE,
        );
        format!("{}{}-{unique}", partition_id_start(owner), self.tag)
    }
}

/// Id that Graphcore's operator gave the V-IPU partition for one instance of a job.
pub fn inherited_partition(owner: &PartitionOwner, slot: u32) -> String {
    format!("p-{}-{}-{slot}", owner.name, owner.namespace)
}

/// Whether `id` has the form of those that any release gives this owner.
pub fn is_of_owner(id: &str, owner: &PartitionOwner) -> bool {
    let rest = id.strip_prefix(&partition_id_start(owner));
    let parts = rest.and_then(|rest| rest.split_once('-'));
    let is_word = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    parts.is_some_and(|(tag, unique)| is_word(tag, TAG) && is_word(unique, UNIQUE))
}

/// The readable start of a partition id, up to the tag.
fn partition_id_start(owner: &PartitionOwner) -> String {
    let room = PARTITION_ID_MAX - "p-".len() - TAG - UNIQUE - 2;
    let readable: String = owner
        .name
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .take(room)
        .collect();
    format!("p-{}-", readable.trim_end_matches('-'))
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

    fn here() -> Identity {
        Identity::new("cluster", "here")
    }

    #[test]
    fn an_id_tells_whose_it_is_whichever_release_gave_it() {
        let (mine, other) = (owner("mnist"), owner("mnist-1"));
        let elsewhere = Identity::new("another-cluster", "here");
        for identity in [here(), elsewhere] {
            let id = identity.partition_id(&mine, 0, "uid", 1, 7);
            assert!(is_of_owner(&id, &mine), "{id}");
            assert!(!is_of_owner(&id, &other));
            assert!(!is_of_owner(&format!("{id}x"), &mine));
            assert!(!is_of_owner(&id[1..], &mine));
        }
        for odd in ["", "handmade", "p-mnist-default-0", "p-mnist-0123456789"] {
            assert!(!is_of_owner(odd, &mine), "{odd}");
        }
    }

    #[test]
    fn ids_fit_and_differ_by_generation_and_by_chance() {
        let long = "a".repeat(253);
        for name in ["mnist", "a.b.c", long.as_str()] {
            let id = |generation, nonce| {
                here().partition_id(&owner(name), 0, "request", generation, nonce)
            };
            assert!(id(1, 7).len() <= PARTITION_ID_MAX, "{}", id(1, 7));
            assert_ne!(id(1, 7), id(2, 7));
            assert_ne!(id(1, 7), id(1, 8));
        }
    }

    #[test]
    fn every_release_of_a_cluster_recognises_what_the_others_gave() {
        let id = here().partition_id(&owner("mnist"), 0, "request", 1, 7);
        assert!(Identity::new("cluster", "there").marks(&id));
        assert!(!Identity::new("another-cluster", "here").marks(&id));
        // As an earlier version gave it, in the release's namespace.
        let former = format!("p-mnist-{}-0123456789", hash(&["cluster/here"], 4));
        assert!(here().marks(&former));
        assert!(!Identity::new("cluster", "there").marks(&former));
        assert!(is_of_owner(&former, &owner("mnist")));
        assert!(!here().marks("p-mnist-default-0"), "Graphcore's operator");
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
}
