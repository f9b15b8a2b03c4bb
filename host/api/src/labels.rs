//! Labels, annotations, finalizers, scheduling gates and other keys that the operator gives, in one
//! place.

use std::collections::BTreeMap;

/// Field manager of every server-side apply.
pub const FIELD_MANAGER: &str = "ipu-operator";

/// Finalizer on IPUJobs, until the Pods and partitions of the job are gone. Its name has a path,
/// because the API server warns about a finalizer without one.
pub const JOB_FINALIZER: &str = "graphcore.ai/finalizer";

/// Finalizer of Graphcore's operator on IPUJobs. The first reconcile replaces it with
/// [`JOB_FINALIZER`]. If the job is being deleted already, the reconcile cleans up and removes it.
pub const GRAPHCORE_JOB_FINALIZER: &str = "ipu.finalizers.graphcore.ai";

/// Finalizer on IPUPartitions: held until nothing of it is left on any V-IPU controller.
pub const PARTITION_FINALIZER: &str = "partition.finalizers.graphcore.ai";

/// On an IPUPartition that was created over REST: the requesting user. For the API server, the
/// proxy has created it.
pub const REQUESTED_BY_ANNOTATION: &str = "graphcore.ai/requested-by";

/// Annotation on an IPUPartition: `true` gives up what its controller still holds (it is swept
/// later).
pub const FORCE_ANNOTATION: &str = "graphcore.ai/force-release";

/// Annotation on an IPUPolicy: each new value makes the operator load a version again at once that
/// failed to load.
pub const RETRY_ANNOTATION: &str = "graphcore.ai/retry";

/// Annotation on an IPUJob: `true` makes its partitions reconfigurable.
pub const RECONFIGURABLE_ANNOTATION: &str = "graphcore.ai/reconfigurable";

/// Annotation on an IPUJob: `true` makes its partitions relocatable.
pub const RELOCATABLE_ANNOTATION: &str = "graphcore.ai/relocatable";

/// Annotation on an IPUJob: the network of the release that its workers use. The defaulting guest
/// writes it into the template that it has completed, and the launcher of such a template has no
/// second interface.
pub const NETWORK_ANNOTATION: &str = "graphcore.ai/network";

/// Annotation of a Pod: the NetworkAttachmentDefinitions from which Multus makes its further
/// interfaces.
pub const NETWORK_ATTACHMENTS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";

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

/// Resource in the limits of a container, and annotation of a Pod: the number of IPUs that the Pod
/// requests.
pub const IPU_RESOURCE: &str = "graphcore.ai/ipu";

/// Annotation of a Pod: the name of an existing IPUPartition that the Pod uses.
pub const PARTITION_ANNOTATION: &str = "graphcore.ai/partition";

/// Annotation of a Pod that uses an existing IPUPartition: its GCD, from 0.
pub const GCD_ANNOTATION: &str = GCD_LABEL;

/// Scheduling gate of a Pod that waits for its partition.
pub const PARTITION_GATE: &str = "graphcore.ai/partition";

/// Condition of a Pod that requests IPUs itself: whether its partition is ready.
pub const PARTITION_READY_CONDITION: &str = "graphcore.ai/PartitionReady";

/// Condition of a Node: whether Pods there can use IPUs, as the checks of ipu-node found.
pub const IPU_READY_CONDITION: &str = "graphcore.ai/IPUReady";

/// Label of a Node, for schedulers, which read no conditions of ours: `true` if all checks of
/// ipu-node passed, `false` if one failed. Missing: unknown.
pub const IPU_READY_LABEL: &str = "graphcore.ai/ipu-ready";

/// Value of [`IPU_READY_LABEL`] on a node with a failed check.
pub const IPU_NOT_READY: &str = "false";

/// Annotation of a Node: the result of each check of ipu-node, as JSON.
pub const NODE_CHECKS_ANNOTATION: &str = "graphcore.ai/ipu-checks";

/// Label of a native Pod, which requests IPUs itself and belongs to no IPUJob: `true`.
pub const NATIVE_POD_LABEL: &str = "graphcore.ai/native-pod";

/// Label of the IPUPartition of a native Pod, created for it or claimed by it: the Pod's UID.
pub const POD_UID_LABEL: &str = "graphcore.ai/pod-uid";

/// Label of an IPUPartition that was created before the admission of a Workload of Kueue, for one
/// of its native Pods: the Workload's UID.
pub const WORKLOAD_UID_LABEL: &str = "graphcore.ai/workload-uid";

