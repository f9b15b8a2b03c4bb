//! Pure: names of objects that the operator creates, and ids of V-IPU partitions.

use sha2::{Digest, Sha256};

use crate::ipupartition::PartitionOwner;

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

/// Name of the ServiceAccount, Role and RoleBinding that the launchers of a namespace share. No job
/// has an account of this name: all of those end with `-launcher`.
pub const SHARED_LAUNCHERS: &str = "ipu-launchers";

/// Name of worker `index` of a job; the index counts over all instances.
pub fn worker(job: &str, index: u32) -> String {
    format!("{job}-worker-{index}")
}

/// Longest host name, in characters.
pub const HOST_NAME_MAX: usize = 63;

/// Host name of worker `index` of a job. `None`: it is the name of the Pod. The kubelet cuts a
/// longer one, so that all workers of the job would have the same, and Open MPI cuts one with a dot
/// there.
pub fn worker_host_name(job: &str, index: u32) -> Option<String> {
    let name = worker(job, index);
    if crate::dns1123::is_label(&name) {
        return None;
    }
    let end = worker("", index);
    let start = shorten(&job.replace('.', "-"), HOST_NAME_MAX - end.len());
    Some(format!("{start}{end}"))
}

/// Name of a ConfigMap with variables for Pods of a job. It contains a hash of `parts`, which are
/// its content and its owner.
pub fn environment(job: &str, parts: &[&str]) -> String {
    format!("{}-env-{}", shorten(job, 230), hash(parts, 10))
}

/// A label value for `name`: the name itself if it fits, otherwise its prefix and a hash.
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

/// Name of the VIPUController of the V-IPU controller `host:port`. An address that is no name of
/// Kubernetes with the port after a dash, such as that of IPv6, is a hash.
pub fn vipu_controller(address: &str) -> String {
    let readable = address
        .rsplit_once(':')
        .map(|(host, port)| format!("{host}-{port}"))
        .filter(|name| crate::dns1123::is_subdomain(name));
    readable.unwrap_or_else(|| format!("vipu-{}", hash(&["V-IPU controller", address], 10)))
}

/// Name of the Workload of a job for Kueue. It is also a label value, and contains a hash of the
/// UID, as in Kueue's own jobs.
pub fn workload(job: &str, uid: &str) -> String {
    let readable = shorten(&format!("ipujob-{job}"), 57);
    format!("{readable}-{}", hash(&[job, uid], 5))
}

/// Marks the ids that the releases of one cluster give, among all that are on a V-IPU controller.
/// The mark outlives a release: whichever comes next, in whatever namespace, recognises what the
/// last one left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    tag: String,
    /// The tag of versions that distinguished the releases of a cluster.
    former_tag: String,
}

impl Identity {
    /// The mark of the cluster with this UID of the namespace `kube-system`, for the release in
    /// `namespace`.
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

    /// Id of the V-IPU partition for one attempt at one slot: a readable start, the tag, and a hash
    /// of all that makes it unique. `request` is the UID of the IPUPartition: a slot that is
    /// released and wanted again begins at generation 1 with another object. `nonce` is random: a
    /// restored API server may hand out a generation a second time. Nothing computes an id again;
    /// it is read from the status.
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
pub fn adoptable_partition(owner: &PartitionOwner, slot: u32) -> String {
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
    let length = PARTITION_ID_MAX - "p-".len() - TAG - UNIQUE - 2;
    let readable: String = owner
        .name
        .chars()
        .map(|c| if c == '.' { '-' } else { c })
        .take(length)
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
    fn an_id_names_its_owner_in_every_release() {
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
    fn a_v_ipu_controller_is_named_by_its_address() {
        assert_eq!(vipu_controller("pod1.lab:8090"), "pod1.lab-8090");
        assert_eq!(vipu_controller("10.0.0.7:8090"), "10.0.0.7-8090");
        let odd = ["[fd00::1]:8090", "[fd00::2]:8090"].map(vipu_controller);
        assert!(
            odd.iter().all(|name| crate::dns1123::is_subdomain(name)),
            "{odd:?}"
        );
        assert_ne!(odd[0], odd[1]);
    }

    #[test]
    fn host_names_of_workers_are_labels_and_differ() {
        let long = "j".repeat(200);
        let dotted = format!("{}.{long}", "a".repeat(44));
        for name in ["mnist", "parallel.v1", long.as_str(), dotted.as_str()] {
            let hosts = [0, 1, 10, u32::MAX].map(|index| {
                let host = worker_host_name(name, index);
                host.unwrap_or_else(|| worker(name, index))
            });
            assert!(
                hosts.iter().all(|host| crate::dns1123::is_label(host)),
                "{hosts:?}"
            );
            let different: std::collections::BTreeSet<_> = hosts.iter().collect();
            assert_eq!(different.len(), hosts.len(), "{hosts:?}");
        }
        assert_eq!(worker_host_name("mnist", 1), None);
        let host = worker_host_name("parallel.v1", 1);
        assert_eq!(host.as_deref(), Some("parallel-v1-worker-1"));
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
