//! Pure: the Pods of a job that has no partition yet, for a dry run. A refusal is then known before
//! IPUs are requested.

use std::sync::Arc;

use ipu_api::ipujob::is_managed_by_another;
use ipu_api::ipupartition::ControllerRef;
use ipu_runtime::dry_run::Forms;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::build::{PodSettings, launcher, launcher_otherwise, workers};
use super::facts::partition::PlacedPartition;
use super::validate::{self, ValidJob};

/// Returns the first worker, and the launcher of a job with one. Empty if this cluster gets no Pods
/// of the job, or if the job is unreadable.
pub fn pods(object: &Value, settings: &PodSettings) -> Vec<Forms<Pod>> {
    if is_managed_by_another(object) {
        return Vec::new();
    }
    let job = validate::read(object, u32::MAX).ok();
    let Some(job) = job.filter(|job| !job.name.is_empty()) else {
        return Vec::new();
    };
    of_job(&job, settings)
}

/// Returns the first worker of a valid job, and the launcher of a job with one.
pub fn of_job(job: &ValidJob, settings: &PodSettings) -> Vec<Forms<Pod>> {
    let worker = Forms {
        usual: workers::worker(job, settings, (0, 0, 0), &placed()),
        otherwise: None,
    };
    let launcher = job.launcher.as_ref().map(|command| {
        let mut launcher = launcher::launcher(job, command, settings, (&placed(), 0));
        // The account that the operator creates does not exist yet. That of the user must.
        if command.service_account.is_none()
            && let Some(spec) = &mut launcher.spec
        {
            spec.service_account_name = None;
        }
        Forms {
            otherwise: launcher_otherwise::otherwise(job, &launcher),
            usual: launcher,
        }
    });
    std::iter::once(worker).chain(launcher).collect()
}

/// A partition that no V-IPU controller has. All nodes reach its IPUs.
fn placed() -> PlacedPartition {
    PlacedPartition {
        controller: Arc::new(ControllerRef {
            name: "dry-run:8090".to_owned(),
            host: "dry-run".to_owned(),
            port: 8090,
            label_key: "kubernetes.io/os".to_owned(),
            label_value: "linux".to_owned(),
        }),
        id: "dry-run".to_owned(),
        resets: 0,
    }
}
