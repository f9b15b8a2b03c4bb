//! The seconds of a job by activity.

use ipu_api::ipujob::{IPUJob, RestartPolicyType};
use ipu_api::ipujob_status::{JobAccounting, JobActivity, JobState};
use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, AutoResets, IPUPartitionStatus, PartitionPhase,
};
use ipu_api::partition_conditions::{BUSY, READY};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::fixtures::{JobFixture, parallel};
use super::kubelet::{main_container, running as running_pod};
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
        exhausted: None,
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
    assert_eq!(
        *accounting(&world),
        counted("00:00", [], Some(JobActivity::Waiting))
    );
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

/// An accounting until this time with these seconds of the kinds that are not zero, and what the
/// job does since then.
fn counted<const N: usize>(
    until: &str,
    seconds: [(&str, i64); N],
    current: Option<JobActivity>,
) -> JobAccounting {
    let mut object = serde_json::json!({"until": at(until)});
    for (kind, seconds) in seconds {
        object[kind] = seconds.into();
    }
    let counted: JobAccounting = serde_json::from_value(object).unwrap();
    JobAccounting { current, ..counted }
}

/// The kubelet: the condition `Ready` of a Pod that runs since a time changed at another one.
fn becomes(world: &mut World, pod: &str, (ready, started, changed): (bool, &str, &str)) {
    let pod = world.pod(pod);
    let mut status = running_pod(&main_container(pod), at(started));
    let condition = &mut status.conditions.as_mut().unwrap()[0];
    condition.status = if ready { "True" } else { "False" }.to_owned();
    condition.last_transition_time = Some(time(at(changed)));
    pod.status = Some(status);
}

/// A job of one instance without a launcher, whose Pod has been Ready since 01:00.
fn serving(restart: RestartPolicyType) -> (ValidJob, World) {
    let job = created_at_once(IPUJob::sample().restart(restart));
    let mut world = World::new();
    step_at(&mut world, &job, "00:05");
    formed(&mut world, "00:40", "00:50");
    step_at(&mut world, &job, "00:50");
    step_at(&mut world, &job, "00:51");
    becomes(&mut world, "sample-worker-0", (true, "00:59", "01:00"));
    step_at(&mut world, &job, "01:10");
    assert_eq!(world.status().launcher_status, JobState::Running);
    (job, world)
}

/// The kubelet: a Pod that ran since 00:59 has ended, and stopped to be Ready at a time.
fn ends(world: &mut World, pod: &str, exit_code: i32, clock: &str) {
    world.end(pod, exit_code);
    let condition = serde_json::json!({
        "type": "Ready", "status": "False", "lastTransitionTime": at(clock),
    });
    let status = world.pod(pod).status.as_mut().unwrap();
    status.conditions = Some(vec![serde_json::from_value(condition).unwrap()]);
    let containers = status.container_statuses.as_mut().unwrap();
    let state = containers[0].state.as_mut().unwrap();
    let end = state.terminated.as_mut().unwrap();
    end.started_at = Some(time(at("00:59")));
    end.finished_at = Some(time(at(clock)));
}

#[test]
fn a_job_waits_forms_starts_and_runs() {
    let (job, mut world) = running(RestartPolicyType::Never);
    let pending = [("waiting", 40), ("forming", 10), ("starting", 40)];
    assert_eq!(
        *accounting(&world),
        counted("01:30", pending, Some(JobActivity::Running))
    );
    // Time that passes changes nothing: there would be a write for it.
    step_at(&mut world, &job, "04:00");
    assert_eq!(
        *accounting(&world),
        counted("01:30", pending, Some(JobActivity::Running))
    );
    world.end("sample-launcher", 0);
    step_at(&mut world, &job, "05:00");
    let [waiting, forming, starting] = pending;
    let all = [waiting, forming, starting, ("running", 210)];
    assert_eq!(*accounting(&world), counted("05:00", all, None));
    world.settle(&job);
    assert_eq!(*accounting(&world), counted("05:00", all, None));
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
    // Its Pods end within two seconds, then the partition is reset, after the back-off is over.
    let after = accounting(&world);
    let restart = (after.idle, after.resetting, after.restarting);
    assert_eq!(restart, (2, 18, 0));
    world.end("sample-launcher", 0);
    step_at(&mut world, &job, "20:00");
    let all = accounting(&world);
    assert_eq!((all.waiting, all.forming, all.wasted), (40, 10, 210));
    assert_eq!(all.total(), 20 * 60);
}

