//! An upgrade from the previous release, and a rollback to it with its CRDs, while jobs of both
//! versions run.

use std::collections::BTreeSet;

use cluster::images::Image;
use cluster::lifecycle;
use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use harness::operator::NAMESPACE;
use harness::operator::helm::Release;
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use release::package::Unpacked;
use release::package::previous::Previous;
use serde_json::json;
use tests::described::COMPLETED;

use crate::described::once_described;
use crate::failing_pods::job;
use crate::fixture::{Fixture, PATIENCE};
use crate::pods::runs;
use crate::release::{SERVICE, end_the_ranks, once_replaced, operators_pods, start_jobs};
use crate::unaffected::Live;

/// A job that this version starts before the rollback.
const NEWER: &str = "newer";

/// Jobs of the previous release run through the upgrade to this version, the rollback, and the
/// second upgrade, and this version completes them. The previous release completes a job of this
/// version.
pub(crate) fn from_the_previous_release(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let previous = Previous::locked(&fixture.settings.checkout)?;
        let package = previous.ensure(&fixture.settings, &fixture.progress);
        // The text of an error alone does not contain its causes.
        let package = package.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
        let package = package.unpack(&fixture.settings.run.join("package-before"))?;
        fixture.release.run(&["uninstall", NAMESPACE, "--wait"])?;
        let upgraded = upgrade(fixture, &previous.version, package).await;
        if upgraded.is_err() {
            // The following trials need this version.
            apply_definitions(fixture, &fixture.release).await?;
            fixture.release.install()?;
        }
        upgraded
    })
}

async fn upgrade(fixture: &Fixture, version: &str, package: Unpacked) -> Result<(), Failed> {
    let image = Image {
        name: package.image_name(),
        archive: package.image(),
        digest: String::new(),
    };
    lifecycle::import(&fixture.settings.run, &fixture.tools, &[image])?;
    let older = fixture.release.from(package);
    apply_definitions(fixture, &older).await?;
    older.install()?;
    is_of_version(fixture, version).await?;
    start_jobs(fixture).await?;
    let before = Live::now(fixture).await?;
    let old = operators_pods(fixture).await?;

    apply_definitions(fixture, &fixture.release).await?;
    fixture.release.upgrade(&[])?;
    let new = once_replaced(fixture, &old, old.len()).await?;
    before.is_undisturbed_by(fixture, "the upgrade").await?;

    let old = roll_back(fixture, &older, version, &new).await?;
    before
        .is_undisturbed_by(fixture, "the time of the older release")
        .await?;

    apply_definitions(fixture, &fixture.release).await?;
    fixture.release.upgrade(&[])?;
    once_replaced(fixture, &old, old.len()).await?;
    before
        .is_undisturbed_by(fixture, "the second upgrade")
        .await?;
    end_the_ranks(fixture).await?;
    fixture.once("parallel", JobState::Completed).await?;
    before
        .of_job(SERVICE)
        .is_undisturbed_by(fixture, "the end of the other job")
        .await?;
    fixture.kubectl(&["delete", "ipujob", "parallel"]).await?;
    fixture.delete_and_leave_nothing("06-inference.yaml").await
}

/// Rolls back to the previous release and its CRDs while jobs run, one of them of this version. The
/// previous release completes that one, releases its partition and runs a new job. Returns the UIDs
/// of the operator's Pods.
async fn roll_back(
    fixture: &Fixture,
    older: &Release,
    version: &str,
    new: &BTreeSet<String>,
) -> Result<BTreeSet<String>, Failed> {
    let waits = json!({"command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"]});
    fixture.create(&job(NEWER, json!({}), waits)?).await?;
    runs(fixture, "newer-worker-0", None).await?;
    fixture.once(NEWER, JobState::Running).await?;
    let before = Live::now(fixture).await?;
    let specs = specs(fixture).await?;

    let back = ["rollback", NAMESPACE, "--wait", "--timeout", "180s"];
    fixture.release.run(&back)?;
    let old = once_replaced(fixture, new, new.len()).await?;
    is_of_version(fixture, version).await?;
    before.is_undisturbed_by(fixture, "the rollback").await?;
    apply_definitions(fixture, older).await?;
    assert_eq!(
        self::specs(fixture).await?,
        specs,
        "the older CRDs lost fields"
    );

    fixture
        .kubectl(&["exec", "newer-worker-0", "--", "touch", "/tmp/go"])
        .await?;
    fixture.once(NEWER, JobState::Completed).await?;
    once_released(fixture, NEWER).await?;
    once_described(fixture, NEWER, &COMPLETED).await?;
    fixture.create(&job("later", json!({}), json!({}))?).await?;
    fixture.once("later", JobState::Completed).await?;
    once_released(fixture, "later").await?;
    fixture
        .kubectl(&["delete", "ipujob", NEWER, "later"])
        .await?;
    Ok(old)
}

/// Waits until the partition of a job is released.
async fn once_released(fixture: &Fixture, job: &str) -> Result<(), Failed> {
    let what = format!("the partition of {job} to be released");
    until(what, PATIENCE, || async {
        let partitions = fixture.partitions().await?.into_iter();
        let owners: Vec<String> = partitions.map(|found| found.spec.owner.name).collect();
        Ok::<_, kube::Error>(Seen::when(owners, |owners| {
            !owners.iter().any(|one| one == job)
        }))
    })
    .await?;
    Ok(())
}

/// Returns the name and the spec of every object, as the API server returns it under the current
/// CRDs. The spec of an IPUAccounting changes by itself.
async fn specs(fixture: &Fixture) -> Result<String, KubectlError> {
    let each = r#"--output=jsonpath={range .items[*]}{.kind} {.metadata.name}: {.spec}{"\n"}{end}"#;
    let kinds = "ipujobs,ipupartitions,ipupolicies,vipucontrollers";
    fixture
        .kubectl(&["get", kinds, "--all-namespaces", each])
        .await
}

/// Users apply the CRDs themselves, because Helm does not update existing ones.
async fn apply_definitions(fixture: &Fixture, release: &Release) -> Result<(), Failed> {
    let folder = release.definitions().display().to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"];
    fixture.kubectl(&[&apply[..], &[&folder]].concat()).await?;
    Ok(())
}

/// The Pods of both processes run the image of this version.
async fn is_of_version(fixture: &Fixture, version: &str) -> Result<(), Failed> {
    let images = "--output=jsonpath={.items[*].spec.template.spec.containers[*].image}";
    let ask = ["get", "deployments", "--namespace", NAMESPACE, images];
    let images = fixture.kubectl(&ask).await?;
    let tag = format!(":{version}");
    let is_older = |image: &str| image.ends_with(&tag);
    if images.split_whitespace().all(is_older) {
        return Ok(());
    }
    Err(format!("the release is of {version}, and its Pods run {images}").into())
}
