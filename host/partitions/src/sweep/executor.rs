//! Performs the tasks of a sweep, as long as the replica leads.

use futures::future::join_all;
use ipu_api::ipupartition::IPUPartition;
use ipu_ledger::sweep::orphans::RemotePartition;
use ipu_ledger::sweep::{Course, Task};
use ipu_runtime::lease::Leadership;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Found, SweepError, ownerless};
use crate::controllers::ControllerPool;
use crate::pod_users::PodUsers;

/// Tasks of a course at the same time: a V-IPU controller may take seconds to remove a partition,
/// and may have hundreds to remove.
const CONCURRENT: usize = 4;

/// A course whose tasks are being performed.
type Running<'a> = Mutex<&'a mut Course<IPUPartition, SweepError>>;

/// Carries out tasks on the API server and on V-IPU controllers.
pub(super) struct Executor<'a> {
    pub(super) client: &'a Client,
    pub(super) pod_users: &'a PodUsers,
    pub(super) pool: &'a ControllerPool,
    /// The leadership of this replica. It may expire during a sweep.
    pub(super) leadership: &'a Leadership,
    /// Notified after a release of IPUs.
    pub(super) released: &'a Notify,
}

impl Executor<'_> {
    /// Performs the tasks of several courses concurrently, and returns the courses. `found` are the
    /// partitions on the controllers.
    pub(super) async fn run_all(
        &self,
        found: &[Found],
        courses: Vec<Course<IPUPartition, SweepError>>,
    ) -> Vec<Course<IPUPartition, SweepError>> {
        let running = courses.into_iter().map(|mut course| async move {
            self.run(found, &mut course).await;
            course
        });
        join_all(running).await
    }

    /// Performs the tasks of a course in order, a few at a time.
    pub(super) async fn run(&self, found: &[Found], course: &mut Course<IPUPartition, SweepError>) {
        let course = Mutex::new(course);
        join_all([(); CONCURRENT].map(|()| self.run_next(found, &course))).await;
    }

    /// Performs one task after the other. A partition that no Pod uses is removed immediately: its
    /// removal is the first of the tasks, and nothing is awaited before.
    async fn run_next(&self, found: &[Found], course: &Running<'_>) {
        loop {
            let task = course.lock().next_task();
            let Some(task) = task else { return };
            if !self.leadership.is_valid() {
                course.lock().stopped(SweepError::NotLeading);
                return;
            }
            if let Err(error) = self.perform(found, task, course).await {
                course.lock().failed(error);
            }
        }
    }

    async fn perform(
        &self,
        found: &[Found],
        task: Task<IPUPartition>,
        course: &Running<'_>,
    ) -> Result<(), SweepError> {
        match task {
            Task::Delete(partition) => ownerless::delete(self.client, &partition).await?,
            Task::Count(partition) => {
                let users = self.count_users(&partition).await?;
                course.lock().counted(partition, users);
            }
            Task::Remove(partition) => {
                let is_it =
                    |one: &&Found| one.key() == (partition.0.as_str(), partition.1.as_str());
                if let Some(found) = found.iter().find(is_it)
                    && !self.remove(found).await
                {
                    course.lock().unanswered(partition);
                }
            }
        }
        Ok(())
    }

    /// The number of live Pods that use a partition of this cluster that no IPUPartition lists. Of
    /// many, some are not counted.
    async fn count_users(&self, (name, id): &RemotePartition) -> Result<usize, SweepError> {
        let users = self.pod_users.of_orphan(id).await;
        let users = users.map_err(SweepError::Users)?;
        if !users.is_empty() {
            tracing::warn!(
                id,
                controller = name,
                ?users,
                "left alone: it has no owner, but Pods use it"
            );
        }
        Ok(users.len())
    }

    /// Removes a partition of this cluster that no IPUPartition lists and no Pod uses. Returns
    /// whether its controller has answered.
    async fn remove(&self, found: &Found) -> bool {
        let (name, id) = found.key();
        let controller = &*found.controller;
        let result = match self.pool.client(controller) {
            Ok(client) => client.remove(id, found.is_in_error).await,
            Err(error) => Err(error),
        };
        self.pool.changed(controller);
        self.released.notify_one();
        let Err(error) = result else {
            tracing::info!(
                id,
                controller = name,
                "removed a partition without an owner"
            );
            return true;
        };
        tracing::warn!(
            id,
            controller = name,
            reason = error.reason(),
            "failed to remove a partition without an owner; trying again"
        );
        !error.is_unanswered()
    }
}
