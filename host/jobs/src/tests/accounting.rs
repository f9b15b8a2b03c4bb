//! The seconds of a job by what it did.

use ipu_api::ipujob::{IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::{JobAccounting, JobState};
use ipu_api::ipupartition::{Attempt, AttemptOutcome, IPUPartitionStatus, PartitionPhase};
use ipu_api::partition_conditions::READY;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::fixtures::{JobFixture, parallel};
use super::world::{World, controller, time};
use crate::validate::ValidJob;

/// Minutes and seconds after the creation of the job.
fn at(clock: &str) -> Timestamp {
    format!("2026-01-01T00:{clock}Z").parse().unwrap()
}

fn created_at_once(mut job: IPUJob) -> ValidJob {
    job.metadata.creation_timestamp = Some(time(at("00:00")));
    job.valid()
}

/// One reconcile at this time.
fn step_at(world: &mut World, job: &ValidJob, clock: &str) {
    world.now = at(clock) - SignedDuration::from_secs(1);
    world.step(job);
}

/// The proxy: the partition was requested and became ready at these times.
fn formed(world: &mut World, requested: &str, ready: &str) {
    let id = "p-sample-0".to_owned();
    let attempt = Attempt {
        controller: controller(),
        id: id.clone(),
        outcome: AttemptOutcome::Created,
        reason: None,
        started: Some(time(at(requested))),
        decided_by: None,
        account: None,
    };
    let condition = Condition {
        type_: READY.to_owned(),
        status: "True".to_owned(),
        reason: "Active".to_owned(),
        message: String::new(),
        last_transition_time: time(at(ready)),
        observed_generation: None,
    };
    let status = IPUPartitionStatus {
        phase: PartitionPhase::Ready,
        controller: Some(controller()),
        partition_id: Some(id),
        generation: 1,
        attempts: vec![attempt],
        conditions: vec![condition],
        ..IPUPartitionStatus::default()
    };
    world.partition_status(0, status);
    world.reset_partitions();
}

/// A job that waited 40 seconds for a partition, which formed within 10, and that runs since 01:30.
fn running(restart: RestartPolicyType) -> (ValidJob, World) {
    let job = created_at_once(parallel().restart(restart));
    let mut world = World::new();
    step_at(&mut world, &job, "00:05");
    assert_eq!(*accounting(&world), counted("00:00", []));
    formed(&mut world, "00:40", "00:50");
    step_at(&mut world, &job, "00:55");
    world.run_pods();
    step_at(&mut world, &job, "01:00");
    world.run_pods();
    step_at(&mut world, &job, "01:30");
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}

fn accounting(world: &World) -> &JobAccounting {
    world.status().accounting.as_ref().unwrap()
}

/// An accounting until this time with these seconds of the kinds that are not zero.
fn counted<const N: usize>(until: &str, seconds: [(&str, i64); N]) -> JobAccounting {
    let mut object = serde_json::json!({"until": at(until)});
    for (kind, seconds) in seconds {
        object[kind] = seconds.into();
    }
    serde_json::from_value(object).unwrap()
}

fn sum(one: &JobAccounting) -> i64 {
    let pending = one.waiting + one.forming + one.starting + one.restarting;
    pending + one.running + one.wasted + one.suspended
}

#[test]
fn a_job_waits_forms_starts_and_runs() {
    let (job, mut world) = running(RestartPolicyType::Never);
    let pending = [("waiting", 40), ("forming", 10), ("starting", 40)];
    assert_eq!(*accounting(&world), counted("01:30", pending));
    // Time that passes changes nothing: there would be a write for it.
    step_at(&mut world, &job, "04:00");
    assert_eq!(*accounting(&world), counted("01:30", pending));
    world.end("sample-launcher", 0);
    step_at(&mut world, &job, "05:00");
    let [waiting, forming, starting] = pending;
    let all = [waiting, forming, starting, ("running", 210)];
    assert_eq!(*accounting(&world), counted("05:00", all));
    world.settle(&job);
    assert_eq!(*accounting(&world), counted("05:00", all));
}

#[test]
fn a_run_that_failed_is_wasted_and_the_job_restarts() {
    let (job, mut world) = running(RestartPolicyType::OnFailure);
    world.end("sample-launcher", 1);
    step_at(&mut world, &job, "05:00");
    assert_eq!(accounting(&world).wasted, 210);
    world.settle(&job);
    formed(&mut world, "00:40", "05:20");
    world.now = at("05:40");
    for _ in 0..3 {
        world.settle(&job);
        world.run_pods();
    }
    world.settle(&job);
    assert_eq!(world.status().launcher_status, JobState::Running);
    assert_eq!(accounting(&world).restarting, 20);
    world.end("sample-launcher", 0);
    step_at(&mut world, &job, "20:00");
    let all = accounting(&world);
    assert_eq!((all.waiting, all.forming, all.wasted), (40, 10, 210));
    assert_eq!(sum(all), 20 * 60);
}

#[test]
fn a_suspended_job_neither_waits_nor_runs() {
    let suspended = created_at_once(parallel().suspend(true));
    let mut world = World::new();
    step_at(&mut world, &suspended, "00:10");
    step_at(&mut world, &suspended, "00:30");
    let before = [("waiting", 10)];
    assert_eq!(*accounting(&world), counted("00:10", before));
    let resumed = created_at_once(parallel().suspend(false));
    step_at(&mut world, &resumed, "01:00");
    let after = [("waiting", 10), ("suspended", 50)];
    assert_eq!(*accounting(&world), counted("01:00", after));
}

/// `ipu_kueue::build::stopped`.
fn stop(world: &mut World) {
    world.observed.status.launcher_status = JobState::Suspended;
    world.observed.status.admission = None;
}

#[test]
fn what_a_job_did_until_kueue_stopped_it_is_counted() {
    let (_, mut world) = running(RestartPolicyType::Never);
    let suspended = created_at_once(parallel().suspend(true));
    stop(&mut world);
    step_at(&mut world, &suspended, "05:00");
    let until_then = [
        ("waiting", 40),
        ("forming", 10),
        ("starting", 40),
        ("running", 210),
    ];
    assert_eq!(*accounting(&world), counted("05:00", until_then));
    world.settle(&suspended);
    let resumed = created_at_once(parallel().suspend(false));
    step_at(&mut world, &resumed, "07:00");
    assert_eq!(accounting(&world).running, 210);
    assert_eq!(accounting(&world).suspended, 120);
    assert_eq!(sum(accounting(&world)), 7 * 60);
}

#[test]
fn a_job_that_kueue_stops_before_it_runs_has_waited() {
    let job = created_at_once(parallel());
    let mut world = World::new();
    step_at(&mut world, &job, "00:05");
    stop(&mut world);
    let suspended = created_at_once(parallel().suspend(true));
    step_at(&mut world, &suspended, "00:30");
    assert_eq!(*accounting(&world), counted("00:30", [("waiting", 30)]));
}

#[test]
fn a_job_of_an_earlier_version_is_counted_from_its_next_state_on() {
    let (job, mut world) = running(RestartPolicyType::Never);
    world.settle(&job);
    world.observed.status.accounting = None;
    let before = world.status().clone();
    step_at(&mut world, &job, "02:00");
    assert_eq!(*world.status(), before);
    world.end("sample-launcher", 0);
    step_at(&mut world, &job, "03:00");
    assert_eq!(*accounting(&world), counted("03:00", []));
}
