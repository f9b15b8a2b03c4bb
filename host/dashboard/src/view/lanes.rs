//! Pure: partitions, Pods and events of a job on the axis of time.

use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::{IPUPartition, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions::READY;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde::Serialize;

use super::state::{self, State};
use crate::pods::{self, Cause};
use crate::projection::Partition;
use crate::shown::shown;

/// A time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The state.
    pub state: State,
    /// Its start.
    pub from: Timestamp,
    /// Its end. Missing: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// A partition or a Pod with the times that are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lane {
    /// Its name.
    pub name: String,
    /// Its state or phase in a word.
    pub state: String,
    /// IPUs of a partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipus: Option<u32>,
    /// The V-IPU controller of a partition, or the node of a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Reason why a Pod does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Its times, oldest first.
    pub spans: Vec<Span>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Time of the last occurrence.
    pub time: Timestamp,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Kind and name of its object.
    pub object: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Number of occurrences.
    pub count: i32,
}

/// A partition of a job in this state.
pub(super) fn partition(object: &IPUPartition, job: JobState) -> Lane {
    let one = Partition::new(object);
    let empty = IPUPartitionStatus::default();
    let status = object.status.as_ref().unwrap_or(&empty);
    let now = state::of(&one, Some(job));
    let started = status.attempts.last();
    let started = started.and_then(|attempt| attempt.started.as_ref());
    let started = started.map(|time| time.0);
    let ready = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == READY);
    let changed = ready.map(|condition| condition.last_transition_time.0);
    let is_ready = ready.is_some_and(|condition| condition.status == "True");
    let is_first = matches!(
        status.phase,
        PartitionPhase::Pending | PartitionPhase::Creating
    );
    let mut times = Times::default();
    if is_first || started.is_some() {
        times.add(State::Waiting, one.created, started);
    }
    if is_first {
        times.add(now, started, None);
    } else {
        // What it was between the attempt and its last change is known only if that change made it
        // ready.
        times.add(State::Forming, started.filter(|_| is_ready), changed);
        times.add(now, changed, None);
    }
    Lane {
        name: one.name,
        state: format!("{now:?}").to_lowercase(),
        ipus: Some(one.ipus),
        place: one.controller,
        cause: None,
        spans: times.0,
    }
}

/// A Pod.
pub(super) fn pod(pod: &Pod) -> Lane {
    let status = pod.status.as_ref();
    let condition = |type_: &str| {
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let found =
            conditions.find(|condition| condition.type_ == type_ && condition.status == "True")?;
        found.last_transition_time.as_ref().map(|time| time.0)
    };
    let scheduled = condition("PodScheduled");
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let runs = containers.into_iter().flatten().filter_map(run);
    let run = runs.min_by_key(|(started, ..)| *started);
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let started = run.map(|(started, ..)| started);
    let mut times = Times::default();
    times.add(State::Waiting, created, scheduled.or(started));
    times.add(State::Forming, scheduled, started);
    if let Some((started, ended, is_failed)) = run {
        let state = if is_failed {
            State::Error
        } else {
            State::Running
        };
        times.add(state, Some(started), ended);
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    Lane {
        name: shown(&pod.name_any()),
        state: pods::phase(pod),
        ipus: None,
        place: node.map(shown),
        cause: pods::cause(pod),
        spans: times.0,
    }
}

/// Start, end and failure of a container that has started.
fn run(container: &ContainerStatus) -> Option<(Timestamp, Option<Timestamp>, bool)> {
    let state = container.state.as_ref()?;
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    if let Some(running) = &state.running {
        return Some((time(&running.started_at)?, None, false));
    }
    let ended = state.terminated.as_ref()?;
    let started = time(&ended.started_at)?;
    Some((started, time(&ended.finished_at), ended.exit_code != 0))
}

/// An event. `None`: it has no time.
pub(super) fn mark(event: &Event) -> Option<Mark> {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref());
    let time = last
        .map(|time| time.0)
        .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
        .or_else(|| event.event_time.as_ref().map(|time| time.0))?;
    let about = &event.involved_object;
    let text = |text: &Option<String>| shown(text.as_deref().unwrap_or_default());
    let counted = series.and_then(|series| series.count).or(event.count);
    Some(Mark {
        time,
        type_: text(&event.type_),
        object: format!("{} {}", text(&about.kind), text(&about.name)),
        reason: text(&event.reason),
        message: text(&event.message),
        count: counted.unwrap_or(1),
    })
}

