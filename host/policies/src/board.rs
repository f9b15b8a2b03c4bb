//! Where the replicas say what they have ready: a Lease of each, in the namespace of the release.
//!
//! A Lease is renewed as long as its replica lives, so that nobody waits for one that is gone.

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

/// How often a replica says that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How often only counts are told.
const COUNTS: Duration = Duration::from_secs(2);

/// How long a replica counts as living after it was last heard of.
const LIVES: Duration = Duration::from_secs(15);

/// How long the Lease of a replica that is gone is kept.
const KEPT: Duration = Duration::from_mins(10);

/// Longest time of one write.
const WRITE: Duration = Duration::from_secs(5);

/// Which replica this is.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Namespace of the release.
    pub namespace: String,
    /// Start of the names of the release's objects.
    pub fullname: String,
    /// `controller` or `vipu-proxy`.
    pub process: &'static str,
    /// Name of its Pod.
    pub name: String,
}

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("failed to write the Lease {name}, which says what this replica has ready")]
    Write {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to write the Lease {name}: the API server gave no answer in time")]
    Late { name: String },
}

/// Writes what changes in `reports`, and that this replica lives, until `stop`; then takes it down.
pub async fn write(
    client: Client,
    replica: Replica,
    mut reports: watch::Receiver<Report>,
    stop: CancellationToken,
) {
    let api = Api::<Lease>::namespaced(client, &replica.namespace);
    let mut written: Option<(Report, Instant)> = None;
    while !stop.is_cancelled() {
        let report = reports.borrow_and_update().clone();
        let is_due = written.as_ref().is_none_or(|(before, at)| {
            at.elapsed() >= HEARTBEAT
                || without_counts(before) != without_counts(&report)
                || (at.elapsed() >= COUNTS && *before != report)
        });
        if is_due {
            match put(&api, &replica, &report).await {
                Ok(()) => written = Some((report, Instant::now())),
                Err(error) => tracing::warn!("{}; trying again", explain(&error)),
            }
        }
        // A change of the counts wakes it as well: it is looked at, and told when it is due.
        let pause = tokio::time::sleep(Duration::from_secs(1));
        tokio::select! {
            () = stop.cancelled() => {}
            () = pause => {}
            changed = reports.changed(), if !is_due => if changed.is_err() { return },
        }
    }
    let name = replica.lease();
    let _ = timeout(WRITE, api.delete(&name, &DeleteParams::default())).await;
}

async fn put(api: &Api<Lease>, replica: &Replica, report: &Report) -> Result<(), WriteError> {
    let name = replica.lease();
    let lease = replica.rendered(report, clock::now());
    let params = PatchParams::apply(MANAGER).force();
    let patched = timeout(WRITE, api.patch(&name, &params, &Patch::Apply(&lease))).await;
    match patched {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(source)) => Err(WriteError::Write {
            name,
            source: Box::new(source),
        }),
        Err(_) => Err(WriteError::Late { name }),
    }
}

fn without_counts(report: &Report) -> Report {
    let mut report = report.clone();
    for said in report.policies.values_mut() {
        said.counts = Counts::default();
    }
    report
}

impl Replica {
    fn lease(&self) -> String {
        format!("{}-policies-{}", self.fullname, self.name)
    }

    fn rendered(&self, report: &Report, now: Timestamp) -> Lease {
        let text = serde_json::to_string(report).expect("a report is plain data");
        Lease {
            metadata: ObjectMeta {
                name: Some(self.lease()),
                labels: Some(BTreeMap::from([(
                    LABEL.to_owned(),
                    self.process.to_owned(),
                )])),
                annotations: Some(BTreeMap::from([(REPORT.to_owned(), text)])),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: i32::try_from(LIVES.as_secs()).ok(),
                renew_time: Some(MicroTime(now)),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Which replicas live. Clocks of two machines differ, so that what counts is when this process saw a
/// Lease change.
#[derive(Debug, Default)]
pub struct Living {
    seen: HashMap<String, (Option<String>, Instant)>,
}

impl Living {
    /// The reports of those that live, and the names of Leases whose replica is gone for good.
    pub fn look(&mut self, leases: &[Arc<Lease>], now: Instant) -> (Vec<Report>, Vec<String>) {
        let (mut reports, mut gone) = (Vec::new(), Vec::new());
        self.seen
            .retain(|name, _| leases.iter().any(|lease| lease.name_any() == *name));
        for lease in leases {
            let version = lease.resource_version();
            let name = lease.name_any();
            let seen = self.seen.entry(name.clone());
            let seen = seen.or_insert_with(|| (version.clone(), now));
            if seen.0 != version {
                *seen = (version, now);
            }
            let silent = now.duration_since(seen.1);
            if silent < LIVES {
                reports.extend(report(lease));
            } else if silent > KEPT {
                gone.push(name);
            }
        }
        (reports, gone)
    }
}

/// What a Lease says. None where somebody wrote it by hand.
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
        let mut lease = replica().rendered(&report, Timestamp::UNIX_EPOCH);
        lease.metadata.resource_version = Some(version.to_owned());
        Arc::new(lease)
    }

    #[test]
    fn a_replica_lives_as_long_as_its_lease_changes_whatever_its_clock_says() {
        let (mut living, begin) = (Living::default(), Instant::now());
        let mut look = |version: &str, seconds: u64| {
            let now = begin + Duration::from_secs(seconds);
            let (reports, gone) = living.look(&[lease(version)], now);
            (reports.len(), gone.len())
        };
        assert_eq!(look("1", 0), (1, 0));
        assert_eq!(look("2", 14), (1, 0));
        assert_eq!(look("2", 29), (0, 0));
        assert_eq!(look("2", 700), (0, 1));
        assert_eq!(look("3", 701), (1, 0), "it was only slow");
    }

    #[test]
    fn a_lease_that_somebody_wrote_by_hand_says_nothing() {
        let mut forged = (*lease("1")).clone();
        let annotations = forged.annotations_mut();
        annotations.insert(REPORT.to_owned(), "{".to_owned());
        let seen = Living::default().look(&[Arc::new(forged)], Instant::now());
        assert_eq!(seen, (vec![], vec![]));
    }
}
