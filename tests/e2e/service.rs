//! A service: it is scaled, gets a new template, and recovers.

use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};

/// `kubectl scale` adds an instance, a new template replaces the Pods, and a deleted Pod is created
/// again.
pub(crate) fn scales_updates_and_recovers(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let mut job = fixture.example("06-inference.yaml")?;
        let name = job.name_any();
        let program = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
        job.spec.workers.template.0["spec"]["containers"] = json!([{
            "name": "main",
            "image": "ipu-operator.local/openmpi:4",
            "imagePullPolicy": "IfNotPresent",
            "command": ["bash", "-c", program],
            "env": [{"name": "VERSION", "value": "old"}],
        }]);
        fixture.create(&job).await?;
        fixture.once(&name, JobState::Running).await?;

        let of_job = format!("ipujob/{name}");
        let more = ["scale", &of_job, "--replicas", "2"];
        fixture.kubectl(&more).await?;
        let old = serving(fixture, &name, "old").await?;
        assert_eq!(
            fixture.partitions().await?.len(),
            2,
            "one for each instance"
        );

        let path = "/spec/workers/template/spec/containers/0/env/0/value";
        let change = json!([{"op": "replace", "path": path, "value": "new"}]).to_string();
        let change = ["patch", &of_job, "--type", "json", "-p", &change];
        fixture.kubectl(&change).await?;
        let new = serving(fixture, &name, "new").await?;
        assert!(old.iter().zip(&new).all(|(old, new)| old != new));

        let first = naming::worker(&name, 0);
        fixture.kubectl(&["delete", "pod", &first]).await?;
        let healed = serving(fixture, &name, "new").await?;
        assert!(healed[0] != new[0] && healed[1] == new[1]);
        fixture.delete_and_leave_nothing("06-inference.yaml").await
    })
}

/// Returns the UIDs of both workers, once there are no other Pods and both are Ready.
async fn serving(fixture: &Fixture, job: &str, version: &str) -> Result<[String; 2], Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let what = format!("both workers of {job} to serve as {version}");
    let found = until(what, PATIENCE, || async {
        let mut uids = Vec::new();
        for index in 0..2 {
            let pod = pods.get_opt(&naming::worker(job, index)).await?;
            let serves = pod.filter(|pod| serves(pod, version));
            uids.push(serves.and_then(|pod| pod.uid()));
        }
        Ok::<_, kube::Error>(match uids.as_slice() {
            [Some(first), Some(second)] => Seen::Yes([first.clone(), second.clone()]),
            other => Seen::NotYet(format!("{other:?}")),
        })
    });
    Ok(found.await?)
}

fn serves(pod: &Pod, version: &str) -> bool {
    let spec = pod.spec.iter();
    let mut environment = spec
        .flat_map(|spec| &spec.containers)
        .flat_map(|container| container.env.iter().flatten());
    let is_new =
        environment.any(|env| env.name == "VERSION" && env.value.as_deref() == Some(version));
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let is_ready = conditions
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    is_new && is_ready && pod.metadata.deletion_timestamp.is_none()
}
