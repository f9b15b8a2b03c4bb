//! Pods that do not start or that fail: the output of `kubectl describe ipujob` for each, on real
//! nodes.

use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// The image of the examples, which is on every node.
pub(crate) const IMAGE: &str = "ipu-operator.local/openmpi:4";

/// A job of one worker whose Pod has these fields beside its one container.
pub(crate) fn job(name: &str, pod: Value, container: Value) -> Result<IPUJob, Failed> {
    let mut spec = json!({"containers": [{
        "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["true"],
    }]});
    add(&mut spec["containers"][0], container);
    add(&mut spec, pod);
    Ok(serde_json::from_value(json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": "IPUJob",
        "metadata": {"name": name},
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "4",
            "workers": {"template": {"spec": spec}},
        },
    }))?)
}

/// Sets fields of an object.
fn add(object: &mut Value, fields: Value) {
    if let Value::Object(fields) = fields {
        for (name, value) in fields {
            object[name] = value;
        }
    }
}

/// A Pod that fits on no node, one whose image must not be pulled, one whose registry refuses
/// connections, and one whose Secret is missing: the job waits and names the Pod and the reason in
/// one event. It keeps the partitions for a while, because each cause can be fixed.
pub(crate) fn do_not_start(fixture: &Fixture) -> Result<(), Failed> {
    let huge = json!({"resources": {"requests": {"cpu": "1000"}}});
    let missing = json!({"image": "ipu-operator.local/missing:1", "imagePullPolicy": "Never"});
    let unreachable = json!({"image": "127.0.0.1:9/missing:1"});
    fixture.block_on(async {
        fixture.create(&job("huge", json!({}), huge)?).await?;
        fixture.create(&job("missing", json!({}), missing)?).await?;
        fixture
            .create(&job("unreachable", json!({}), unreachable)?)
            .await?;
        let volume = json!({"volumes": [{"name": "key", "secret": {"secretName": "key"}}]});
        let mounted = json!({"volumeMounts": [{"name": "key", "mountPath": "/key"}]});
        fixture.create(&job("keyless", volume, mounted)?).await?;
        let unschedulable = [
            "Pod huge-worker-0: Unschedulable: 0/2 nodes",
            "Insufficient cpu",
        ];
        fixture.described("huge", &unschedulable).await?;
        let image = [
            "Pod missing-worker-0: ErrImageNeverPull",
            "ipu-operator.local/missing:1",
        ];
        fixture.described("missing", &image).await?;
        let pull = [
            "Pod unreachable-worker-0: ImagePullBackOff",
            "127.0.0.1:9/missing:1",
        ];
        fixture.described("unreachable", &pull).await?;
        let mount = [
            "Pod keyless-worker-0: FailedMount: ",
            "secret \"key\" not found",
        ];
        fixture.described("keyless", &mount).await?;
        assert_eq!(
            fixture.partitions().await?.len(),
            4,
            "the partitions are kept"
        );
        // The kubelet reports ErrImagePull first. Another reason of the same wait causes no further
        // event. The events of a job are in order, so all of them exist once the last one does.
        let suspend = r#"--patch={"spec": {"suspend": true}}"#;
        fixture
            .kubectl(&["patch", "ipujob", "unreachable", "--type=merge", suspend])
            .await?;
        let said = fixture.described("unreachable", &["JobSuspended"]).await?;
        assert_eq!(said.matches(" PodsWaiting ").count(), 1, "{said}");
        fixture.clear().await
    })
}

/// A Pod that its node rejects, because its template names the node and requests more CPU than it
/// has: the job waits with the reason, and completes once the template fits. No program has failed,
/// and the partition needs no reset.
pub(crate) fn are_rejected(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let selector = [
            "--selector=ipunode=pod1",
            "--output=jsonpath={.items[0].metadata.name}",
        ];
        let node = fixture
            .kubectl(&["get", "nodes", selector[0], selector[1]])
            .await?;
        let pinned = json!({"nodeName": node.trim(), "nodeSelector": {"ipunode": "pod1"}});
        let huge = json!({"resources": {"requests": {"cpu": "1000"}}});
        fixture.create(&job("rejected", pinned, huge)?).await?;
        let rejection = [
            "the node rejected Pod rejected-worker-0 (OutOfcpu)",
            "PodsWaiting",
        ];
        fixture.described("rejected", &rejection).await?;
        let fits = json!([{
            "op": "replace",
            "path": "/spec/workers/template/spec/containers/0/resources/requests/cpu",
            "value": "1m",
        }]);
        let patch = format!("--patch={fits}");
        fixture
            .kubectl(&["patch", "ipujob", "rejected", "--type=json", &patch])
            .await?;
        let status = fixture.once("rejected", JobState::Completed).await?;
        assert_eq!(status.restart_count, Some(0));
        let said = fixture.described("rejected", &["IPUJobSucceeded"]).await?;
        assert!(!said.contains("PartitionReset"), "{said}");
        assert_eq!(said.matches(" PodsWaiting ").count(), 1, "{said}");
        fixture.clear().await
    })
}

/// A failing init container fails the job, which names it.
pub(crate) fn init_container_fails(fixture: &Fixture) -> Result<(), Failed> {
    let init = json!({"initContainers": [{
        "name": "fetch", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "echo no data; exit 7"],
    }]});
    let fails = job("init", init, json!({}));
    ends_with(
        fixture,
        &fails?,
        "Pod init-worker-0, container fetch: exit code 7 (Error)",
    )
}

/// A worker that exceeds its memory limit: the kernel kills it, and the job names the cause, not
/// only 137.
pub(crate) fn killed_for_memory(fixture: &Fixture) -> Result<(), Failed> {
    let hungry = json!({
        "command": ["python3", "-c", "kept = [bytearray(1 << 20) for _ in range(1 << 12)]"],
        "resources": {"limits": {"memory": "64Mi"}},
    });
    let killed = job("hungry", json!({}), hungry);
    ends_with(
        fixture,
        &killed?,
        "Pod hungry-worker-0, container main: exit code 137 (OOMKilled)",
    )
}

/// A worker that exceeds its limit for ephemeral storage: the kubelet evicts it. A restart would
/// end in the same way, so the job fails, and names the limit.
pub(crate) fn evicted_for_storage(fixture: &Fixture) -> Result<(), Failed> {
    let volume = json!({"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]});
    let writes = json!({
        "command": ["bash", "-c", "head -c 8388608 /dev/zero > /scratch/data; while :; do sleep 0.1; done"],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    });
    let evicted = job("writes", volume, writes);
    ends_with(
        fixture,
        &evicted?,
        "(Evicted): Usage of EmptyDir volume \"scratch\" exceeds the limit",
    )
}

/// Checks that a job fails with this reason, and releases its partition.
fn ends_with(fixture: &Fixture, job: &IPUJob, words: &str) -> Result<(), Failed> {
    fixture.block_on(async {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        fixture.create(job).await?;
        let status = fixture.once(name, JobState::Failed).await?;
        let said = status.last_message;
        assert!(said.contains(words), "{said}");
        fixture.described(name, &[words, "IPUJobFailed"]).await?;
        fixture.once_no_partition().await?;
        fixture.clear().await
    })
}
