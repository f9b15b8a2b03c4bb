//! Pure: the probes of Pods as the kubelets count them, and the Events about failed probes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

/// The kubelet's counter of probes, by kind and result.
const COUNTER: &str = "prober_probe_total{";

/// The result of a successful probe.
const SUCCESSFUL: &str = "successful";

/// The probe counters and Events of some Pods at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    counts: BTreeMap<Probe, u64>,
    /// By the UID of the Event. An Event stands for all failures of one kind and has a count.
    events: BTreeMap<String, Report>,
}

/// The probes that a counter counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    pod: String,
    kind: String,
    result: String,
}

/// An Event, with the number and the time of its reports.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    pod: String,
    message: String,
    times: i32,
    last: Option<Timestamp>,
}

impl Probes {
    /// Adds what a kubelet counts (`/metrics/probes`), of the Pods in a namespace.
    pub fn add_counts(&mut self, namespace: &str, metrics: &str) {
        for line in metrics.lines() {
            let Some((labels, value)) = line
                .strip_prefix(COUNTER)
                .and_then(|line| line.split_once("} "))
            else {
                continue;
            };
            let label = |name: &str| {
                let mut labels = labels.split(',').filter_map(|label| label.split_once('='));
                let found = labels.find(|(found, _)| *found == name);
                found
                    .map(|(_, value)| value.trim_matches('"').to_owned())
                    .unwrap_or_default()
            };
            if label("namespace") != namespace {
                continue;
            }
            let probe = Probe {
                pod: label("pod"),
                kind: label("probe_type"),
                result: label("result"),
            };
            // An unreadable counter counts nothing, so the test finds that its Pod had no probe.
            *self.counts.entry(probe).or_default() += value.trim().parse().unwrap_or(0);
        }
    }

    /// Adds an Event about a failed probe.
    pub fn add_event(&mut self, event: &Event) {
        let series = event.series.as_ref();
        let report = Report {
            pod: event.involved_object.name.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            times: series
                .and_then(|series| series.count)
                .or(event.count)
                .unwrap_or(1),
            last: series
                .and_then(|series| series.last_observed_time.as_ref())
                .map(|time| time.0)
                .or_else(|| event.last_timestamp.as_ref().map(|time| time.0))
                .or_else(|| event.event_time.as_ref().map(|time| time.0)),
        };
        let uid = event.metadata.uid.clone();
        self.events.insert(uid.unwrap_or_default(), report);
    }

    /// Number of successful probes of a Pod since an earlier moment.
    pub fn answered_since(&self, before: &Self, pod: &str) -> u64 {
        let of_pod = self.counts.keys().filter(|probe| probe.pod == pod);
        let good = of_pod.filter(|probe| probe.result == SUCCESSFUL);
        good.map(|probe| self.more_than(before, probe)).sum()
    }

    /// Each failure since an earlier moment: what the kubelets counted, and what the Events say.
    pub fn failures_since(&self, before: &Self) -> Vec<String> {
        let bad = self
            .counts
            .keys()
            .filter(|probe| probe.result != SUCCESSFUL);
        let counted = bad.filter_map(|probe| {
            let Probe { pod, kind, result } = probe;
            let count = self.more_than(before, probe);
            (count > 0).then(|| format!("{pod}: {count} probes {kind} {result}"))
        });
        let events = self.events.iter();
        let new = events.filter(|(uid, report)| before.events.get(*uid) != Some(report));
        let said = new.map(|(_, report)| {
            let Report {
                pod,
                message,
                times,
                last,
            } = report;
            format!("{pod}: {message} ({times} times, last {last:?})")
        });
        counted.chain(said).collect()
    }

    fn more_than(&self, before: &Self, probe: &Probe) -> u64 {
        let count = |probes: &Self| probes.counts.get(probe).copied().unwrap_or(0);
        count(self).saturating_sub(count(before))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::EventSeries;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

    use super::*;

    fn counts(good: u64, bad: u64, elsewhere: u64) -> String {
        let line = |namespace: &str, result: &str, count: u64| {
            format!(
                "prober_probe_total{{container=\"c\",namespace=\"{namespace}\",pod=\"a\",\
                 pod_uid=\"1\",probe_type=\"Readiness\",result=\"{result}\"}} {count}\n"
            )
        };
        [
            "# TYPE prober_probe_total counter\n".to_owned(),
            line("here", "successful", good),
            line("here", "failed", bad),
            line("there", "failed", elsewhere),
        ]
        .concat()
    }

    fn at(metrics: &str, events: &[&Event]) -> Probes {
        let mut probes = Probes::default();
        probes.add_counts("here", metrics);
        for event in events {
            probes.add_event(event);
        }
        probes
    }

    fn event(uid: &str, count: Option<i32>) -> Event {
        let mut event = Event {
            count,
            message: Some("Readiness probe failed".to_owned()),
            last_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..Event::default()
        };
        event.metadata.uid = Some(uid.to_owned());
        event.involved_object.name = Some("a".to_owned());
        event
    }

    #[test]
    fn counts_of_a_kubelet_are_compared_with_its_earlier_counts() {
        let before = at(&counts(5, 2, 0), &[]);
        let after = at(&counts(9, 2, 7), &[]);
        assert_eq!(after.answered_since(&before, "a"), 4);
        assert_eq!(after.answered_since(&before, "b"), 0);
        assert_eq!(after.failures_since(&before), <[String; 0]>::default());
        let failed = at(&counts(9, 3, 7), &[]).failures_since(&before);
        assert_eq!(failed, ["a: 1 probes Readiness failed"]);
    }

    #[test]
    fn an_event_that_was_reported_again_is_a_failure() {
        let old = event("old", Some(3));
        let before = at("", &[&old]);
        assert_eq!(before.failures_since(&before), <[String; 0]>::default());
        let again = event("old", Some(4));
        let mut series = old.clone();
        series.series = Some(EventSeries {
            count: Some(3),
            last_observed_time: Some(MicroTime(Timestamp::from_second(9).unwrap())),
        });
        let new = event("new", None);
        for changed in [&[&again][..], &[&series], &[&old, &new]] {
            let failures = at("", changed).failures_since(&before);
            assert_eq!(failures.len(), 1, "{failures:?}");
            assert!(
                failures[0].contains("a: Readiness probe failed"),
                "{failures:?}"
            );
        }
    }
}
