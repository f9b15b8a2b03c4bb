//! A HorizontalPodAutoscaler with a real metrics-server.

use std::fs;

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use kube::ResourceExt;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE};

/// Each instance has four workers, each of which uses 1.8 times its requested CPU. The autoscaler
/// must change one instance to two. If it counted workers, it would choose eight.
pub(crate) fn counts_instances(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        start_metrics_server(fixture).await?;
        let mut job = fixture.example("06-inference.yaml")?;
        let name = job.name_any();
        "4".clone_into(&mut job.spec.ipus_per_job_instance);
        job.spec.workers_per_job_instance = Some("4".to_owned());
        job.spec.workers.template.0["spec"]["containers"] = json!([{
            "name": "main",
            "image": "ipu-operator.local/openmpi:4",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "while :; do :; done"],
            "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "90m"}},
        }]);
        fixture.create(&job).await?;
        apply(fixture, &autoscaler(&name)).await?;
        let said = "the autoscaler to change the number of instances";
        let first = until(said, PATIENCE, || async {
            let events = fixture.kubectl(&[
                "get",
                "events",
                "--field-selector=involvedObject.kind=HorizontalPodAutoscaler",
                "--sort-by=.metadata.creationTimestamp",
                "--output=jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}",
            ]);
            let events = events.await?;
            let mut lines = events.lines();
            let rescaled = lines.find(|line| line.starts_with("SuccessfulRescale"));
            Ok::<_, KubectlError>(match rescaled {
                Some(line) => Seen::Yes(line.to_owned()),
                None => Seen::NotYet(events),
            })
        });
        let first = first.await?;
        assert!(first.contains("New size: 2;"), "{first}");
        assert!(fixture.job(&name).await?.spec.job_instances >= 2);
        fixture.kubectl(&["delete", "hpa", &name]).await?;
        fixture.delete_and_leave_nothing("06-inference.yaml").await
    })
}

fn autoscaler(job: &str) -> Value {
    json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": job},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", "name": job,
            },
            "minReplicas": 1,
            "maxReplicas": 8,
            "metrics": [{
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 100},
                },
            }],
        },
    })
}

/// Installs metrics-server from its own manifests, with the image of the run. It verifies the
/// kubelets' certificates as in production.
async fn start_metrics_server(fixture: &Fixture) -> Result<(), Failed> {
    let (manifests, image) = fixture.metrics_server()?;
    let manifests = manifests.to_string_lossy();
    let built = fixture.kubectl(&["kustomize", &manifests]).await?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&built)?;
    for mut object in objects {
        if object["kind"] == "Deployment" {
            let pod = &mut object["spec"]["template"]["spec"];
            pod["containers"][0]["image"] = image.clone().into();
            pod["containers"][0]["args"] = json!([
                "--cert-dir=/tmp",
                "--secure-port=10250",
                "--kubelet-preferred-address-types=InternalIP",
                "--kubelet-certificate-authority=/kubelets/ca.crt",
                "--metric-resolution=15s",
            ]);
            let mount = json!({"name": "kubelets", "mountPath": "/kubelets"});
            let volume = json!({"name": "kubelets", "configMap": {"name": "kube-root-ca.crt"}});
            let mounts = pod["containers"][0]["volumeMounts"].as_array_mut();
            mounts.expect("it has mounts").push(mount);
            let volumes = pod["volumes"].as_array_mut();
            volumes.expect("it has volumes").push(volume);
        }
        apply(fixture, &object).await?;
    }
    let ready = [
        "wait",
        "--for=condition=Available",
        "apiservice/v1beta1.metrics.k8s.io",
        "--timeout=180s",
    ];
    fixture.kubectl(&ready).await?;
    Ok(())
}

async fn apply(fixture: &Fixture, object: &Value) -> Result<(), Failed> {
    let file = tempfile::NamedTempFile::with_suffix(".json")?;
    fs::write(file.path(), object.to_string())?;
    fixture.operated.kubectl.apply(file.path()).await?;
    Ok(())
}
