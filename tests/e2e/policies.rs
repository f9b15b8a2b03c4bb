//! Guests that an admin activates while jobs run.

use std::process::Command;

use cluster::command;
use cluster::wait::{Seen, until};
use harness::operator::NAMESPACE;
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::{CallCounts, IPUPolicy, PolicyPhase};
use kube::Api;
use kube::api::{Patch, PatchParams};
use libtest_mimic::Failed;
use release::dist::Profile;
use serde_json::{Value, json};

use crate::fixture::{Fixture, PATIENCE};

/// A placement guest from a ConfigMap decides in every replica of the proxy, and a limit applies to
/// its namespaces. After the deletion of both, the earlier policies decide again.
pub(crate) fn decide_until_they_are_deleted(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let dist = Profile::from_env().folder(&fixture.operated.repository);
        let module = dist.join("guests/serial-walk.wasm");
        let digest = digest_of(&std::fs::read(&module)?).to_string();
        let from_file = format!("--from-file=walk.wasm={}", module.display());
        let create = [
            "create",
            "configmap",
            "guests",
            "--namespace",
            NAMESPACE,
            &from_file,
        ];
        fixture.kubectl(&create).await?;
        let walk = json!({
            "hook": "Placement",
            "module": {"configMap": {"name": "guests", "key": "walk.wasm"}, "digest": digest},
        });
        apply(fixture, "walk", walk).await?;
        let status = once_active(fixture, "walk").await?;
        assert_eq!(status.status.unwrap_or_default().replicas.len(), 2);
        let job = fixture.apply("01-single-worker.yaml").await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        let asked = once_called(fixture, "walk", |calls| calls.answered > 0);
        assert_eq!(asked.await?.failed, 0);
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await?;

        holds_a_limit(fixture).await?;
        fixture
            .kubectl(&["delete", "ipupolicy", "walk", "trial-limit"])
            .await?;
        fixture
            .kubectl(&["delete", "configmap", "guests", "--namespace", NAMESPACE])
            .await?;
        let job = fixture.apply("01-single-worker.yaml").await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

/// The limit of the example applies only to the namespaces with its label.
async fn holds_a_limit(fixture: &Fixture) -> Result<(), Failed> {
    let limit = fixture
        .operated
        .repository
        .join("examples/policies/limit.yaml");
    fixture.operated.kubectl.apply(&limit).await?;
    once_active(fixture, "trial-limit").await?;
    let label = |change| ["label", "--overwrite", "namespace", "default", change];
    fixture.kubectl(&label("tier=trial")).await?;
    let mut large = fixture.example("01-single-worker.yaml")?;
    large.spec.ipus_per_job_instance = 32.to_string();
    let refused = until("the limit to hold", PATIENCE, || async {
        Ok::<_, kube::Error>(match fixture.create(&large).await {
            Err(kube::Error::Api(status)) if status.code == 422 => Seen::Yes(status.message),
            other => Seen::NotYet(format!("{other:?}")),
        })
    });
    let refused = refused.await?;
    assert!(refused.contains("spec.ipusPerJobInstance"), "{refused}");
    fixture.kubectl(&label("tier-")).await?;
    Ok(())
}

/// The requests of the live operator are recorded in its container, without the values of
/// environment variables. A replay with the same guest gives the same answers.
pub(crate) fn are_recorded_and_replayed(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let controller = "deploy/ipu-operator-controller-manager";
        let record = [
            "exec",
            "--namespace",
            NAMESPACE,
            controller,
            "--",
            "/ipu-operator",
            "policy",
            "record",
            "--hook=validation",
            "--count=2",
        ];
        let mut job = fixture.example("01-single-worker.yaml")?;
        let container = &mut job.spec.workers.template.0["spec"]["containers"][0];
        container["env"] = json!([{"name": "TOKEN", "value": "a-long-secret"}]);
        let jobs = async {
            loop {
                fixture.would_take(&job).await?;
            }
        };
        let recorded = tokio::select! {
            recorded = fixture.kubectl(&record) => recorded?,
            stopped = jobs => return stopped,
            () = tokio::time::sleep(PATIENCE) => return Err("no request was recorded".into()),
        };
        assert_eq!(recorded.lines().count(), 2, "{recorded}");
        assert!(!recorded.contains("a-long-secret"), "{recorded}");

        let folder = tempfile::tempdir()?;
        let file = folder.path().join("records.jsonl");
        std::fs::write(&file, recorded)?;
        let dist = Profile::from_env().folder(&fixture.operated.repository);
        let guest = dist.join("guests/validation.wasm");
        let mut replay = Command::new(dist.join("ipu-operator"));
        replay.args(["policy", "replay"]);
        replay.args([&guest, &guest, &file]);
        let replayed = command::output(&mut replay)?;
        assert!(
            replayed.contains("2 same answers, 0 different answers"),
            "{replayed}"
        );
        assert!(
            !replayed.contains("differ from the recorded ones"),
            "{replayed}"
        );
        Ok(())
    })
}

fn policies(fixture: &Fixture) -> Api<IPUPolicy> {
    Api::all(fixture.operated.client.clone())
}

/// Applies a policy as an admin does.
pub(crate) async fn apply(fixture: &Fixture, name: &str, spec: Value) -> Result<(), kube::Error> {
    let policy = json!({
        "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
        "metadata": {"name": name}, "spec": spec,
    });
    let params = PatchParams::apply("an-admin");
    let patch = Patch::Apply(&policy);
    policies(fixture).patch(name, &params, &patch).await?;
    Ok(())
}

/// Returns the policy once every replica serves the desired version.
pub(crate) async fn once_active(fixture: &Fixture, name: &str) -> Result<IPUPolicy, Failed> {
    let what = format!("the IPUPolicy {name} to be active everywhere");
    once(fixture, name, what, |policy| {
        policy.status.as_ref().is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            status.phase == PolicyPhase::Active
                && conditions.any(|found| found.type_ == "Ready" && found.status == "True")
        })
    })
    .await
}

/// Returns the policy once the last applied version has a phase.
pub(crate) async fn once_in(
    fixture: &Fixture,
    name: &str,
    phase: PolicyPhase,
) -> Result<IPUPolicy, Failed> {
    let what = format!("the IPUPolicy {name} to be {phase:?}");
    once(fixture, name, what, |policy| {
        policy.status.as_ref().is_some_and(|status| {
            status.phase == phase && Some(status.observed_generation) == policy.metadata.generation
        })
    })
    .await
}

/// Returns the number of calls of a policy once they satisfy a condition. The replicas report them
/// every few seconds.
pub(crate) async fn once_called(
    fixture: &Fixture,
    name: &str,
    is_so: impl Fn(&CallCounts) -> bool,
) -> Result<CallCounts, Failed> {
    let calls = |policy: &IPUPolicy| {
        let status = policy.status.as_ref();
        status.map(|status| status.calls).unwrap_or_default()
    };
    let what = format!("the IPUPolicy {name} to have been called");
    let policy = once(fixture, name, what, |policy| is_so(&calls(policy))).await?;
    Ok(calls(&policy))
}

async fn once(
    fixture: &Fixture,
    name: &str,
    what: String,
    is_so: impl Fn(&IPUPolicy) -> bool,
) -> Result<IPUPolicy, Failed> {
    let found = until(what, PATIENCE, || async {
        let policy = policies(fixture).get(name).await?;
        Ok::<_, kube::Error>(Seen::when(policy, &is_so))
    });
    Ok(found.await?)
}
