//! Pure: the stages of a job on the axis of time, from the seconds that the operator has counted.

use ipu_api::ipujob_status::{JobAccounting, JobActivity};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// The activities that follow each other once, in this order.
const ORDER: [JobActivity; 4] = [
    JobActivity::Waiting,
    JobActivity::Forming,
    JobActivity::Starting,
    JobActivity::Running,
];

/// Most seconds that the operator may not have counted, because the times of objects are whole
/// seconds.
const ROUNDED: i64 = 2;

/// Where the time of a job went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stages {
    /// The stages in their order. Empty: the operator counts seconds, and their order is not known
    /// any more.
    pub spans: Vec<Stage>,
    /// Seconds of each stage, without those since the last count.
    pub totals: Vec<Total>,
    /// The activity now. Missing: the job has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<JobActivity>,
}

/// A stage with its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// The activity.
    pub activity: JobActivity,
    /// Its start.
    pub from: Timestamp,
    /// Its end. Missing: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Seconds of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Total {
    /// Its name: that of an activity, or `wasted`.
    pub stage: &'static str,
    /// Its seconds.
    pub seconds: i64,
}

/// The stages of a job that was created at a time.
pub(super) fn stages(accounting: &JobAccounting, created: Timestamp) -> Stages {
    Stages {
        spans: spans(accounting, created).unwrap_or_default(),
        totals: totals(accounting),
        current: accounting.current,
    }
}

/// The stages in their order. `None`: it is not known, because the job has been reset, suspended or
/// restarted, or was not counted from the beginning.
fn spans(accounting: &JobAccounting, created: Timestamp) -> Option<Vec<Stage>> {
    let seconds = [
        accounting.waiting,
        accounting.forming,
        accounting.starting,
        accounting.running,
    ];
    let counted = seconds
        .iter()
        .fold(0_i64, |sum, one| sum.saturating_add(*one));
    let alive = accounting.until.0.duration_since(created).as_secs();
    if counted != accounting.total() || (alive - counted).abs() > ROUNDED {
        return None;
    }
    let mut spans: Vec<Stage> = Vec::new();
    let mut from = created;
    for (activity, seconds) in ORDER.into_iter().zip(seconds) {
        if seconds > 0 {
            let until = from.checked_add(SignedDuration::from_secs(seconds)).ok()?;
            spans.push(Stage {
                activity,
                from,
                until: Some(until),
            });
            from = until;
        }
    }
    let Some(current) = accounting.current else {
        return Some(spans);
    };
    let place = |activity| ORDER.iter().position(|stage| *stage == activity);
    let last = spans.last().map(|last| last.activity);
    if last == Some(current) {
        spans.last_mut()?.until = None;
        return Some(spans);
    }
    // An earlier activity again: it began a second time.
    let is_later =
        place(current).is_none_or(|now| last.and_then(place).is_none_or(|last| last < now));
    is_later.then(|| {
        spans.push(Stage {
            activity: current,
            from,
            until: None,
        });
        spans
    })
}

fn totals(accounting: &JobAccounting) -> Vec<Total> {
    let all = [
        ("waiting", accounting.waiting),
        ("forming", accounting.forming),
        ("starting", accounting.starting),
        ("running", accounting.running),
        ("wasted", accounting.wasted),
        ("resetting", accounting.resetting),
        ("idle", accounting.idle),
        ("restarting", accounting.restarting),
        ("suspended", accounting.suspended),
    ];
    let some = all.into_iter().filter(|(_, seconds)| *seconds > 0);
    some.map(|(stage, seconds)| Total { stage, seconds })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2026-01-02T12:00:00Z";

    /// Activity, first second and last second of each stage, this number of seconds after the
    /// creation.
    fn drawn(after: i64, seconds: Value) -> Vec<String> {
        let created: Timestamp = CREATED.parse().unwrap();
        let mut accounting = seconds;
        accounting["until"] = json!(created + SignedDuration::from_secs(after));
        let accounting: JobAccounting = serde_json::from_value(accounting).unwrap();
        let second = |time: Timestamp| time.duration_since(created).as_secs();
        let stage = |stage: &Stage| {
            let until = stage
                .until
                .map_or("…".to_owned(), |until| second(until).to_string());
            format!("{:?} {}-{until}", stage.activity, second(stage.from))
        };
        let stages = stages(&accounting, created);
        stages.spans.iter().map(stage).collect()
    }

    #[test]
    fn stages_that_follow_each_other_once_have_times() {
        let waits = drawn(0, json!({"current": "waiting"}));
        assert_eq!(waits, ["Waiting 0-…"]);
        let runs = json!({"waiting": 30, "forming": 10, "starting": 20, "running": 40, "current": "running"});
        let expected = [
            "Waiting 0-30",
            "Forming 30-40",
            "Starting 40-60",
            "Running 60-…",
        ];
        assert_eq!(drawn(100, runs), expected);
        let starts = json!({"waiting": 30, "forming": 10, "current": "starting"});
        assert_eq!(
            drawn(41, starts),
            ["Waiting 0-30", "Forming 30-40", "Starting 40-…"]
        );
        let resets = json!({"running": 50, "current": "resetting"});
        assert_eq!(drawn(50, resets), ["Running 0-50", "Resetting 50-…"]);
        let ended = json!({"waiting": 5, "running": 45});
        assert_eq!(drawn(50, ended), ["Waiting 0-5", "Running 5-50"]);
    }

    #[test]
    fn an_order_that_is_not_known_is_not_invented() {
        for (after, seconds) in [
            (
                90,
                json!({"running": 50, "wasted": 40, "current": "running"}),
            ),
            (
                60,
                json!({"running": 50, "resetting": 10, "current": "running"}),
            ),
            (
                60,
                json!({"waiting": 10, "running": 50, "current": "waiting"}),
            ),
            // A job of an earlier version is counted from its next state on.
            (500, json!({"running": 50, "current": "running"})),
        ] {
            assert_eq!(drawn(after, seconds.clone()), [""; 0], "{seconds}");
        }
    }

    #[test]
    fn seconds_of_each_stage_are_listed() {
        let accounting = json!({"until": CREATED, "running": 50, "wasted": 40});
        let accounting = serde_json::from_value(accounting).unwrap();
        let expected = [
            Total {
                stage: "running",
                seconds: 50,
            },
            Total {
                stage: "wasted",
                seconds: 40,
            },
        ];
        assert_eq!(totals(&accounting), expected);
    }
}
