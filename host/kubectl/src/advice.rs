//! Pure: advice about the reasons of the operator, of Kubernetes and of V-IPU controllers. The
//! sentences about the operator's reasons are those of the page of messages, which
//! `tests/suite/kubectl.rs` compares.

use crate::pods::INITIALIZING;

/// Reasons of conditions of IPUJobs, native Pods and IPUPartitions, each with its advice.
pub const OPERATOR: &[(&[&str], &str)] = &[
    (
        &["IPUJobFailed", "Failed"],
        "read the message (the Pod and its exit code), then kubectl logs of that Pod",
    ),
    (
        &["BackoffLimitExceeded"],
        "the job failed as often as restartPolicy.backOffLimit allows",
    ),
    (
        &["DeadlineExceeded"],
        "the job was active for longer than activeDeadlineSeconds: raise it, or find out why the job waited",
    ),
    (
        &["IPUJobUnplaceable"],
        "request fewer IPUs, or check whether the job's nodeSelector contradicts the label of a controller",
    ),
    (
        &["IPUJobInvalid", "IPUJobUndecodable"],
        "correct the field that the message names with kubectl edit, or delete the job",
    ),
    (
        &["IPUJobRestarting"],
        "read the logs before the Pods are deleted",
    ),
    (
        &["JobSuspended"],
        "set spec.suspend to false to resume the job",
    ),
    (
        &["PartitionsForming", "PartitionForming"],
        "wait: a V-IPU controller creates the partition, which takes seconds to a minute",
    ),
    (
        &["PodsWaiting"],
        "the message quotes the API server or the kubelet: a quota, an image, no node with enough resources, \
         Pod Security, a volume, or an object of another owner with the same name",
    ),
    (
        &["PodsRefused"],
        "fix the cause that PodsWaiting named before (often a ResourceQuota or Pod Security)",
    ),
    (
        &["PodsNotStarted"],
        "fix the cause that the message names; the operator has released the partition and requests another one by \
         itself, if possible on another V-IPU controller",
    ),
    (
        &["WorkerFailed"],
        "read the log of the worker that the message names",
    ),
    (
        &["ContainersWaiting"],
        "the program runs; create what the container beside it waits for, such as an image or a Secret",
    ),
    (
        &["RollingOut"],
        "nothing; the operator replaces Pods of an older template",
    ),
    (
        &["PartitionsInUse"],
        "a Pod of a job that has ended still runs: delete it, or set cleanPodPolicy: Workers",
    ),
    (
        &["WaitingForPods"],
        "the job is being deleted, and its Pods must end first",
    ),
    (
        &["WaitingForControllers"],
        "the job is being deleted, and a V-IPU controller does not remove its partition: fix the controller, or give \
         up the partition",
    ),
    (
        &["WaitingForSchedulingGates"],
        "wait until the other controllers have removed their scheduling gates, which the message names",
    ),
    (
        &["PartitionRejected"],
        "request fewer IPUs, or check whether the Pod's nodeSelector contradicts the label of a controller",
    ),
    (
        &["InvalidRequest"],
        "correct the field that the message names, and create the Pod again",
    ),
    (
        &["PartitionNotFound"],
        "create the IPUPartition that the annotation names, with an owner of the Pod's namespace, or correct the \
         annotation",
    ),
    (
        &["PartitionRefused"],
        "admin, check the rights of the controller and the admission policies of others",
    ),
    (&["GateRemoved"], "delete the Pod and create it again"),
    (
        &["PartitionReleasing"],
        "delete the Pod when its program has ended",
    ),
    (
        &["PartitionLost"],
        "The operator evicts a Pod that a controller owns; delete any other Pod and create it again",
    ),
    (
        &["PodNotStarting"],
        "The operator evicts a Pod that a controller owns after ten minutes; delete any other Pod to release its IPUs",
    ),
    (
        &["Resetting", "Releasing"],
        "wait; after ten minutes read the proxy's log and check the V-IPU controller",
    ),
    (
        &["Replacing"],
        "the partition was lost or released, and the operator creates another one",
    ),
    (
        &["Disturbed"],
        "wait: the partition is in error or missing while Pods use it",
    ),
    (
        &["InError"],
        "its controller reports an error of the partition",
    ),
    (
        &["NotOnController"],
        "wait: its controller answers that it does not have the partition",
    ),
    (
        &["Vanished"],
        "a user removed it on the V-IPU controller, or the controller lost its state; the operator creates another one",
    ),
    (
        &["AccessDenied"],
        "its controller denies the operator access to it",
    ),
    (
        &["ControllerNotListed"],
        "its controller left the list and does not answer",
    ),
    (&["Unreachable"], "its controller does not answer"),
    (
        &["ControllerDrained"],
        "nothing; the owner moves when another controller has free capacity",
    ),
    (
        &["OperationUnderWay"],
        "wait; after ten minutes the partition counts as broken",
    ),
];

