//! Plays a user beside the operator's processes: runs jobs, deletes them, and reads their
//! description in kubectl.

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use kube::api::DeleteParams;
use serde_json::json;

use crate::chart::admin::Admin;
use crate::job::single;
use crate::processes::{Installation, RELEASE};

impl Installation {
    /// Creates a job of one worker, and runs its Pod. Returns the id of its partition.
    pub(crate) async fn run_job(&self, name: &str) -> String {
        let mut job = single(name);
        // The warnings of a waiting Pod are not of interest here.
        job["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"] = json!({});
        self.submit(&job).await;
        self.runs(&format!("{name}-worker-0")).await;
        self.once(name, JobState::Running).await;
        self.id(name).await.unwrap()
    }

    /// Returns the id of a job's partition, if it has one.
    pub(crate) async fn id(&self, job: &str) -> Option<String> {
        let mut all = self.partitions().await.into_iter();
        all.find(|(name, _)| name == job).and_then(|(_, id)| id)
    }

    /// The user deletes a job, and waits until it is gone.
    pub(crate) async fn delete_job(&self, name: &str) {
        let params = DeleteParams::default();
        self.jobs().delete(name, &params).await.unwrap();
        eventually(&format!("{name} is gone"), async || {
            Seen::when(self.jobs().get_opt(name).await.unwrap(), Option::is_none)
        })
        .await;
    }

    /// Returns the output of `kubectl describe ipujob`, with one space between columns, once it
    /// contains all of this.
    pub(crate) async fn described(&self, job: &str, parts: &[&str]) -> String {
        let admin = Admin::of(RELEASE, self.plane.kubeconfig());
        let describe = ["describe", "ipujob", job, "--namespace", "default"];
        eventually(&format!("{job} is described with {parts:?}"), async || {
            let text = admin.kubectl(&describe).unwrap();
            let lines = text.lines().map(|line| {
                let words = line.split(' ').filter(|word| !word.is_empty());
                words.collect::<Vec<_>>().join(" ")
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            let is_complete = parts.iter().all(|part| text.contains(part));
            if is_complete { Ok(text) } else { Err(text) }
        })
        .await
    }
}
