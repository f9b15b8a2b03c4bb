//! Pure: counts the jobs in each phase.

use std::collections::{BTreeMap, HashMap};

use ipu_api::ipujob_status::JobState;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Store, by_ref};
use kube::runtime::watcher::Event;

use crate::job_object::JobObject;
use crate::raw::RawJob;

/// The phase of a job that is being deleted.
const DELETING: &str = "Deleting";

/// All phases, so that a phase without jobs has a value.
const PHASES: [&str; 6] = [
    "Pending",
    "Running",
    "Completed",
    "Failed",
    "Suspended",
    DELETING,
];

/// The phase of every job.
#[derive(Debug, Default)]
pub struct JobPhases(Store<Uid, &'static str>);

impl JobPhases {
    /// Applies an event of the watch of all jobs.
    pub fn apply_event(&mut self, event: &Event<RawJob>) {
        let uid = |job: &&RawJob| job.job().map(|job| job.uid);
        self.0
            .apply_event(by_ref(event), uid, |_, job, _| Some(phase_of(job)));
    }

    /// Returns the number of jobs in each phase. All are 0 before the first list is complete.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let mut counts = HashMap::from(PHASES.map(|phase| (phase, 0)));
        let known = self.0.is_listed().then(|| self.0.objects());
        for phase in known.into_iter().flat_map(BTreeMap::values) {
            *counts.entry(phase).or_default() += 1;
        }
        counts.into_iter()
    }
}

/// Returns the phase of a job. A job without a readable status is pending.
fn phase_of(job: &RawJob) -> &'static str {
    if job.metadata.deletion_timestamp.is_some() {
        return DELETING;
    }
    let state = job.status.get("launcherStatus").cloned();
    let state = state.and_then(|state| serde_json::from_value::<JobState>(state).ok());
    state.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, status: &Value) -> RawJob {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": name}, "status": status,
        }))
        .unwrap()
    }

    fn shown(phases: &JobPhases) -> Vec<(&'static str, usize)> {
        let mut counts: Vec<_> = phases.counts().filter(|(_, count)| *count > 0).collect();
        counts.sort_unstable();
        counts
    }

    #[test]
    fn jobs_are_counted_by_phase() {
        let mut phases = JobPhases::default();
        assert_eq!(phases.counts().count(), PHASES.len());
        let running = json!({"launcherStatus": "Running"});
        phases.apply_event(&Event::Init);
        phases.apply_event(&Event::InitApply(job("a", &running)));
        phases.apply_event(&Event::InitApply(job("b", &json!("what?"))));
        assert_eq!(shown(&phases), []);
        phases.apply_event(&Event::InitDone);
        assert_eq!(shown(&phases), [("Pending", 1), ("Running", 1)]);
        phases.apply_event(&Event::Apply(job("b", &running)));
        assert_eq!(shown(&phases), [("Running", 2)]);
        let mut leaving = job("a", &running);
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap());
        phases.apply_event(&Event::Apply(leaving));
        assert_eq!(shown(&phases), [("Deleting", 1), ("Running", 1)]);
        phases.apply_event(&Event::Delete(job("a", &running)));
        for event in [
            Event::Init,
            Event::InitApply(job("c", &running)),
            Event::InitDone,
        ] {
            phases.apply_event(&event);
        }
        assert_eq!(shown(&phases), [("Running", 1)]);
    }
}
