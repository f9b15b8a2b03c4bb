//! `agent.delivery=image`: the kubelet mounts the agent from its image, and no init container
//! installs it.

use std::panic::{AssertUnwindSafe, resume_unwind};

use cluster::images::openmpi::OpenMpi;
use futures::FutureExt;
use ipu_api::ipujob::CleanPodPolicy;
use ipu_api::ipujob_status::JobState;
use ipu_api::labels::AGENT_VOLUME;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::Fixture;
use crate::host_network::changed;

/// A user without privileges.
const USER: i64 = 1000;

/// A job for each Open MPI. Of a name with a dot, the hostfile has other names than the Pods.
const JOBS: [(&str, OpenMpi); 2] = [("four", OpenMpi::Four), ("five.v1", OpenMpi::Five)];

/// mpirun of both versions reaches its workers.
pub(crate) fn run_mpirun(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let upgrade = || fixture.release.upgrade(&["agent.delivery=image"]);
        changed(fixture, upgrade).await?;
        let ran = AssertUnwindSafe(jobs_run(fixture)).catch_unwind().await;
        // The following trials expect the first values.
        changed(fixture, || fixture.release.install()).await?;
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        fixture.clear().await
    })
}

async fn jobs_run(fixture: &Fixture) -> Result<(), Failed> {
    for (name, version) in JOBS {
        let rank = "echo rank on $(hostname) as $(id -u)";
        let command = ["mpirun", "-np", "2", "--bind-to", "none", "sh", "-c", rank];
        let mut job = fixture.parallel(version, USER, &command)?;
        job.metadata.name = Some(name.to_owned());
        job.spec.clean_pod_policy = Some(CleanPodPolicy::None);
        fixture.create(&job).await?;
    }
    for (name, _) in JOBS {
        fixture.once(name, JobState::Completed).await?;
        let launcher = naming::launcher(name);
        let log = fixture.kubectl(&["logs", &launcher]).await?;
        for index in 0..2 {
            let worker = naming::worker(name, index);
            let host = naming::worker_host_name(name, index).unwrap_or_else(|| worker.clone());
            let line = format!("rank on {host} as {USER}\n");
            assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
            is_mounted(fixture, &worker).await?;
        }
        is_mounted(fixture, &launcher).await?;
    }
    Ok(())
}

/// Checks that a Pod has the agent's image as a volume, and no init container.
async fn is_mounted(fixture: &Fixture, name: &str) -> Result<(), Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let spec = pods.get(name).await?.spec.unwrap_or_default();
    assert_eq!(json!(spec.init_containers), json!(null), "{name}");
    let mut volumes = spec.volumes.iter().flatten();
    let agent = volumes.find(|volume| volume.name == AGENT_VOLUME);
    let image = agent.and_then(|volume| volume.image.as_ref());
    assert!(image.is_some(), "{name}: {agent:?}");
    Ok(())
}