#[test]
fn a_suspended_job_neither_waits_nor_runs() {
    let suspended = created_at_once(parallel().suspend(true));
    let mut world = World::new();
    step_at(&mut world, &suspended, "00:10");
    step_at(&mut world, &suspended, "00:30");
    let before = [("waiting", 10)];
    let suspended_now = Some(JobActivity::Suspended);
    assert_eq!(*accounting(&world), counted("00:10", before, suspended_now));
    let resumed = created_at_once(parallel().suspend(false));
    step_at(&mut world, &resumed, "01:00");
    let after = [("waiting", 10), ("suspended", 50)];
    assert_eq!(
        *accounting(&world),
        counted("01:00", after, Some(JobActivity::Waiting))
    );
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
    let suspended_now = Some(JobActivity::Suspended);
    assert_eq!(
        *accounting(&world),
        counted("05:00", until_then, suspended_now)
    );
    world.settle(&suspended);
    let resumed = created_at_once(parallel().suspend(false));
    step_at(&mut world, &resumed, "07:00");
    assert_eq!(accounting(&world).running, 210);
    assert_eq!(accounting(&world).suspended, 120);
    assert_eq!(accounting(&world).total(), 7 * 60);
}

#[test]
fn a_job_that_kueue_stops_before_it_runs_has_waited() {
    let job = created_at_once(parallel());
    let mut world = World::new();
    step_at(&mut world, &job, "00:05");
    stop(&mut world);
    let suspended = created_at_once(parallel().suspend(true));
    step_at(&mut world, &suspended, "00:30");
    assert_eq!(
        *accounting(&world),
        counted("00:30", [("waiting", 30)], Some(JobActivity::Suspended))
    );
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
    assert_eq!(*accounting(&world), counted("03:00", [], None));
}

#[test]
fn the_back_off_after_a_reset_is_neither_idle_nor_a_reset() {
    let (job, mut world) = running(RestartPolicyType::OnFailure);
    world.end("sample-launcher", 1);
    step_at(&mut world, &job, "05:00");
    world.settle(&job);
    formed(&mut world, "00:40", "05:04");
    // Ready again, and the back-off is over at 05:10.
    step_at(&mut world, &job, "05:06");
    assert_eq!(accounting(&world).current, Some(JobActivity::Restarting));
    step_at(&mut world, &job, "05:30");
    let after = accounting(&world);
    let restart = (after.idle, after.resetting, after.restarting);
    assert_eq!(restart, (2, 2, 6));
    assert_eq!(after.current, Some(JobActivity::Starting));
    assert_eq!(after.total(), 5 * 60 + 30);
}

#[test]
fn a_job_whose_pods_are_not_ready_any_more_is_idle_without_a_write_for_it() {
    let (job, mut world) = serving(RestartPolicyType::Never);
    world.settle(&job);
    let before = world.status().clone();
    becomes(&mut world, "sample-worker-0", (false, "00:59", "03:00"));
    step_at(&mut world, &job, "03:01");
    step_at(&mut world, &job, "04:00");
    assert_eq!(*world.status(), before, "readiness alone is no news");
    ends(&mut world, "sample-worker-0", 1, "03:00");
    step_at(&mut world, &job, "05:00");
    let all = accounting(&world);
    assert_eq!(world.status().launcher_status, JobState::Failed);
    assert_eq!((all.running, all.idle), (0, 120));
    assert_eq!(all.total(), 5 * 60);
    assert_eq!(all.wasted, all.total() - 120 - 40 - 10 - all.starting);
}

