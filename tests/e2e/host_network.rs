//! `worker.hostNetwork=true`, the default of the chart: workers use the network of their node, and
//! are privileged.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, resume_unwind};

use cluster::command::CommandError;
use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use futures::FutureExt;
use harness::operator::NAMESPACE;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use libtest_mimic::Failed;
use serde_json::json;
use tests::described::COMPLETED;

use crate::described::once_described;
use crate::fixture::{Fixture, PATIENCE};

/// The jobs that run at the same time on one node, each with two workers there. Open MPI 5
/// identifies workers by their host names, so `ipu-agent` gives its daemons those of their Pods.
const JOBS: [(&str, OpenMpi); 3] = [
    ("one", OpenMpi::Four),
    ("two", OpenMpi::Five),
    ("three", OpenMpi::Five),
];

/// A rank that communicates, waits until the file `/tmp/go` exists, and communicates again.
const RANK: &str = r#"
import os, socket, time
from mpi4py import MPI
world = MPI.COMM_WORLD
world.allreduce(world.rank)
open("/tmp/runs", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.1)
total = world.allreduce(world.rank + 1)
text = "rank %d of %d on %s: %d\n" % (world.rank, world.size, socket.gethostname(), total)
print(text, end="", flush=True)
"#;

/// The parallel example runs, and so do several jobs on one node at the same time, although their
/// processes share its ports and its host name.
pub(crate) fn is_shared_by_jobs(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let upgrade = || fixture.release.upgrade(&["worker.hostNetwork=true"]);
        changed(fixture, upgrade).await?;
        let ran = async {
            example_runs(fixture).await?;
            jobs_run_on_one_node(fixture).await
        };
        let ran = AssertUnwindSafe(ran).catch_unwind().await;
        // The following trials expect Pods with their own networks.
        changed(fixture, || fixture.release.install()).await?;
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        fixture.clear().await
    })
}

/// Changes the release, and waits until no controller with the old values is left. Until it ends,
/// it leads.
pub(crate) async fn changed(
    fixture: &Fixture,
    change: impl FnOnce() -> Result<(), CommandError>,
) -> Result<(), Failed> {
    let old = controllers(fixture).await?;
    change()?;
    until("the old controller to end", PATIENCE, async || {
        let now = controllers(fixture).await?;
        Ok::<_, kube::Error>(Seen::when(now, |now| {
            !now.is_empty() && now.is_disjoint(&old)
        }))
    })
    .await?;
    Ok(())
}

/// The UIDs of the controller's Pods, terminating ones too.
async fn controllers(fixture: &Fixture) -> Result<BTreeSet<String>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
    let selected = ListParams::default().labels("app.kubernetes.io/component=controller");
    let found = pods.list(&selected).await?;
    Ok(found.iter().filter_map(ResourceExt::uid).collect())
}

/// The parallel example completes: its ranks communicate, and each has its own GCD.
async fn example_runs(fixture: &Fixture) -> Result<(), Failed> {
    let job = fixture.apply("02-parallel.yaml").await?;
    fixture.facts().completed(&job, PATIENCE).await?;
    let log = fixture.kubectl(&["logs", "parallel-launcher"]).await?;
    for rank in 0..2 {
        for part in [
            format!("rank {rank} of 2 on node"),
            format!("IPUOF_VIPU_API_GCD_ID={rank}\n"),
        ] {
            assert!(log.contains(&part), "{part}: {log}");
        }
    }
    let sums = log.matches("(sum over all ranks: 3)").count();
    assert_eq!(sums, 2, "{log}");
    once_described(fixture, "parallel", &COMPLETED).await?;
    fixture.delete_and_leave_nothing("02-parallel.yaml").await
}

/// All ranks of all jobs communicate on one node, and each job completes.
pub(crate) async fn jobs_run_on_one_node(fixture: &Fixture) -> Result<(), Failed> {
    let (_, second) = fixture.controllers();
    for (name, version) in JOBS {
        fixture.create(&job(fixture, name, version)?).await?;
    }
    for (name, version) in JOBS {
        for index in 0..2 {
            let worker = naming::worker(name, index);
            once_communicated(fixture, &worker).await?;
            uses_the_network_of(fixture, &worker, &second.node).await?;
            if version == OpenMpi::Five {
                let resolve = ["exec", &worker, "--", "getent", "hosts", &worker];
                fixture.kubectl(&resolve).await?;
            }
        }
    }
    for (name, _) in JOBS {
        for index in 0..2 {
            let worker = naming::worker(name, index);
            let go = ["exec", &worker, "--", "touch", "/tmp/go"];
            fixture.kubectl(&go).await?;
        }
    }
    for (name, version) in JOBS {
        fixture.once(name, JobState::Completed).await?;
        let launcher = naming::launcher(name);
        let log = fixture.kubectl(&["logs", &launcher]).await?;
        for rank in 0..2 {
            let host = match version {
                OpenMpi::Four => second.node.clone(),
                OpenMpi::Five => naming::worker(name, rank),
            };
            let line = format!("rank {rank} of 2 on {host}: 3\n");
            assert!(log.contains(&line), "{name}: {line}: {log}");
        }
    }
    Ok(())
}

/// A job of two workers on the node of the second V-IPU controller.
fn job(fixture: &Fixture, name: &str, version: OpenMpi) -> Result<IPUJob, Failed> {
    let mpirun = ["mpirun", "-np", "2", "--bind-to", "none"];
    let command = [&mpirun[..], &["python3", "-c", RANK]].concat();
    let mut job = fixture.parallel(version, 0, &command)?;
    job.metadata.name = Some(name.to_owned());
    job.spec.ipus_per_job_instance = 2.to_string();
    job.spec.workers.template.0["spec"]["nodeSelector"] = json!({"ipunode": "pod2"});
    Ok(job)
}

/// Waits until the rank in a worker has communicated.
async fn once_communicated(fixture: &Fixture, worker: &str) -> Result<(), Failed> {
    let what = format!("the rank in {worker} to communicate");
    until(what, PATIENCE, async || {
        let look = ["exec", worker, "--", "ls", "/tmp/runs"];
        fixture.kubectl(&look).await.map(Seen::Yes)
    })
    .await?;
    Ok(())
}

/// Checks that a worker is privileged in the network of this node.
async fn uses_the_network_of(fixture: &Fixture, worker: &str, node: &str) -> Result<(), Failed> {
    let pods: Api<Pod> = Api::default_namespaced(fixture.operated.client.clone());
    let pod = pods.get(worker).await?;
    let (spec, status) = (pod.spec.unwrap_or_default(), pod.status.unwrap_or_default());
    assert_eq!(spec.host_network, Some(true), "{worker}");
    assert_eq!(spec.node_name.as_deref(), Some(node), "{worker}");
    assert!(status.pod_ip.is_some(), "{worker}");
    assert_eq!(status.pod_ip, status.host_ip, "{worker}");
    let context = spec.containers[0].security_context.as_ref();
    let privileged = context.and_then(|context| context.privileged);
    assert_eq!(privileged, Some(true), "{worker}");
    Ok(())
}
