//! Rules of jobs, which hold after each step whatever faults occur.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipujob_status::IPUJobStatus;

use super::invariants::demand;
use super::job_server::PodVersion;

pub(super) const RESET_BEFORE_NEXT_USE: &str =
    "a partition that Pods have used is reset before others use it";
pub(super) const RESTARTED_ONCE: &str = "a run of a job counts as restarted at most once";
pub(super) const FINISHED_ONCE: &str = "a job that has finished stays finished";
pub(super) const ONE_RESET: &str = "a disruption costs at most one reset of a partition";

/// What the Pods of jobs have done to partitions, and what statuses have counted.
#[derive(Debug, Default)]
pub(super) struct JobHistory {
    /// By id of a partition: the names of the workers that have used it since its last reset, with
    /// their run.
    users: BTreeMap<String, BTreeMap<String, i64>>,
    /// Runs after which a job was restarted.
    restarted: BTreeSet<(String, i64)>,
    /// By id of a partition: resets that disruptions may cost and have not cost yet. None where
    /// anything else may cause a reset, too.
    pub resets_left: Option<BTreeMap<String, u32>>,
}

impl JobHistory {
    /// The program of a Pod attaches to its partition. A launcher only starts the programs of
    /// workers.
    pub(super) fn attached(&mut self, pod: &PodVersion) {
        if pod.is_launcher() {
            return;
        }
        let users = self.users.entry(pod.id.clone()).or_default();
        let (name, run) = (pod.name(), pod.run());
        let mut earlier = users.iter();
        let is_clean = earlier.all(|(user, of_run)| user != name && *of_run == run);
        demand(is_clean, RESET_BEFORE_NEXT_USE, || {
            format!("{name} of run {run} uses {}, after {users:?}", pod.id)
        });
        users.insert(name.to_owned(), run);
    }

    /// A V-IPU controller begins to reset a partition.
    pub(super) fn reset(&mut self, id: &str) {
        self.users.remove(id);
        if let Some(left) = &mut self.resets_left {
            let of_id = left.entry(id.to_owned()).or_default();
            demand(*of_id > 0, ONE_RESET, || format!("{id} is reset again"));
            *of_id -= 1;
        }
    }

    /// A status of a job replaces another one.
    pub(super) fn status_written(
        &mut self,
        uid: &str,
        before: &IPUJobStatus,
        after: &IPUJobStatus,
    ) {
        let run = |status: &IPUJobStatus| status.run.as_ref().map_or(0, |run| run.number);
        let restarts = |status: &IPUJobStatus| i64::from(status.restart_count.unwrap_or(0));
        let counted = restarts(after) - restarts(before);
        let is_new =
            counted == 0 || counted == 1 && self.restarted.insert((uid.to_owned(), run(before)));
        demand(
            is_new && run(after) - run(before) >= counted,
            RESTARTED_ONCE,
            || format!("{uid}: {:?} after {:?}", after.run, before.run),
        );
        let is_kept =
            before.completion_time.is_none() || before.completion_time == after.completion_time;
        demand(is_kept, FINISHED_ONCE, || {
            format!("{uid}: {after:?} after {before:?}")
        });
    }

    /// The API server is restored from a backup: statuses say less than what has happened.
    pub(super) fn restored(&mut self) {
        self.users.clear();
        self.restarted.clear();
    }
}
