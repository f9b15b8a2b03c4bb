//! etcd is restored, in place, from a snapshot that jobs have come and gone since: what runs keeps its partition, and
//! nothing is leaked or given twice.

use ipu_api::ipujob_status::JobState;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use tests::wait::{Seen, eventually};

use crate::job::single;
use crate::processes::{Place, Running};

/// The processes of the operator, as in their Pods.
async fn operator(place: &Place) -> (Running, Running) {
    let controller = place.controller("controller", Vec::new()).await;
    (controller, place.proxy("proxy", Vec::new()).await)
}

/// Creates a job and runs its Pod. Answers the id of its partition.
async fn run(place: &Place, name: &str) -> String {
    let mut job = single(name);
    // What this Pod waits for besides is not of interest here.
    job["spec"]["workers"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    place.submit(&job).await;
    place.runs(&format!("{name}-worker-0")).await;
    place.once(name, JobState::Running).await;
    id(place, name).await.unwrap()
}

async fn id(place: &Place, owner: &str) -> Option<String> {
    let mut all = place.partitions().await.into_iter();
    all.find(|(name, _)| name == owner).and_then(|(_, id)| id)
}

async fn delete(place: &Place, name: &str) {
    let params = DeleteParams::default();
    place.jobs().delete(name, &params).await.unwrap();
    eventually(&format!("{name} is gone"), async || {
        Seen::when(place.jobs().get_opt(name).await.unwrap(), Option::is_none)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_keeps_its_partition_and_nothing_is_leaked_or_given_twice() {
    let mut place = Place::new().await;
    let processes = operator(&place).await;
    let kept = run(&place, "kept").await;
    let pod = place.pods().get("kept-worker-0").await.unwrap();
    let given_back = run(&place, "given-back").await;
    let snapshot = place.plane.snapshot().await.unwrap();
    delete(&place, "given-back").await;
    let lost = run(&place, "lost").await;
    assert_eq!(place.formed().len(), 2);

    drop(processes);
    place.plane.restore(&snapshot).await.unwrap();
    assert!(place.jobs().get_opt("lost").await.unwrap().is_none());
    let processes = operator(&place).await;

    // It is back, as every object is, on a partition that nobody had before.
    let another = eventually(
        "the job that was deleted has another partition",
        async || {
            let found = id(&place, "given-back").await;
            Seen::when(found, |id| id.as_ref().is_some_and(|id| *id != given_back))
        },
    );
    let another = another.await.unwrap();
    place.runs("given-back-worker-0").await;
    place.once("given-back", JobState::Running).await;
    // Nobody lists the partition of a job that the API server does not know: the sweep removes it.
    let mut wanted = vec![kept.clone(), another.clone()];
    wanted.sort_unstable();
    eventually("the lost job's partition is removed", async || {
        let mut formed = place.formed();
        formed.sort_unstable();
        Seen::when(formed, |formed| *formed == wanted)
    })
    .await;
    let again = run(&place, "lost").await;
    let ids = [&kept, &given_back, &lost, &another, &again];
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");

    assert_eq!(id(&place, "kept").await, Some(kept));
    let still = place.pods().get("kept-worker-0").await.unwrap();
    assert_eq!(still.uid(), pod.uid());
    place.once("kept", JobState::Running).await;
    for job in ["kept", "given-back", "lost"] {
        delete(&place, job).await;
    }
    assert_eq!(place.formed(), [""; 0]);
    drop(processes);
}
