//! Pure: the steps that a plan for a queued job consists of.

use ipu_api::ipujob_status::PodSetUpdate;

use crate::check::Answer;
use crate::objects::ReclaimablePods;

/// A step that changes the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Creates the Workload.
    CreateWorkload,
    /// Makes the job the owner of the prebuilt Workload.
    AdoptWorkload,
    /// Replaces the pod sets of the Workload by those of the job.
    SetPodSets,
    /// Moves the Workload to the job's queue.
    SetQueue,
    /// Gives the Workload the priority of the job.
    SetPriority,
    /// Gives the Workload the time limit of the job.
    SetTimeLimit,
    /// Copies the annotation that gates the admission.
    SetGatedBy,
    /// Deletes the Workload, when no partition of the job is left.
    DeleteWorkload,
    /// Deletes the Workload of a job that runs without it.
    DiscardWorkload,
    /// Removes what Kueue said about the Workload from the conditions of the job.
    RemoveCondition,
    /// Removes the finalizer of the Workload.
    RemoveFinalizer,
    /// Sets the Workload to finished.
    Finish {
        /// The reason of the condition.
        reason: &'static str,
        /// Its message.
        message: String,
    },
    /// Sets the number of Pods that need no quota any more.
    SetReclaimable(Vec<ReclaimablePods>),
    /// Sets the condition `PodsReady`.
    SetPodsReady {
        /// The status of the condition.
        is_ready: bool,
        /// Its reason.
        reason: &'static str,
    },
    /// Suspends the job, and takes back what its admission added, for this reason.
    Stop(String),
    /// Evicts the Workload of a job whose Pods could not start, for this reason.
    Evict(String),
    /// Releases the quota of the evicted Workload.
    ReleaseQuota {
        /// Whether a check of the operator has requested a retry, which has a delay.
        is_retry: bool,
    },
    /// Puts the Workload into the queue again, after the delay of a retry.
    Requeue,
    /// Starts the job on the nodes of its flavors.
    Start(Vec<PodSetUpdate>),
    /// Creates the partitions of the suspended job, on the nodes of its flavors.
    Reserve(Vec<PodSetUpdate>),
    /// Answers an admission check.
    AnswerCheck {
        /// Name of the check.
        name: String,
        /// The answer.
        answer: Answer,
    },
}
