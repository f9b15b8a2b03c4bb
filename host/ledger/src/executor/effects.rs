//! What a reconcile of an IPUPartition reads and changes outside of itself.

use std::future::Future;
use std::sync::Arc;

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use ipu_placement::drain::EvictionState;

use crate::observations::{Answer, Intent, RemoteState, Reply};
use crate::step::Step;

/// The API server, the V-IPU controllers and placement, as one reconcile uses them. An error ends
/// the reconcile.
///
/// Futures are `Send`, since the operator spawns its reconciles.
pub trait Effects: Send {
    /// The failure of a request to the API server, or of the leader.
    type Error: Send;

    /// Whether the controller that this step calls, if any, has a permit for this reconcile.
    fn is_admitted(&mut self, partition: &IPUPartition, step: &Step) -> bool;

    /// An error if another replica may lead.
    fn check_leadership(&self) -> Result<(), Self::Error>;

    /// Adds the finalizer to the object in the version that was read. Returns what was written.
    fn add_finalizer(
        &mut self,
        partition: &IPUPartition,
    ) -> impl Future<Output = Result<Arc<IPUPartition>, Self::Error>> + Send;

    /// Removes the finalizer. Forced release abandons these attempts.
    fn release(
        &mut self,
        partition: &IPUPartition,
        abandoned: &[Attempt],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Replaces the status in the version that was read. With an intent, the call that it names
    /// follows. Returns what was written.
    fn write_status(
        &mut self,
        partition: &IPUPartition,
        status: IPUPartitionStatus,
        intent: Option<&Intent>,
    ) -> impl Future<Output = Result<Arc<IPUPartition>, Self::Error>> + Send;

    /// The live Pods with this id, as `namespace/name`.
    fn users(
        &mut self,
        partition: &IPUPartition,
        id: &str,
    ) -> impl Future<Output = Result<Vec<String>, Self::Error>> + Send;

    /// Requests the partition of an attempt.
    fn create(
        &mut self,
        partition: &IPUPartition,
        attempt: &Attempt,
    ) -> impl Future<Output = Reply> + Send;

    /// Reads the state of the partition of an attempt.
    fn remote_state(
        &mut self,
        partition: &IPUPartition,
        attempt: &Attempt,
    ) -> impl Future<Output = RemoteState> + Send;

    /// Removes the partition of an attempt. The error is the reason why the outcome is unknown.
    fn remove(
        &mut self,
        partition: &IPUPartition,
        attempt: &Attempt,
        force: bool,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Resets the partition of an attempt. The error is the reason why the outcome is unknown.
    fn reset(
        &mut self,
        partition: &IPUPartition,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// The decision on a controller. `None`: it follows. `has_written`: this reconcile has written
    /// the object, and the watch may not have shown that yet.
    fn place(
        &mut self,
        partition: &IPUPartition,
        has_written: bool,
    ) -> impl Future<Output = Result<Option<Answer>, Self::Error>> + Send;

    /// The other partitions of the owner, and whether the controller of this one is drained.
    fn eviction(&mut self, partition: &IPUPartition) -> impl Future<Output = EvictionState> + Send;
}
