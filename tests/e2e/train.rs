//! The trainings of `examples/train` on real nodes, with the image of the run instead of
//! Graphcore's, and stand-ins for PyTorch, PopTorch, PopDist, `poprun` and Jupyter. The program and
//! the rest of each manifest are those of the examples.

mod manifests;
mod volume;

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};
use crate::native_pods::delete;
use manifests::{apply, runnable};
use volume::Volume;

/// The token of the notebook.
const TOKEN: &str = "secret";

/// One IPU, `poprun` in one worker and over two workers, and a notebook.
pub(crate) fn trainings_run(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let volume = Volume::create(fixture).await?;
        futures::try_join!(
            continues_after_its_checkpoint(fixture),
            runs_in_one_worker(fixture),
            runs_over_workers(fixture),
            serves_a_notebook(fixture),
        )?;
        volume.delete(fixture).await?;
        fixture.clear().await
    })
}

/// Two Jobs of a JobSet, each with a partition of its own.
pub(crate) fn jobset_trains(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let volume = Volume::create(fixture).await?;
        apply(fixture, &runnable(fixture, "jobset.yaml")?).await?;
        let completed = "--for=condition=Completed";
        let wait = ["wait", completed, "--timeout=180s", "jobset/rates"];
        fixture.kubectl(&wait).await?;
        let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
        let of_set = ListParams::default().labels("jobset.sigs.k8s.io/jobset-name=rates");
        let pods = pods.list(&of_set).await?.items;
        assert_eq!(pods.len(), 2);
        let mut partitions = Vec::new();
        for pod in pods {
            let log = fixture.kubectl(&["logs", &pod.name_any()]).await?;
            assert!(log.contains("epoch 3: loss"), "{log}");
            let first = log.lines().next().unwrap_or_default().to_owned();
            partitions.push(first);
        }
        assert_ne!(partitions[0], partitions[1]);
        delete(fixture, "jobset/rates").await?;
        volume.delete(fixture).await?;
        fixture.clear().await
    })
}

/// A second job with the same claim continues where the first one has ended, and loads its
/// executable.
async fn continues_after_its_checkpoint(fixture: &Fixture) -> Result<(), Failed> {
    let mut job = runnable(fixture, "mnist.yaml")?.remove(0);
    let log = trained(fixture, &job, "mnist-worker-0").await?;
    for line in [
        "instance 0 of 1: 1 replicas on GCD 0 of",
        "compiled the training executable",
        "epoch 3: loss",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    delete(fixture, "ipujob/mnist").await?;
    let container = &mut job["spec"]["workers"]["template"]["spec"]["containers"][0];
    container["command"] = json!(["python3", "/program/train.py", "--epochs=4"]);
    let log = trained(fixture, &job, "mnist-worker-0").await?;
    for line in [
        "instance 0 continues after epoch 3",
        "loaded the training executable",
        "epoch 4: loss",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    Ok(())
}

/// `poprun` starts one instance, with the replicas that the operator's variables describe.
async fn runs_in_one_worker(fixture: &Fixture) -> Result<(), Failed> {
    let job = runnable(fixture, "poprun.yaml")?.remove(0);
    let log = trained(fixture, &job, "poprun-worker-0").await?;
    for line in ["instance 0 of 1: 4 replicas on GCD 0 of", "epoch 3: loss"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    Ok(())
}

/// `poprun` in a launcher starts an instance in each worker, on its GCD of the same partition.
async fn runs_over_workers(fixture: &Fixture) -> Result<(), Failed> {
    let job = runnable(fixture, "poprun-workers.yaml")?.remove(0);
    let log = trained(fixture, &job, "poprun-workers-launcher").await?;
    for line in [
        "instance 0 of 2: 4 replicas on GCD 0 of",
        "instance 1 of 2: 4 replicas on GCD 1 of",
        "epoch 3: loss",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    Ok(())
}

/// The notebook answers over its Service who has the token. Its Pod has a partition.
async fn serves_a_notebook(fixture: &Fixture) -> Result<(), Failed> {
    let token = format!("--from-literal=token={TOKEN}");
    let secret = ["create", "secret", "generic", "notebook", &token];
    fixture.kubectl(&secret).await?;
    apply(fixture, &runnable(fixture, "notebook.yaml")?).await?;
    let rollout = ["rollout", "status", "deployment/notebook", "--timeout=180s"];
    fixture.kubectl(&rollout).await?;
    let partition = answer(fixture, TOKEN).await?;
    assert_ne!(partition, "");
    let refused = answer(fixture, "wrong").await?;
    assert_eq!(refused, "403");
    delete(fixture, "deployment/notebook").await
}

/// Returns what the Service answers to a Pod with this token: the text, or the status of an error.
async fn answer(fixture: &Fixture, token: &str) -> Result<String, Failed> {
    let script = format!(
        "import urllib.error, urllib.request\n\
         try: print(urllib.request.urlopen('http://notebook/?token={token}').read().decode())\n\
         except urllib.error.HTTPError as error: print(error.code)"
    );
    let ask = [
        "exec",
        "deployment/notebook",
        "--",
        "python3",
        "-c",
        &script,
    ];
    // The nodes follow a new Service with a delay.
    let answer = until("the Service of the notebook", PATIENCE, async || {
        Ok::<_, KubectlError>(match fixture.kubectl(&ask).await {
            Ok(answer) => Seen::Yes(answer),
            Err(error) => Seen::NotYet(error.to_string()),
        })
    });
    Ok(answer.await?.trim().to_owned())
}

/// Runs a job to its end, and returns the log of a Pod.
async fn trained(fixture: &Fixture, job: &serde_json::Value, pod: &str) -> Result<String, Failed> {
    let job: IPUJob = serde_json::from_value(job.clone())?;
    fixture.create(&job).await?;
    fixture.once(&job.name_any(), JobState::Completed).await?;
    Ok(fixture.kubectl(&["logs", pod]).await?)
}
