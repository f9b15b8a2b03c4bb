//! Pure: the effects of a reconcile of one job, as its executor asks for them.

use ipu_api::ipujob_status::IPUJobStatus;
use ipu_api::ipupartition::IPUPartition;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::facts::Observed;
use crate::plan::{Deletion, DependentKind, PinUpdate, Plan, Release, Reset};
use crate::status::{Applied, Obstacle};
use crate::validate::ValidJob;

/// What one reconcile of one job reads, and what it has done to the world. An error ends the
/// reconcile; the next one continues it.
///
/// Guarantees of an implementation: each write names its object by UID or by version; an object
/// that does not exist is deleted; what was written is expected from the watches before the next
/// reconcile of the job reads.
pub trait Effects: Send {
    /// The reason why a request failed.
    type Error: Send;

    /// The metadata of the job, as it was read or last written.
    fn metadata(&self) -> &ObjectMeta;

    /// What was read for the job. Its status is the one that was written last.
    fn observed(&self) -> &Observed;

    /// Adds or removes the finalizer of the job, in the version that was read.
    fn set_finalizer(
        &mut self,
        is_present: bool,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Deletes the finished job, unless it has changed since it was read.
    fn delete_job(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Tries the first Pods of the job by a dry run, before it requests its first partition.
    fn trial_refusal(&mut self, job: &ValidJob) -> impl Future<Output = Option<Obstacle>> + Send;

    /// Gives a launcher that the plan creates the pull secrets of its workers.
    fn add_pull_secrets(
        &mut self,
        job: &ValidJob,
        plan: &mut Plan,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Replaces the status in the version that was read, and publishes the events of the change.
    fn write_status(
        &mut self,
        status: IPUJobStatus,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Records that this Pod, which is about to be created, has not existed since the last reset of
    /// its partition.
    fn expect_uncreated(&mut self, pod: &str);

    /// Records that this Pod exists.
    fn expect_created(&mut self, pod: &str);

    /// Deletes a Pod.
    fn delete_pod(
        &mut self,
        deletion: &Deletion,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Ends the sidecars of a Pod whose main container has ended.
    fn end_pod(&mut self, pod: &Deletion) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether the API server has a Pod of this instance, whatever the caches contain.
    fn has_pods(&mut self, instance: u32)
    -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Whether the API server has an IPUPartition of this name, whatever the caches contain.
    fn has_partition(
        &mut self,
        name: &str,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Requests a reset of a partition.
    fn reset(&mut self, reset: &Reset) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Pins or unpins a partition.
    fn update_pin(
        &mut self,
        update: &PinUpdate,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Creates an IPUPartition, unless one of the name exists.
    fn create_partition(
        &mut self,
        partition: &IPUPartition,
    ) -> impl Future<Output = Result<Option<Obstacle>, Self::Error>> + Send;

    /// Applies the rights of the launcher of these kinds that the plan names and that are not
    /// verified.
    fn apply_rights(
        &mut self,
        plan: &Plan,
        kinds: &[DependentKind],
    ) -> impl Future<Output = Result<Applied, Self::Error>> + Send;

    /// Creates these ConfigMaps. They never change, so an existing one of the job is the desired
    /// one.
    fn create_config_maps(
        &mut self,
        config_maps: &[ConfigMap],
    ) -> impl Future<Output = Result<Vec<Obstacle>, Self::Error>> + Send;

    /// Creates a Pod, unless one of the name exists.
    fn create_pod(
        &mut self,
        pod: &Pod,
    ) -> impl Future<Output = Result<Option<Obstacle>, Self::Error>> + Send;

    /// Releases the command of a launcher.
    fn release_launcher(
        &mut self,
        release: &Release,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Releases a partition: deletes its IPUPartition, which remains until it is gone from its
    /// V-IPU controller.
    fn delete_partition(
        &mut self,
        deletion: &Deletion,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Publishes the events of an applied plan. It waits for nothing.
    fn publish_writes(&mut self, plan: &Plan, applied: &Applied);
}