/// Reasons of the kubelet and of the scheduler, each with its advice.
const KUBERNETES: &[(&[&str], &str)] = &[
    (
        &[
            "ImagePullBackOff",
            "ErrImagePull",
            "ErrImageNeverPull",
            "InvalidImageName",
        ],
        "correct the image of the container, or give the Pods an imagePullSecret for its registry",
    ),
    (
        &["Unschedulable"],
        "no node fits: request less of what the message names, or ask an admin for a node that has it",
    ),
    (
        &[INITIALIZING],
        "wait for the init container, or read its log with kubectl logs --container",
    ),
    (
        &["CrashLoopBackOff"],
        "kubectl logs --previous of that Pod shows why its program ends",
    ),
    (
        &["CreateContainerConfigError", "CreateContainerError"],
        "create the ConfigMap or Secret that the message names, or correct the template",
    ),
    (
        &["Evicted", "OOMKilled"],
        "request more memory, or let the program use less",
    ),
];

/// Reason why a V-IPU controller does not serve a waiting partition.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Words that identify the reason in the text of the operator.
    pub words: &'static [&'static str],
    /// The cause.
    pub cause: &'static str,
    /// The advice.
    pub remedy: &'static str,
}

/// All of them. A reason of a policy that none of them describes is the policy's own.
pub const WAITING: &[Waiting] = &[
    Waiting {
        words: &["is reserved for"],
        cause: "reserved for an earlier request",
        remedy: "wait",
    },
    Waiting {
        words: &["useful only together"],
        cause: "useful only together with other partitions",
        remedy: "wait until all fit; their owner must request the missing ones",
    },
    Waiting {
        words: &["it is cordoned", "it is being drained"],
        cause: "cordoned or drained",
        remedy: "wait",
    },
    Waiting {
        words: &["does not answer"],
        cause: "unreachable",
        remedy: "admin: read the proxy's log",
    },
    Waiting {
        words: &["no node is labelled"],
        cause: "no node has its label",
        remedy: "kubectl label node",
    },
    Waiting {
        words: &["no node is schedulable"],
        cause: "no node can run the Pods now",
        remedy: "admin: kubectl uncordon, or repair the nodes that the message counts",
    },
    Waiting {
        words: &["none of its nodes has the labels"],
        cause: "its nodes have other labels",
        remedy: "wait for the controllers whose nodes fulfil selector and affinity, or change them",
    },
    Waiting {
        words: &["the largest free partition"],
        cause: "no free capacity",
        remedy: "wait, or request fewer IPUs",
    },
    Waiting {
        words: &["not together"],
        cause: "free, but not together",
        remedy: "wait until the IPUs beside them are released, or request fewer IPUs",
    },
    Waiting {
        words: &["was tried: "],
        cause: "tried without success",
        remedy: "wait, the operator tries again; admin: read the controller's own reason",
    },
    Waiting {
        words: &["and the Pods ask for"],
        cause: "the nodeSelector asks for other nodes",
        remedy: "wait for the controllers that it allows, or change it",
    },
    Waiting {
        words: &["it does not list any more"],
        cause: "it lost IPUs that Pods still use",
        remedy: "wait for those Pods",
    },
];

/// Advice about a reason of the operator or of Kubernetes.
pub fn of_reason(reason: &str) -> Option<&'static str> {
    let mut all = OPERATOR.iter().chain(KUBERNETES);
    let (_, advice) = all.find(|(reasons, _)| reasons.contains(&reason))?;
    Some(*advice)
}

/// Advice about each cause in a text about V-IPU controllers.
pub fn of_waiting(text: &str) -> Vec<String> {
    let found = WAITING
        .iter()
        .filter(|one| one.words.iter().any(|words| text.contains(words)));
    found
        .map(|one| format!("{}: {}", one.cause, one.remedy))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_one_advice() {
        let mut seen = BTreeSet::new();
        let all = OPERATOR.iter().chain(KUBERNETES);
        for word in all.flat_map(|(reasons, _)| *reasons) {
            assert!(seen.insert(*word), "{word} is there twice");
            assert!(of_reason(word).is_some(), "{word}");
        }
        assert_eq!(of_reason("PartitionReady"), None);
    }

    #[test]
    fn a_text_with_several_causes_has_several_advices() {
        let text = "pod1:8090: its free capacity is reserved for a/b; pod2:8090: it is cordoned and gets no new \
                    partitions";
        let expected = [
            "reserved for an earlier request: wait",
            "cordoned or drained: wait",
        ];
        assert_eq!(of_waiting(text), expected);
        assert_eq!(of_waiting("the policy says no"), Vec::<String>::new());
    }
}
