//! Pure: the job that verifies the operator, and the progress in its status.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::ipupartition::IPUPartition;
use serde_json::{Value, json};

use super::VerifyOptions;

/// Observed progress of the job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It completed.
    Completed,
    /// It failed, for this reason.
    Failed(String),
    /// It continues: its state, and what it waits for.
    GoesOn(String),
}

/// A job that needs only the operator's own image, and meets the Pod Security level `restricted` if
/// the operator adds nothing to it.
pub(super) fn manifest(options: &VerifyOptions) -> IPUJob {
    let secrets = options.image_pull_secret.iter();
    let secrets: Vec<Value> = secrets.map(|name| json!({ "name": name })).collect();
    let manifest = json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": { "name": options.name },
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": options.ipus.to_string(),
            "workers": { "template": { "spec": {
                "imagePullSecrets": secrets,
                "securityContext": {
                    "runAsNonRoot": true,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "verify",
                    "image": options.image,
                    "imagePullPolicy": options.image_pull_policy,
                    "command": ["/ipu-operator", "--version"],
                    // A ResourceQuota of cpu or memory refuses a Pod without them.
                    "resources": {
                        "requests": { "cpu": "50m", "memory": "32Mi" },
                        "limits": { "cpu": "500m", "memory": "128Mi" },
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": { "drop": ["ALL"] },
                    },
                }],
            } } },
        },
    });
    serde_json::from_value(manifest).expect("the manifest is an IPUJob")
}

/// Reads the status of the job and of its partitions.
pub(super) fn progress<'a>(
    job: &IPUJob,
    partitions: impl Iterator<Item = &'a IPUPartition>,
) -> Progress {
    let Some(status) = &job.status else {
        return Progress::GoesOn(
            "the controller has not reconciled it yet; does it run?".to_owned(),
        );
    };
    match status.launcher_status {
        JobState::Completed => Progress::Completed,
        JobState::Failed => Progress::Failed(status.last_message.clone()),
        state => {
            let waiting = partitions
                .filter_map(|partition| partition.status.as_ref())
                .flat_map(|status| &status.waiting)
                .map(|why| format!("{}: {}", why.controller, why.reason));
            let said = std::iter::once(status.last_message.clone()).chain(waiting);
            let said: Vec<String> = said.collect();
            Progress::GoesOn(format!("{state:?}: {}", said.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> VerifyOptions {
        VerifyOptions {
            namespace: "ipu".to_owned(),
            name: "verify".to_owned(),
            image: "ipu-operator:1".to_owned(),
            image_pull_policy: None,
            image_pull_secret: vec!["registry".to_owned()],
            ipus: 2,
            timeout_seconds: 1,
        }
    }

    fn with_status(status: Value) -> IPUJob {
        let mut job = json!(manifest(&options()));
        job["status"] = status;
        serde_json::from_value(job).unwrap()
    }

    #[test]
    fn the_job_is_valid() {
        let job = json!(manifest(&options()));
        let settings = guest_validation::rules::Settings::default();
        assert_eq!(
            guest_validation::rules::check(&job, None, settings).violations,
            []
        );
        assert_eq!(job["spec"]["ipusPerJobInstance"], "2");
        let container = &job["spec"]["workers"]["template"]["spec"]["containers"][0];
        for bound in ["requests", "limits"] {
            for resource in ["cpu", "memory"] {
                assert!(
                    container["resources"][bound][resource].is_string(),
                    "{bound} {resource}"
                );
            }
        }
    }

    #[test]
    fn status_and_reasons_of_the_partition_are_reported() {
        let waiting: IPUPartition = serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": {
                "owner": {
                    "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "namespace": "ipu",
                    "name": "verify", "uid": "1",
                },
                "slot": 0, "ipus": 2, "gcds": 1,
            },
            "status": { "waiting": [{ "controller": "pod1:8090", "reason": "it has 0 IPUs free" }] },
        }))
        .unwrap();
        let status = |state: &str, message: &str| {
            with_status(
                json!({ "launcherStatus": state, "lastMessage": message, "desiredReplicas": 1 }),
            )
        };
        let table = [
            (
                manifest(&options()),
                Progress::GoesOn(
                    "the controller has not reconciled it yet; does it run?".to_owned(),
                ),
            ),
            (
                status("Pending", "partition not ready yet!"),
                Progress::GoesOn(
                    "Pending: partition not ready yet!; pod1:8090: it has 0 IPUs free".to_owned(),
                ),
            ),
            (
                status("Failed", "worker 0 ended"),
                Progress::Failed("worker 0 ended".to_owned()),
            ),
            (
                status("Completed", "All instances done"),
                Progress::Completed,
            ),
        ];
        for (job, expected) in table {
            assert_eq!(progress(&job, std::iter::once(&waiting)), expected);
        }
    }
}