#[test]
fn a_pod_that_is_lost_leaves_its_partition_idle_until_it_is_reset() {
    let (job, mut world) = serving(RestartPolicyType::Always);
    world.lose("sample-worker-0");
    world.now = at("02:00");
    world.settle(&job);
    assert_eq!(world.resets.len(), 1);
    assert_eq!(world.status().launcher_status, JobState::Running);
    assert_eq!(accounting(&world).current, Some(JobActivity::Resetting));
    formed(&mut world, "00:40", "02:31");
    world.now = at("03:00");
    world.settle(&job);
    let all = accounting(&world);
    assert_eq!((all.idle, all.resetting, all.restarting), (0, 30, 0));
    assert_eq!(all.current, Some(JobActivity::Running));
    // What ran before the reset is wasted with the run.
    assert_eq!(all.current_run, all.running);
}

#[test]
fn what_a_v_ipu_controller_does_by_itself_is_a_reset_while_no_pod_is_ready() {
    let (job, mut world) = serving(RestartPolicyType::Never);
    let ready = world.observed.partitions[0].status.clone().unwrap();
    let busy = Condition {
        type_: BUSY.to_owned(),
        last_transition_time: time(at("03:10")),
        ..ready.conditions[0].clone()
    };
    let conditions = vec![ready.conditions[0].clone(), busy];
    world.partition_status(
        0,
        IPUPartitionStatus {
            conditions,
            ..ready
        },
    );
    ends(&mut world, "sample-worker-0", 1, "03:00");
    step_at(&mut world, &job, "03:30");
    let all = accounting(&world);
    assert_eq!((all.idle, all.resetting), (10, 20));
    assert_eq!(all.total(), 3 * 60 + 30);
}

/// The proxy: the V-IPU controller has reset the partition this number of times. The status
/// of the job reports it.
fn has_reset(world: &mut World, count: u32) {
    let auto_resets = Some(AutoResets {
        count,
        ..AutoResets::default()
    });
    let status = world.observed.partitions[0].status.clone().unwrap();
    let status = IPUPartitionStatus {
        auto_resets,
        ..status
    };
    world.partition_status(0, status);
}

/// A job whose Pod is not ready since 03:00. A reset by the V-IPU controller had a status written
/// at 03:30.
fn idle() -> (ValidJob, World) {
    let (job, mut world) = serving(RestartPolicyType::Never);
    becomes(&mut world, "sample-worker-0", (false, "00:59", "03:00"));
    has_reset(&mut world, 1);
    step_at(&mut world, &job, "03:30");
    assert_eq!(accounting(&world).current, Some(JobActivity::Idle));
    (job, world)
}

#[test]
fn a_job_runs_again_from_the_time_at_which_its_pod_became_ready() {
    let (job, mut world) = idle();
    assert_eq!(accounting(&world).idle, 30);
    becomes(&mut world, "sample-worker-0", (true, "00:59", "04:00"));
    has_reset(&mut world, 2);
    step_at(&mut world, &job, "05:00");
    let all = accounting(&world);
    assert_eq!(all.current, Some(JobActivity::Running));
    assert_eq!((all.idle, all.running), (60, 129 + 60));
    assert_eq!(all.total(), 5 * 60);
}

#[test]
fn a_job_that_runs_again_is_not_idle_until_its_end() {
    let (job, mut world) = idle();
    // Nothing but the Pod changes.
    becomes(&mut world, "sample-worker-0", (true, "00:59", "04:00"));
    step_at(&mut world, &job, "04:10");
    assert_eq!(accounting(&world).current, Some(JobActivity::Running));
    becomes(&mut world, "sample-worker-0", (false, "00:59", "09:00"));
    has_reset(&mut world, 2);
    step_at(&mut world, &job, "10:00");
    let all = accounting(&world);
    assert_eq!((all.idle, all.running), (60 + 60, 129 + 300));
    assert_eq!(all.total(), 10 * 60);
}
