//! The figures of waiting requests: bytes into etcd, refused calls, and times from a release to an
//! assignment.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::control_plane::ControlPlane;
use cluster::http;
use jiff::Timestamp;
use vipu_simulator::faults::Method;
use vipu_simulator::journal::Call;

use super::super::super::{Consumption, LoadError, as_figure};
use super::Size;

/// The end of the name of etcd's metric: the bytes of all keys and values that it has stored.
const PUT_BYTES: &str = "mvcc_total_put_size_in_bytes ";

/// The measurements.
#[derive(Clone, Debug)]
pub struct Backlog {
    /// The load.
    pub size: Size,
    /// Small partitions, with no other request.
    pub alone: Period,
    /// From the first waiting request until all have their reason.
    pub settled: Duration,
    /// Small partitions beside the waiting requests.
    pub beside: Period,
    /// Refused CreatePartition calls a minute to the controller with most of them.
    pub refused_a_minute: f64,
    /// From the release of IPUs to the next request of a partition there.
    pub reactions: Vec<Duration>,
    /// Consumption before the requests.
    pub before: Consumption,
    /// Consumption at the end.
    pub after: Consumption,
}

/// Some time in which one small partition a second comes and goes.
#[derive(Clone, Debug)]
pub struct Period {
    /// Its start.
    pub began: Timestamp,
    /// Its duration.
    pub took: Duration,
    /// Bytes of keys and values into etcd, per second.
    pub bytes_a_second: f64,
    /// Processors that the proxy used.
    pub cpu: f64,
    /// Writes of all clients, by method and resource.
    pub writes: BTreeMap<String, u64>,
    /// Times until the small partitions were ready.
    pub ready: Vec<Duration>,
}

impl Backlog {
    /// Bytes per second into etcd because of the waiting requests.
    pub fn bytes_a_second(&self) -> f64 {
        self.beside.bytes_a_second - self.alone.bytes_a_second
    }

    /// The time within which this share of the reactions began.
    pub fn reaction(&self, percent: usize) -> Duration {
        let mut sorted = self.reactions.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).copied().unwrap_or(Duration::MAX)
    }
}

/// Bytes of keys and values that etcd has stored so far.
pub(super) async fn put_bytes(plane: &ControlPlane) -> Result<f64, LoadError> {
    let metrics = http::request("GET", &format!("{}/metrics", plane.etcd()), "").await?;
    parse(&metrics).ok_or_else(|| LoadError::Missing(format!("etcd has no metric {PUT_BYTES}")))
}

fn parse(metrics: &str) -> Option<f64> {
    let mut lines = metrics.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let (_, bytes) = line.split_once(PUT_BYTES)?;
        bytes.trim().parse().ok()
    })
}

/// The refused CreatePartition calls a minute of the controller with most of them, in a period.
pub(super) fn most_refused(
    controllers: impl Iterator<Item = Vec<Call>>,
    began: Timestamp,
    took: Duration,
) -> f64 {
    let is_refused = |call: &&Call| {
        let is_create = call.method == Method::CreatePartition && call.began >= began;
        is_create
            && call
                .outcome
                .as_deref()
                .is_some_and(|outcome| outcome != "ok")
    };
    let refused = controllers.map(|calls| calls.iter().filter(is_refused).count());
    as_figure(refused.max().unwrap_or_default() as u64) * 60.0 / took.as_secs_f64()
}

/// The times from the end of each RemovePartition to the next CreatePartition.
pub(super) fn reactions(calls: &[Call]) -> Vec<Duration> {
    let mut released: Option<Timestamp> = None;
    let mut reactions = Vec::new();
    for call in calls {
        match call.method {
            Method::RemovePartition => released = call.ended.or(released),
            Method::CreatePartition => {
                let since = released.take();
                let waited = since.and_then(|at| Duration::try_from(call.began - at).ok());
                reactions.extend(waited);
            }
            _ => {}
        }
    }
    reactions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_found_in_the_metrics() {
        let metrics = "# TYPE etcd_debugging_mvcc_total_put_size_in_bytes gauge\n\
            etcd_debugging_mvcc_total_put_size_in_bytes 1.5e+03\n";
        assert_eq!(parse(metrics), Some(1500.0));
        assert_eq!(parse("etcd_other 7\n"), None);
    }

    fn call(method: Method, began: i64, ended: i64, outcome: &str) -> Call {
        let at = |milliseconds| Timestamp::from_millisecond(milliseconds).unwrap();
        Call {
            number: 1,
            method,
            partition: "p-1".to_owned(),
            began: at(began),
            ended: Some(at(ended)),
            outcome: Some(outcome.to_owned()),
        }
    }

    #[test]
    fn a_reaction_is_the_time_from_a_release_to_the_next_request() {
        let calls = [
            call(Method::CreatePartition, 0, 1, "ok"),
            call(Method::RemovePartition, 10, 20, "ok"),
            call(Method::ListPartitions, 30, 40, "ok"),
            call(Method::CreatePartition, 120, 130, "ok"),
            call(Method::CreatePartition, 140, 150, "ok"),
        ];
        assert_eq!(reactions(&calls), [Duration::from_millis(100)]);
    }

    #[test]
    fn refused_calls_count_by_controller_and_minute() {
        let began = Timestamp::from_millisecond(100).unwrap();
        let calls = vec![
            call(Method::CreatePartition, 50, 60, "full"),
            call(Method::CreatePartition, 150, 160, "full"),
            call(Method::CreatePartition, 170, 180, "ok"),
        ];
        let refused = most_refused(
            [Vec::new(), calls].into_iter(),
            began,
            Duration::from_secs(30),
        );
        assert!((refused - 2.0).abs() < 1e-9, "{refused}");
    }
}
