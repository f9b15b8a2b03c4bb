//! etcd is restored in place from a snapshot that is older than many jobs: running jobs keep their
//! partitions, no partition leaks or is allocated twice, and each job's description explains its
//! state.

use std::collections::BTreeSet;

use cluster::wait::{Seen, eventually};
use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::processes::{Installation, Running};

/// Number of jobs that are created, run, completed and deleted after the snapshot.
const SHORT: [&str; 4] = ["short-1", "short-2", "short-3", "short-4"];

/// Starts the processes of the operator, as in their Pods.
async fn operator(installation: &Installation) -> (Running, Running) {
    let controller = installation.controller("controller", Vec::new()).await;
    (controller, installation.proxy("proxy", Vec::new()).await)
}

/// Creates a job, and completes its program. Returns the id of its former partition.
async fn complete(installation: &Installation, name: &str) -> String {
    let id = installation.run_job(name).await;
    installation.ends(&format!("{name}-worker-0")).await;
    installation.once(name, JobState::Completed).await;
    once_released(installation, name).await;
    id
}

async fn once_released(installation: &Installation, job: &str) {
    eventually(&format!("the partition of {job} is released"), async || {
        let owners = installation
            .partitions()
            .await
            .into_iter()
            .map(|(owner, _)| owner);
        Seen::when(owners.collect::<Vec<_>>(), |owners| {
            !owners.iter().any(|owner| owner == job)
        })
    })
    .await;
}

/// Waits until the V-IPU controller has exactly these partitions.
async fn once_formed(installation: &Installation, ids: &[&String]) {
    let mut wanted = ids.to_vec();
    wanted.sort_unstable();
    eventually(
        "there are the partitions of the jobs that run",
        async || {
            let mut formed = installation.formed();
            formed.sort_unstable();
            Seen::when(formed, |formed| formed.iter().eq(wanted.iter().copied()))
        },
    )
    .await;
}

/// Changes the jobs after the snapshot: one running job is deleted, one ends, one completed job is
/// deleted, several are created and deleted again, and one new job keeps running that the snapshot
/// does not contain. Returns the ids of the partitions of the short jobs, and of the partition of
/// the new job.
async fn change_jobs(installation: &Installation) -> (Vec<String>, String) {
    let mut short = Vec::new();
    installation.delete_job("given-back").await;
    for name in SHORT {
        short.push(complete(installation, name).await);
        installation.delete_job(name).await;
    }
    installation.ends("ends-worker-0").await;
    installation.once("ends", JobState::Completed).await;
    once_released(installation, "ends").await;
    installation.delete_job("done").await;
    (short, installation.run_job("lost").await)
}

async fn names_of_jobs(installation: &Installation) -> Vec<String> {
    let jobs = installation
        .jobs()
        .list(&ListParams::default())
        .await
        .unwrap();
    jobs.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_keep_their_partitions_and_none_is_leaked_or_allocated_twice() {
    let mut installation = Installation::new().await;
    let processes = operator(&installation).await;
    let kept = installation.run_job("kept").await;
    let pod = installation.pods().get("kept-worker-0").await.unwrap();
    let released = installation.run_job("given-back").await;
    let ends = installation.run_job("ends").await;
    let done = complete(&installation, "done").await;
    let snapshot = installation.plane.snapshot().await.unwrap();

    let mut ids = vec![kept.clone(), released.clone(), ends, done];
    let (short, lost) = change_jobs(&installation).await;
    once_formed(&installation, &[&kept, &lost]).await;
    ids.extend(short);
    ids.push(lost);

    drop(processes);
    installation.plane.restore(&snapshot).await.unwrap();
    let jobs = names_of_jobs(&installation).await;
    assert_eq!(jobs, ["done", "ends", "given-back", "kept"]);
    // The kubelets report their state. The kubelet of the deleted job must start another Pod of the
    // same name.
    installation.ends("ends-worker-0").await;
    let processes = operator(&installation).await;

    // The deleted job exists again, with a partition id that was never used before.
    let another = eventually(
        "the job that was deleted has another partition",
        async || {
            let found = installation.id("given-back").await;
            Seen::when(found, |id| id.as_ref().is_some_and(|id| *id != released))
        },
    );
    let another = another.await.unwrap();
    installation.runs("given-back-worker-0").await;
    installation.once("given-back", JobState::Running).await;
    ids.push(another.clone());
    // The completed job only reports its end: its deleted partition is not created again.
    installation.once("ends", JobState::Completed).await;
    once_released(&installation, "ends").await;
    installation.once("done", JobState::Completed).await;
    // No IPUPartition lists the partition of a job that the snapshot does not contain: the sweep
    // removes it.
    once_formed(&installation, &[&kept, &another]).await;
    ids.push(installation.run_job("lost").await);
    let distinct: BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");

    assert_eq!(installation.id("kept").await, Some(kept));
    let still = installation.pods().get("kept-worker-0").await.unwrap();
    assert_eq!(still.uid(), pod.uid());
    installation.once("kept", JobState::Running).await;
    check_states(&installation).await;

    for job in ["kept", "given-back", "ends", "done", "lost"] {
        installation.delete_job(job).await;
    }
    assert_eq!(installation.formed(), [""; 0]);
    drop(processes);
}

/// Checks the descriptions: nothing special for the job that continued and for those that had
/// ended, and a reason for the job that starts again.
async fn check_states(installation: &Installation) {
    for (job, parts) in [
        ("kept", &["Launcher Status: Running"][..]),
        ("ends", &["Launcher Status: Completed", "IPUJobSucceeded"]),
        ("done", &["Launcher Status: Completed", "IPUJobSucceeded"]),
        ("lost", &["Launcher Status: Running"]),
    ] {
        let text = installation.described(job, parts).await;
        assert!(!text.contains("Warning"), "{job}: {text}");
    }
    let again = [
        "Launcher Status: Running",
        "WaitingForPartition",
        "vanished from",
    ];
    installation.described("given-back", &again).await;
}