/// Times of one object, oldest first.
#[derive(Debug, Default)]
struct Times(Vec<Span>);

impl Times {
    /// Adds a time, if its start is known. A time that ends before its start has passed in less
    /// than a second.
    fn add(&mut self, state: State, from: Option<Timestamp>, until: Option<Timestamp>) {
        let Some(from) = from else {
            return;
        };
        self.0.push(Span {
            state,
            from,
            until: until.map(|until| until.max(from)),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::view::fixture::{partition_object, placed};

    /// State, first and last minute of each time.
    fn short(lane: &Lane) -> Vec<String> {
        let minute = |time: Timestamp| time.to_string()[14..16].to_owned();
        let span = |span: &Span| {
            let until = span.until.map_or("…".to_owned(), minute);
            format!("{:?} {}-{until}", span.state, minute(span.from))
        };
        lane.spans.iter().map(span).collect()
    }

    fn time(minute: u32) -> String {
        format!("2026-01-02T12:{minute:02}:00Z")
    }

    #[test]
    fn a_partition_shows_the_times_that_are_known() {
        let drawn = |status: Value| {
            let object = partition_object("a/train", 4, &status);
            short(&partition(
                &serde_json::from_value(object).unwrap(),
                JobState::Running,
            ))
        };
        let with = |phase: &str, ready: &str| {
            let mut status = placed("pod1", phase);
            status["attempts"][0]["started"] = json!(time(10));
            status["conditions"] = json!([{
                "type": "Ready", "status": ready, "reason": "R", "message": "",
                "lastTransitionTime": time(12),
            }]);
            status
        };
        assert_eq!(drawn(json!({"phase": "Pending"})), ["Waiting 00-…"]);
        assert_eq!(
            drawn(with("Creating", "False")),
            ["Waiting 00-10", "Forming 10-…"]
        );
        let expected = ["Waiting 00-10", "Forming 10-12", "Running 12-…"];
        assert_eq!(drawn(with("Ready", "True")), expected);
        assert_eq!(
            drawn(with("Error", "False")),
            ["Waiting 00-10", "Error 12-…"]
        );
    }

    #[test]
    fn a_pod_waits_starts_runs_and_ends() {
        let drawn = |scheduled: bool, state: Value| {
            let status = if scheduled { "True" } else { "False" };
            let object = json!({
                "metadata": {"name": "worker", "creationTimestamp": time(0)},
                "status": {
                    "conditions": [
                        {"type": "PodScheduled", "status": status, "lastTransitionTime": time(1)},
                    ],
                    "containerStatuses": [{
                        "name": "main", "image": "", "imageID": "", "ready": false,
                        "restartCount": 0, "state": state,
                    }],
                },
            });
            short(&pod(&serde_json::from_value(object).unwrap()))
        };
        assert_eq!(drawn(false, json!({})), ["Waiting 00-…"]);
        assert_eq!(drawn(true, json!({})), ["Waiting 00-01", "Forming 01-…"]);
        let failed = json!({"terminated": {
            "exitCode": 1, "startedAt": time(3), "finishedAt": time(9),
        }});
        assert_eq!(
            drawn(true, failed),
            ["Waiting 00-01", "Forming 01-03", "Error 03-09"]
        );
    }

    #[test]
    fn an_event_without_a_time_is_no_mark() {
        let event = |time: Value| {
            let object = json!({
                "metadata": {}, "involvedObject": {"kind": "Pod", "name": "worker"},
                "type": "Warning", "reason": "Failed", "message": "no image",
                "lastTimestamp": time,
            });
            mark(&serde_json::from_value(object).unwrap())
        };
        assert_eq!(event(json!(null)), None);
        let found = event(json!(time(5))).unwrap();
        assert_eq!((&*found.object, found.count), ("Pod worker", 1));
    }
}
