//! Jobs without a launcher grow and shrink, with the columns that users know.

use ipu_api::ipujob::IPUJob;
use serde_json::{Value, json};

use super::fixtures::{JobFixture, MAX_IPUS};
use super::world::{World, time};
use crate::validate::{ValidJob, read};

#[test]
fn scaling_up_and_down_shows_what_the_original_shows() {
    let scaled = |instances| IPUJob::sample().instances(instances).valid();
    let mut world = World::new();
    let one = scaled(1);
    world.settle(&one);
    assert_eq!(world.row(), "Pending 0 1 partition not ready yet!");
    world.ready([0]);
    world.settle(&one);
    assert_eq!(world.row(), "Running 1 1 Successfully reconciled IPUJob");

    let four = scaled(4);
    world.settle(&four);
    assert_eq!(
        world.row(),
        "Pending 1 4 partition not ready yet!partition not ready yet!partition not ready yet!"
    );
    world.ready([1, 2]);
    world.settle(&four);
    assert_eq!(world.row(), "Pending 3 4 partition not ready yet!");
    world.ready([3]);
    world.settle(&four);
    assert_eq!(world.row(), "Running 4 4 Successfully reconciled IPUJob");

    let two = scaled(2);
    let steps = world.settle(&two);
    let deleted: Vec<&str> = steps
        .iter()
        .flat_map(|step| &step.plan.delete_pods)
        .map(|deletion| deletion.name.as_str())
        .collect();
    assert_eq!(deleted, ["sample-worker-3", "sample-worker-2"]);
    assert_eq!(world.pods(), ["sample-worker-0", "sample-worker-1"]);
    assert_eq!(world.slots(), [0, 1]);
    assert_eq!(world.row(), "Running 2 2 Successfully reconciled IPUJob");

    let none = scaled(0);
    world.settle(&none);
    assert_eq!(world.row(), "Running 0 0 Successfully reconciled IPUJob");
    assert_eq!((world.pods().len(), world.slots().len()), (0, 0));
}

#[test]
fn a_deleted_pod_has_not_ended_by_itself_at_any_reported_time() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    world.end("sample-worker-0", 0);
    let asked = time(world.now);
    let pod = world.pod("sample-worker-0");
    pod.metadata.deletion_timestamp = Some(asked);
    let status = pod.status.as_mut().unwrap();
    let containers = status.container_statuses.as_mut().unwrap();
    let state = containers[0].state.as_mut().unwrap();
    state.terminated.as_mut().unwrap().finished_at = Some(time(jiff::Timestamp::UNIX_EPOCH));
    world.settle(&job);
    assert_eq!(world.slots(), [0], "its partition is not released");
    world.lose("sample-worker-0");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"], "it comes back");
}

#[test]
fn a_partition_is_released_only_when_its_pods_are_gone() {
    let two = IPUJob::sample().instances(2).valid();
    let one = IPUJob::sample().instances(1).valid();
    let mut world = World::new();
    world.settle(&two);
    world.ready([0, 1]);
    world.settle(&two);
    world.run_pods();
    let step = world.step(&one);
    assert_eq!(step.plan.delete_pods.len(), 1);
    assert!(step.plan.delete_partitions.is_empty());
    let step = world.step(&one);
    assert_eq!(step.plan.delete_partitions.len(), 1);
}

#[test]
fn a_lost_pod_comes_back_and_one_with_an_old_partition_goes() {
    let job = IPUJob::sample().valid();
    let mut world = World::new();
    world.settle(&job);
    world.ready([0]);
    world.settle(&job);
    world.run_pods();
    world.settle(&job);
    world.lose("sample-worker-0");
    world.settle(&job);
    world.reset_partitions();
    world.settle(&job);
    assert_eq!(world.pods(), ["sample-worker-0"]);
    world.run_pods();
    let mut status = world.observed.partitions[0].status.clone().unwrap();
    status.partition_id = Some("p-sample-0-again".to_owned());
    world.partition_status(0, status);
    let step = world.step(&job);
    assert_eq!(step.plan.delete_pods.len(), 1);
    let step = world.step(&job);
    let labels = step.plan.create_pods[0].metadata.labels.as_ref().unwrap();
    assert_eq!(
        labels[ipu_api::labels::PARTITION_ID_LABEL],
        "p-sample-0-again"
    );
}

/// A job that Kueue has admitted with this number of workers. `null`: an earlier version of the
/// operator wrote the admission.
fn admitted(job: &IPUJob, workers: &Value) -> ValidJob {
    let mut object = job.object();
    object["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "team"});
    object["status"] = json!({
        "desiredReplicas": 1, "lastMessage": "",
        "admission": {
            "podSets": [{"name": "worker", "count": workers}],
            "reservePartitions": job.spec.suspend == Some(true),
        },
    });
    read(&object, MAX_IPUS).unwrap()
}

#[test]
fn a_job_that_grows_beyond_its_admission_gets_nothing_more_before_the_next_one() {
    let job = |instances| IPUJob::sample().workers("2").instances(instances);
    let mut world = World::new();
    let one = admitted(&job(1), &json!(2));
    world.settle(&one);
    world.ready([0]);
    world.settle(&one);
    for workers in [2, 3] {
        world.settle(&admitted(&job(3), &json!(workers)));
        assert_eq!(world.slots(), [0], "{workers}");
        assert_eq!(world.pods(), ["sample-worker-0", "sample-worker-1"]);
    }
    world.settle(&admitted(&job(3), &json!(4)));
    assert_eq!(world.slots(), [0, 1]);
    world.settle(&admitted(&job(2), &json!(6)));
    assert_eq!(world.slots(), [0, 1], "a smaller job is admitted");
    world.settle(&admitted(&job(3), &Value::Null));
    assert_eq!(world.slots(), [0, 1, 2]);
}

#[test]
fn a_suspended_job_requests_no_partition_beyond_its_reserved_quota() {
    let job = |instances| IPUJob::sample().instances(instances).suspend(true);
    let mut world = World::new();
    world.settle(&admitted(&job(3), &json!(1)));
    assert_eq!(world.slots(), [0]);
    world.settle(&admitted(&job(3), &json!(3)));
    assert_eq!(world.slots(), [0, 1, 2]);
}

#[test]
fn a_rolling_update_of_an_admitted_job_has_its_surge_instance() {
    let version = |version: &str| {
        let labels = json!({"metadata": {"labels": {"version": version}}});
        IPUJob::sample().template(&labels)
    };
    let mut world = World::new();
    let old = admitted(&version("1"), &json!(1));
    world.settle(&old);
    world.ready([0]);
    world.settle(&old);
    world.run_pods();
    world.settle(&admitted(&version("2"), &json!(1)));
    assert_eq!(world.slots(), [0, 1]);
    // It is no surge instance of a job that has grown.
    let mut world = World::new();
    world.settle(&old);
    world.ready([0]);
    world.settle(&old);
    world.run_pods();
    world.settle(&admitted(&version("2").instances(2), &json!(1)));
    assert_eq!(world.slots(), [0]);
}
