//! The readiness reports of the replicas: each replica publishes its report in a Lease in the
//! namespace of the release.
//!
//! A replica renews its Lease, so that a rollout does not wait for a replica that has ended.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ipu_runtime::clock;
use ipu_text::explain;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::report::{Counts, Report};

/// Label of the Leases, with the process as its value.
pub const LABEL: &str = "graphcore.ai/policy-replica";

/// Annotation with the report, as JSON.
const REPORT: &str = "graphcore.ai/policy-report";

/// Field manager of the Leases.
const MANAGER: &str = "ipu-operator-policies";

/// Renewal period of a Lease.
const RENEW_PERIOD: Duration = Duration::from_secs(5);

/// Shortest time between two reports that differ only in their counts.
const COUNTS_PERIOD: Duration = Duration::from_secs(2);

/// Time without a renewal after which a replica has ended.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// Time without a renewal after which the Lease is deleted.
const LEASE_RETENTION: Duration = Duration::from_mins(10);

/// Timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The identity of a replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Namespace of the release.
    pub namespace: String,
    /// Prefix of the names of the release's objects.
    pub fullname: String,
    /// `controller` or `vipu-proxy`.
    pub process: &'static str,
    /// Name of its Pod.
    pub name: String,
}

/// Failure to publish a report.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("failed to write the Lease {0}, which reports the readiness of this replica")]
    Write(String, #[source] Box<kube::Error>),
    #[error("failed to write the Lease {0}: the API server gave no answer in time")]
    Timeout(String),
}

/// Publishes each change of `reports` and renews the Lease until `stop`; then deletes the Lease.
pub async fn publish(
    client: Client,
    replica: Replica,
    mut reports: watch::Receiver<Report>,
    stop: CancellationToken,
) {
    let api = Api::<Lease>::namespaced(client, &replica.namespace);
    let mut published: Option<(Report, Instant)> = None;
    while !stop.is_cancelled() {
        let report = reports.borrow_and_update().clone();
        let is_due = published.as_ref().is_none_or(|(before, at)| {
            at.elapsed() >= RENEW_PERIOD
                || without_counts(before) != without_counts(&report)
                || (at.elapsed() >= COUNTS_PERIOD && *before != report)
        });
        if is_due {
            match apply(&api, &replica, &report).await {
                Ok(()) => published = Some((report, Instant::now())),
                Err(error) => tracing::warn!("{}; trying again", explain(&error)),
            }
        }
        // A change of the counts ends the pause too; the next iteration checks whether it is due.
        let pause = tokio::time::sleep(Duration::from_secs(1));
        tokio::select! {
            () = stop.cancelled() => {}
            () = pause => {}
            changed = reports.changed(), if !is_due => if changed.is_err() { return },
        }
    }
    let name = replica.lease_name();
    let _ = timeout(WRITE_TIMEOUT, api.delete(&name, &DeleteParams::default())).await;
}

async fn apply(api: &Api<Lease>, replica: &Replica, report: &Report) -> Result<(), WriteError> {
    let name = replica.lease_name();
    let lease = replica.to_lease(report, clock::now());
    let params = PatchParams::apply(MANAGER).force();
    let patched = timeout(
        WRITE_TIMEOUT,
        api.patch(&name, &params, &Patch::Apply(&lease)),
    )
    .await;
    match patched {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(WriteError::Write(name, Box::new(source))),
        Err(_) => Err(WriteError::Timeout(name)),
    }
}

fn without_counts(report: &Report) -> Report {
    let mut report = report.clone();
    for readiness in report.policies.values_mut() {
        readiness.counts = Counts::default();
    }
    report
}

impl Replica {
    fn lease_name(&self) -> String {
        format!("{}-policies-{}", self.fullname, self.name)
    }

    fn to_lease(&self, report: &Report, now: Timestamp) -> Lease {
        let text = serde_json::to_string(report).expect("a report is plain data");
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lease_name()),
                labels: Some(BTreeMap::from([(
                    LABEL.to_owned(),
                    self.process.to_owned(),
                )])),
                annotations: Some(BTreeMap::from([(REPORT.to_owned(), text)])),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// The live replicas. Clocks of two machines differ, so a replica is live while this process sees
/// its Lease change.
#[derive(Debug, Default)]
pub struct LiveReplicas {
    leases: HashMap<String, (Option<String>, Instant)>,
}

impl LiveReplicas {
    /// Returns the reports of the live replicas, and the names of the Leases to delete.
    pub fn observe(&mut self, leases: &[Arc<Lease>], now: Instant) -> (Vec<Report>, Vec<String>) {
        let (mut reports, mut expired) = (Vec::new(), Vec::new());
        self.leases
            .retain(|name, _| leases.iter().any(|lease| lease.name_any() == *name));
        for lease in leases {
            let version = lease.resource_version();
            let name = lease.name_any();
            let seen = self.leases.entry(name.clone());
            let seen = seen.or_insert_with(|| (version.clone(), now));
            if seen.0 != version {
                *seen = (version, now);
            }
            let unchanged_for = now.duration_since(seen.1);
            if unchanged_for < LEASE_DURATION {
                reports.extend(report(lease));
            } else if unchanged_for > LEASE_RETENTION {
                expired.push(name);
            }
        }
        (reports, expired)
    }
}

/// Parses the report in a Lease. Returns `None` if someone edited it by hand and it is invalid.
fn report(lease: &Lease) -> Option<Report> {
    let text = lease.annotations().get(REPORT)?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica() -> Replica {
        Replica {
            namespace: "system".to_owned(),
            fullname: "ipu-operator".to_owned(),
            process: "controller",
            name: "ipu-operator-controller-0".to_owned(),
        }
    }

    fn lease(version: &str) -> Arc<Lease> {
        let report = Report {
            replica: replica().name,
            ..Report::default()
        };
        let mut lease = replica().to_lease(&report, Timestamp::UNIX_EPOCH);
        lease.metadata.resource_version = Some(version.to_owned());
        Arc::new(lease)
    }

    #[test]
    fn a_replica_is_live_while_its_lease_changes_whatever_its_clock() {
        let (mut live, begin) = (LiveReplicas::default(), Instant::now());
        let mut observe = |version: &str, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            let (reports, expired) = live.observe(&[lease(version)], now);
            (reports.len(), expired.len())
        };
        assert_eq!(observe("1", 0), (1, 0));
        assert_eq!(observe("2", 14), (1, 0));
        assert_eq!(observe("2", 29), (0, 0));
        assert_eq!(observe("2", 700), (0, 1));
        assert_eq!(observe("3", 701), (1, 0), "it was only slow");
    }

    #[test]
    fn a_lease_with_an_invalid_report_is_ignored() {
        let mut forged = (*lease("1")).clone();
        let annotations = forged.annotations_mut();
        annotations.insert(REPORT.to_owned(), "{".to_owned());
        let seen = LiveReplicas::default().observe(&[Arc::new(forged)], Instant::now());
        assert_eq!(seen, (vec![], vec![]));
    }
}
