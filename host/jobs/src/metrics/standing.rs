//! Pure: how many jobs are in each phase, counted as they come and go.

use std::collections::{BTreeMap, HashMap};

use ipu_api::ipujob_status::JobState;
use ipu_api::uid::Uid;
use ipu_runtime::watch_store::{Store, by_ref};
use kube::runtime::watcher::Event;

use super::milestones::phase;
use crate::kept::OfJob;
use crate::raw::RawJob;

/// The phase of a job that is being deleted, whatever it was before.
const DELETING: &str = "Deleting";

/// All phases, so that one without jobs is told as well.
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
pub struct Standing(Store<Uid, &'static str>);

impl Standing {
    /// Takes in what a watch of all jobs tells.
    pub fn hear(&mut self, event: &Event<RawJob>) {
        let uid = |job: &&RawJob| job.job().map(|job| job.uid);
        self.0
            .hear(by_ref(event), uid, |_, job, _| Some(phase_of(job)));
    }

    /// How many jobs are in each phase: none before all are known.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let mut counts = HashMap::from(PHASES.map(|phase| (phase, 0)));
        let known = self.0.is_listed().then(|| self.0.objects());
        for phase in known.into_iter().flat_map(BTreeMap::values) {
            *counts.entry(phase).or_default() += 1;
        }
        counts.into_iter()
    }
}

/// A job without a status that can be read waits for one.
fn phase_of(job: &RawJob) -> &'static str {
    if job.metadata.deletion_timestamp.is_some() {
        return DELETING;
    }
    let state = job.status.get("launcherStatus").cloned();
    let state = state.and_then(|state| serde_json::from_value::<JobState>(state).ok());
    phase(state.unwrap_or_default())
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

    fn shown(standing: &Standing) -> Vec<(&'static str, usize)> {
        let mut counts: Vec<_> = standing.counts().filter(|(_, count)| *count > 0).collect();
        counts.sort_unstable();
        counts
    }

    #[test]
    fn jobs_are_counted_as_they_come_and_go() {
        let mut standing = Standing::default();
        assert_eq!(standing.counts().count(), PHASES.len());
        let running = json!({"launcherStatus": "Running"});
        standing.hear(&Event::Init);
        standing.hear(&Event::InitApply(job("a", &running)));
        standing.hear(&Event::InitApply(job("b", &json!("what?"))));
        assert_eq!(shown(&standing), []);
        standing.hear(&Event::InitDone);
        assert_eq!(shown(&standing), [("Pending", 1), ("Running", 1)]);
        standing.hear(&Event::Apply(job("b", &running)));
        assert_eq!(shown(&standing), [("Running", 2)]);
        let mut leaving = job("a", &running);
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap());
        standing.hear(&Event::Apply(leaving));
        assert_eq!(shown(&standing), [("Deleting", 1), ("Running", 1)]);
        standing.hear(&Event::Delete(job("a", &running)));
        for event in [
            Event::Init,
            Event::InitApply(job("c", &running)),
            Event::InitDone,
        ] {
            standing.hear(&event);
        }
        assert_eq!(shown(&standing), [("Running", 1)]);
    }
}
