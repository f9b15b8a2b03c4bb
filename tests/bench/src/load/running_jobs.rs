//! Counts the jobs whose status says that they run, from one watch: lists would be part of what is
//! measured.

use std::collections::HashSet;
use std::time::Duration;

use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::LoadError;
use cluster::wait::WaitedTooLong;

/// Follows jobs until it is dropped.
pub(super) struct RunningJobs {
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl RunningJobs {
    /// Begins to follow all jobs of a kind. `is_running` reads a job's status.
    pub(super) fn follow(
        of_jobs: Api<DynamicObject>,
        is_running: fn(&DynamicObject) -> bool,
    ) -> Self {
        let (counted, count) = watch::channel(0);
        let task = tokio::spawn(async move {
            let mut running = HashSet::new();
            let events = watcher(of_jobs, watcher::Config::default());
            let followed = events.try_for_each(|event| {
                if let Event::Apply(job) | Event::InitApply(job) = &event
                    && is_running(job)
                    && running.insert(job.name_any())
                {
                    counted.send_replace(running.len());
                }
                std::future::ready(Ok(()))
            });
            if let Err(error) = followed.await {
                tracing::error!(%error, "the watch of jobs stopped");
            }
        });
        Self { count, task }
    }

    /// Waits until this number of jobs runs, or has run.
    pub(super) async fn once(&self, jobs: usize, patience: Duration) -> Result<(), LoadError> {
        let mut count = self.count.clone();
        let reached = tokio::time::timeout(patience, count.wait_for(|count| *count >= jobs)).await;
        if matches!(reached, Ok(Ok(_))) {
            return Ok(());
        }
        Err(LoadError::Waited(WaitedTooLong {
            what: format!("{jobs} jobs to run"),
            waited: patience,
            last: format!("{} do", *self.count.borrow()),
        }))
    }
}

impl Drop for RunningJobs {
    fn drop(&mut self) {
        self.task.abort();
    }
}