/// Annotation of a native Pod: the Workload of Kueue that has partitions for its Pods. An admission
/// check sets it.
pub const WORKLOAD_ANNOTATION: &str = "graphcore.ai/workload";

/// Annotation of an IPUPartition of a Workload: the name of the Pod that has claimed it.
/// `POD_UID_LABEL` has its UID.
pub const CLAIMED_BY_ANNOTATION: &str = "graphcore.ai/claimed-by";

/// Annotation of an IPUPartition of a Workload: when that Pod has claimed it.
pub const CLAIMED_AT_ANNOTATION: &str = "graphcore.ai/claimed-at";

/// Annotation of a native Pod: the host of the V-IPU controller of its partition.
pub const VIPU_HOST_ANNOTATION: &str = "graphcore.ai/vipu-host";

/// Annotation of a native Pod: the port of the V-IPU controller of its partition.
pub const VIPU_PORT_ANNOTATION: &str = "graphcore.ai/vipu-port";

/// Annotation of a native Pod: the label of nodes, as `key=value`, that the operator has added to
/// its node selector.
pub const NODE_LABEL_ANNOTATION: &str = "graphcore.ai/node-label";

/// Value of `IPUOF_VIPU_API_TIMEOUT`: seconds that Poplar waits for the V-IPU controller.
pub const VIPU_TIMEOUT: &str = "120";

/// Annotation of a job's worker Pods: a hash of the text of the template that they were made from.
pub const TEMPLATE_HASH_ANNOTATION: &str = "graphcore.ai/template-hash";

/// Annotation of a job's worker Pods: a hash of the canonical form of that template. Pods of 0.1.0
/// have none.
pub const CANONICAL_TEMPLATE_HASH_ANNOTATION: &str = "graphcore.ai/canonical-template-hash";

/// Annotation of a job's Pods: the main container. The Pod ends with it, regardless of other
/// containers.
pub const MAIN_CONTAINER_ANNOTATION: &str = "graphcore.ai/main-container";

/// Annotation of a Pod: the container that `kubectl exec` and `kubectl logs` mean where none is
/// named (kubectl's own).
pub const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Annotation of a launcher that is created together with its workers: `HELD` until all of them are
/// Ready, then the time of its release, from which on the agent starts the command. A launcher that
/// was created after its workers, as all of 0.1.0 were, has none.
pub const START_ANNOTATION: &str = "graphcore.ai/start";

/// Value of `START_ANNOTATION`: the agent holds the command back.
pub const HELD: &str = "held";

/// Name of the volume with the agent, in the Pods of a job with a launcher, and of the init
/// container that fills it.
pub const AGENT_VOLUME: &str = "ipu-operator-agent";

/// Annotation of a launcher whose agent is mounted from its image: the list of workers for mpirun.
/// The kubelet writes it into a file.
pub const HOSTFILE_ANNOTATION: &str = "graphcore.ai/hostfile";

/// Annotation of a launcher whose agent is mounted from its image: the script that mpirun calls
/// instead of ssh. The kubelet writes it into a file.
pub const KUBEEXEC_ANNOTATION: &str = "graphcore.ai/kubeexec";

/// Label of a job's Pods: which run of the job they belong to, from 0.
pub const RUN_LABEL: &str = "graphcore.ai/run";

/// The value of `spec.managedBy` that means this operator, which a missing one means as well.
pub const JOB_CONTROLLER: &str = "graphcore.ai/ipu-operator";

/// Label of everything that the operator makes; its value is `MANAGED_BY`.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Value of `app.kubernetes.io/managed-by` on everything the operator makes.
pub const MANAGED_BY: &str = "ipu-operator";

/// Annotation of a webhook configuration, and label of an IPUPolicy: the namespace of the release
/// that it is of.
pub const OPERATOR_NAMESPACE: &str = "graphcore.ai/operator-namespace";

/// Annotation of a webhook configuration: the namespaces that its release serves, separated by
/// commas. Empty: all.
pub const WATCH_NAMESPACES: &str = "graphcore.ai/watch-namespaces";

/// The labels of an object that the operator makes, with this one.
pub fn managed(label: &str, value: &str) -> BTreeMap<String, String> {
    let labels = [(MANAGED_BY_LABEL, MANAGED_BY), (label, value)];
    BTreeMap::from(labels.map(|(label, value)| (label.to_owned(), value.to_owned())))
}

/// Whether a finalizer of an IPUJob is this operator's, or that of Graphcore's operator, which it
/// takes care of.
pub fn is_job_finalizer(finalizer: &str) -> bool {
    [JOB_FINALIZER, GRAPHCORE_JOB_FINALIZER].contains(&finalizer)
}
