//! The health checks of the file give each state of the operator's kinds the health that Argo CD
//! should show.

use ipu_api::crd;
use ipu_api::ipujob_status::{IPUJobStatus, JobState};
use ipu_api::ipupartition::{IPUPartitionStatus, PartitionPhase};
use ipu_api::ipupolicy::{IPUPolicyStatus, PolicyPhase};
use ipu_api::vipu_controller::VIPUControllerStatus;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::lua::{Health, Lua};
use crate::job::single;
use crate::job_fixture::JobFixture;

fn health(status: &str, message: &str) -> Health {
    Health {
        status: status.to_owned(),
        message: message.to_owned(),
    }
}

/// An object of generation 2 with a status that has the fields of the API.
fn sample<S: Serialize + DeserializeOwned>(kind: &str, spec: &Value, status: &Value) -> Value {
    let fields: S = serde_json::from_value(status.clone()).unwrap();
    json!({
        "apiVersion": "graphcore.ai/v1alpha1",
        "kind": kind,
        "metadata": { "name": "sample", "generation": 2 },
        "spec": spec,
        "status": fields,
    })
}

fn condition(type_: &str, is_true: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": type_,
        "status": if is_true { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-11-29T10:00:00Z",
    })
}

#[test]
fn every_kind_with_a_status_has_a_script_and_is_progressing_without_it() {
    let lua = Lua::new();
    let definitions = crd::all();
    let kinds = definitions.iter().filter_map(|crd| {
        let subresources = crd.spec.versions[0].subresources.as_ref()?;
        subresources.status.as_ref()?;
        Some(crd.spec.names.kind.as_str())
    });
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!(lua.kinds(), kinds);
    for kind in kinds {
        let mut new = json!({ "kind": kind, "metadata": { "generation": 1 } });
        assert_eq!(lua.health(&new).status, "Progressing", "{new}");
        new["status"] = json!({});
        assert_eq!(lua.health(&new).status, "Progressing", "{new}");
    }
}

/// The conditions of a job in a state, and its health.
fn of_job(state: JobState) -> (Value, Health) {
    match state {
        JobState::Pending => (
            json!([
                condition("Ready", false, "Pending", "waiting for partitions or Pods"),
                condition(
                    "PartitionsReady",
                    false,
                    "WaitingForPartition",
                    "pod1 is full"
                ),
            ]),
            health("Progressing", "pod1 is full"),
        ),
        JobState::Running => (
            json!([condition("Ready", true, "Running", "the job runs")]),
            health("Healthy", "the job runs"),
        ),
        JobState::Completed => (
            json!([condition(
                "Ready",
                true,
                "Completed",
                "the job has completed"
            )]),
            health("Healthy", "the job has completed"),
        ),
        JobState::Failed => (
            json!([
                condition("Ready", false, "Failed", "the job has failed"),
                condition(
                    "Failed",
                    true,
                    "BackoffLimitExceeded",
                    "it \"failed\" 3 times"
                ),
            ]),
            health("Degraded", "it \"failed\" 3 times"),
        ),
        JobState::Suspended => (
            json!([condition(
                "Suspended",
                true,
                "JobSuspended",
                "it is suspended"
            )]),
            health("Suspended", "it is suspended"),
        ),
    }
}

#[test]
fn an_ipujob_has_the_health_of_its_state() {
    let lua = Lua::new();
    let states = [
        JobState::Pending,
        JobState::Running,
        JobState::Completed,
        JobState::Failed,
        JobState::Suspended,
    ];
    for state in states {
        let (conditions, expected) = of_job(state);
        let status = json!({
            "launcherStatus": state, "observedGeneration": 2, "conditions": conditions,
            "desiredReplicas": 1, "lastMessage": "",
        });
        let mut job = sample::<IPUJobStatus>("IPUJob", &json!({}), &status);
        assert_eq!(lua.health(&job), expected, "{state:?}");
        job["metadata"]["generation"] = 3.into();
        assert_eq!(lua.health(&job).status, "Progressing", "{state:?}");
    }
}

#[test]
fn an_ipupartition_has_the_health_of_its_phase() {
    let lua = Lua::new();
    let phases = [
        (PartitionPhase::Pending, false, "Progressing"),
        (PartitionPhase::Creating, false, "Progressing"),
        (PartitionPhase::Ready, true, "Healthy"),
        // In use, and its controller does not have it at this moment.
        (PartitionPhase::Ready, false, "Progressing"),
        (PartitionPhase::Resetting, false, "Progressing"),
        (PartitionPhase::Error, false, "Degraded"),
        (PartitionPhase::Rejected, false, "Degraded"),
        (PartitionPhase::Releasing, false, "Progressing"),
    ];
    for (phase, is_ready, expected) in phases {
        let ready = condition("Ready", is_ready, "Reason", "why");
        let status = json!({ "phase": phase, "message": "why", "conditions": [ready] });
        let partition = sample::<IPUPartitionStatus>("IPUPartition", &json!({}), &status);
        assert_eq!(lua.health(&partition), health(expected, "why"), "{phase:?}");
    }
}

