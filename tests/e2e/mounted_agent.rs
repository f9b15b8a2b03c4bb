//! `agent.delivery=auto`: probes show what the nodes can. New kubelets mount the agent from its
//! image, and no init container installs it; with old ones, init containers do.

use std::panic::{AssertUnwindSafe, resume_unwind};

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use futures::FutureExt;
use harness::demo::KubectlError;
use harness::operator::NAMESPACE;
use ipu_api::ipujob::CleanPodPolicy;
use ipu_api::ipujob_status::JobState;
use ipu_api::labels::AGENT_VOLUME;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};
use crate::host_network::changed;

/// A user without privileges.
const USER: i64 = 1000;

/// A job for each Open MPI. Of a name with a dot, the hostfile has other names than the Pods.
const JOBS: [(&str, OpenMpi); 2] = [("four", OpenMpi::Four), ("five.v1", OpenMpi::Five)];

/// Start of the line of the log after a choice.
const CHOSEN: &str = "the agent gets into new Pods by this";

/// mpirun of both versions reaches its workers.
pub(crate) fn run_mpirun(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let upgrade = || fixture.release.upgrade(&["agent.delivery=auto"]);
        changed(fixture, upgrade).await?;
        let ran = async {
            once_chosen(fixture).await?;
            jobs_run(fixture).await
        };
        let ran = AssertUnwindSafe(ran).catch_unwind().await;
        // The following trials expect the first values.
        changed(fixture, || fixture.release.install()).await?;
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        fixture.clear().await
    })
}

/// Waits until the leader has chosen what suits the kubelets of this cluster.
async fn once_chosen(fixture: &Fixture) -> Result<(), Failed> {
    let reason = if fixture.settings.has_oldest_kubelet {
        "a Pod with the image did not end within"
    } else {
        "each version of the nodes has executed the agent"
    };
    until("the probes to end", PATIENCE, async || {
        let mut words = vec!["logs", "--namespace", NAMESPACE, "--tail=-1"];
        words.push("--selector=app.kubernetes.io/component=controller");
        let log = fixture.kubectl(&words).await?;
        let chosen = log.lines().filter(|line| line.contains(CHOSEN));
        let chosen: Vec<_> = chosen.map(str::to_owned).collect();
        Ok::<_, KubectlError>(Seen::when(chosen, |chosen| {
            chosen.last().is_some_and(|last| last.contains(reason))
        }))
    })
    .await?;
    Ok(())
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
            is_delivered(fixture, &worker).await?;
        }
        is_delivered(fixture, &launcher).await?;
    }
    Ok(())
}

/// Checks that a Pod has the agent's image as a volume and no init container, or the opposite.
async fn is_delivered(fixture: &Fixture, name: &str) -> Result<(), Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let spec = pods.get(name).await?.spec.unwrap_or_default();
    let mut volumes = spec.volumes.iter().flatten();
    let agent = volumes.find(|volume| volume.name == AGENT_VOLUME);
    let image = agent.and_then(|volume| volume.image.as_ref());
    let is_old = fixture.settings.has_oldest_kubelet;
    assert_eq!(image.is_none(), is_old, "{name}: {agent:?}");
    let has_init_containers = spec.init_containers.is_some();
    assert_eq!(has_init_containers, is_old, "{name}");
    Ok(())
}