#[test]
fn an_ipupolicy_has_the_health_of_its_phase() {
    let lua = Lua::new();
    let phases = [
        PolicyPhase::Loading,
        PolicyPhase::Active,
        PolicyPhase::Shadow,
        PolicyPhase::Refused,
        PolicyPhase::RolledBack,
        PolicyPhase::Replaced,
    ];
    for phase in phases {
        let (second, expected) = match phase {
            PolicyPhase::Loading => (Some("Reconciling"), "Progressing"),
            PolicyPhase::Active | PolicyPhase::Shadow | PolicyPhase::Replaced => (None, "Healthy"),
            PolicyPhase::Refused | PolicyPhase::RolledBack => (Some("Stalled"), "Degraded"),
        };
        let reason = format!("{phase:?}");
        let mut conditions = vec![condition("Ready", second.is_none(), &reason, "why")];
        conditions.extend(second.map(|type_| condition(type_, true, &reason, "why")));
        let status = json!({
            "phase": phase, "message": "why", "observedGeneration": 2, "conditions": conditions,
        });
        let mut policy = sample::<IPUPolicyStatus>("IPUPolicy", &json!({}), &status);
        assert_eq!(lua.health(&policy), health(expected, "why"), "{phase:?}");
        policy["metadata"]["generation"] = 3.into();
        assert_eq!(lua.health(&policy).status, "Progressing", "{phase:?}");
    }
}

#[test]
fn a_vipucontroller_has_the_health_of_its_conditions() {
    let lua = Lua::new();
    let (up, left) = (("it answers", true), ("partitions left: 2", false));
    let (free, cordoned, draining) = (
        json!({}),
        json!({ "cordoned": true }),
        json!({ "draining": true }),
    );
    let cases = [
        (&free, up, None, health("Healthy", "it answers")),
        (
            &free,
            ("no route", false),
            None,
            health("Degraded", "no route"),
        ),
        (&cordoned, up, None, health("Suspended", "Cordoned")),
        (
            &cordoned,
            ("no route", false),
            None,
            health("Degraded", "no route"),
        ),
        (
            &draining,
            up,
            Some(left),
            health("Progressing", "partitions left: 2"),
        ),
        (
            &draining,
            up,
            None,
            health("Progressing", "It is being drained"),
        ),
        (
            &draining,
            up,
            Some(("none", true)),
            health("Suspended", "Drained"),
        ),
    ];
    for (spec, (message, is_ready), drained, expected) in cases {
        let mut conditions = vec![
            condition("Ready", is_ready, "Reason", message),
            condition("Listed", true, "ControllerListed", "it is in the list"),
        ];
        let drained = drained
            .map(|(message, is_drained)| condition("Drained", is_drained, "Reason", message));
        conditions.extend(drained);
        let status = json!({ "address": "pod1:8090", "summary": "", "conditions": conditions });
        let controller = sample::<VIPUControllerStatus>("VIPUController", spec, &status);
        assert_eq!(lua.health(&controller), expected, "{spec} {conditions:?}");
    }
}

/// The scripts read what the operator writes, not only the samples above.
#[tokio::test]
async fn a_real_job_passes_through_its_health() {
    let lua = Lua::new();
    let mut fixture = JobFixture::new("gitops-health").await;
    fixture.start();
    fixture.submit(&single("job")).await;
    fixture
        .row("job", "Pending 0 1", "partition not ready yet!")
        .await;
    let pending = lua.health(&live(&fixture).await);
    assert_eq!(pending.status, "Progressing", "{pending:?}");
    assert!(pending.message.contains("instance 0"), "{pending:?}");
    fixture.partition_ready(0).await;
    fixture.pod_runs("job-worker-0").await;
    fixture.row("job", "Running 1 1", "").await;
    assert_eq!(
        lua.health(&live(&fixture).await),
        health("Healthy", "the job runs")
    );
    fixture.pod_ends("job-worker-0", 3).await;
    fixture.row("job", "Failed 0 1", "").await;
    let failed = lua.health(&live(&fixture).await);
    assert_eq!(failed.status, "Degraded", "{failed:?}");
    fixture.kill().await;
}

async fn live(fixture: &JobFixture) -> Value {
    let job = fixture.jobs().get("job").await.unwrap();
    serde_json::to_value(job).unwrap()
}
