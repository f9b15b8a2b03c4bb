//! An upgrade from the release before, and a rollback to it with its CRDs, while jobs run that both operators started.

use std::collections::BTreeSet;

use cluster::images::Image;
use cluster::lifecycle;
use cluster::wait::{Seen, until};
use ipu_api::ipujob_status::JobState;
use lab::demo::KubectlError;
use lab::operator::NAMESPACE;
use lab::operator::helm::Release;
use libtest_mimic::Failed;
use release::package::Package;
use serde_json::json;
use tests::described::COMPLETED;

use crate::described::once_described;
use crate::failing_pods::job;
use crate::pods::runs;
use crate::release::{SERVICE, end_the_ranks, once_replaced, operators_pods, start_jobs};
use crate::scene::{PATIENCE, Scene};
use crate::undisturbed::Live;

/// The release before this version.
const BEFORE: &str = "0.1.0";

/// A job that this version starts before the rollback.
const NEWER: &str = "newer";

/// Jobs that the release before started run on through the upgrade to this version, the rollback, and the
/// second upgrade, and this version completes them. The release before completes a job that this version started.
pub(crate) fn from_the_release_before(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        scene.release.run(&["uninstall", NAMESPACE, "--wait"])?;
        let upgraded = upgrade(scene).await;
        if upgraded.is_err() {
            // The trials after this one need the present version.
            apply_definitions(scene, &scene.release).await?;
            scene.release.install()?;
        }
        upgraded
    })
}

async fn upgrade(scene: &Scene) -> Result<(), Failed> {
    let package = Package::kept(&scene.settings, BEFORE);
    let package = package.unpack(&scene.settings.run.join("package-before"))?;
    let image = Image {
        name: package.image_name(),
        archive: package.image(),
        digest: String::new(),
    };
    lifecycle::import(&scene.settings.run, &scene.tools, &[image])?;
    let older = scene.release.from(package);
    apply_definitions(scene, &older).await?;
    older.install()?;
    is_of_version(scene, BEFORE).await?;
    start_jobs(scene).await?;
    let before = Live::now(scene).await?;
    let old = operators_pods(scene).await?;

    apply_definitions(scene, &scene.release).await?;
    scene.release.upgrade(&[])?;
    let new = once_replaced(scene, &old, old.len()).await?;
    before.is_undisturbed_by(scene, "the upgrade").await?;

    let old = roll_back(scene, &older, &new).await?;
    before
        .is_undisturbed_by(scene, "the time of the older release")
        .await?;

    apply_definitions(scene, &scene.release).await?;
    scene.release.upgrade(&[])?;
    once_replaced(scene, &old, old.len()).await?;
    before
        .is_undisturbed_by(scene, "the second upgrade")
        .await?;
    end_the_ranks(scene).await?;
    scene.once("parallel", JobState::Completed).await?;
    before
        .of_job(SERVICE)
        .is_undisturbed_by(scene, "the end of the other job")
        .await?;
    scene.kubectl(&["delete", "ipujob", "parallel"]).await?;
    scene.delete_and_leave_nothing("06-inference.yaml").await
}

/// Puts the release before and its CRDs back while jobs run, of which this version started one. That one is completed by
/// the older operator, which releases its partition and runs a new job. Returns the UIDs of the operator's Pods.
async fn roll_back(
    scene: &Scene,
    older: &Release,
    new: &BTreeSet<String>,
) -> Result<BTreeSet<String>, Failed> {
    let waits = json!({"command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"]});
    scene.create(&job(NEWER, json!({}), waits)?).await?;
    runs(scene, "newer-worker-0", None).await?;
    scene.once(NEWER, JobState::Running).await?;
    let before = Live::now(scene).await?;
    let specs = specs(scene).await?;

    let back = ["rollback", NAMESPACE, "--wait", "--timeout", "180s"];
    scene.release.run(&back)?;
    let old = once_replaced(scene, new, new.len()).await?;
    is_of_version(scene, BEFORE).await?;
    before.is_undisturbed_by(scene, "the rollback").await?;
    apply_definitions(scene, older).await?;
    assert_eq!(
        self::specs(scene).await?,
        specs,
        "the older CRDs lost fields"
    );

    scene
        .kubectl(&["exec", "newer-worker-0", "--", "touch", "/tmp/go"])
        .await?;
    scene.once(NEWER, JobState::Completed).await?;
    once_released(scene, NEWER).await?;
    once_described(scene, NEWER, &COMPLETED).await?;
    scene.create(&job("later", json!({}), json!({}))?).await?;
    scene.once("later", JobState::Completed).await?;
    once_released(scene, "later").await?;
    scene.kubectl(&["delete", "ipujob", NEWER, "later"]).await?;
    Ok(old)
}

/// Waits until the partition of a job is released.
async fn once_released(scene: &Scene, job: &str) -> Result<(), Failed> {
    let what = format!("the partition of {job} to be released");
    until(what, PATIENCE, || async {
        let partitions = scene.partitions().await?.into_iter();
        let owners: Vec<String> = partitions.map(|found| found.spec.owner.name).collect();
        Ok::<_, kube::Error>(Seen::when(owners, |owners| {
            !owners.iter().any(|one| one == job)
        }))
    })
    .await?;
    Ok(())
}

/// The name and the spec of every object, as the API server reads it under the CRDs of the moment.
async fn specs(scene: &Scene) -> Result<String, KubectlError> {
    let each = r#"--output=jsonpath={range .items[*]}{.kind} {.metadata.name}: {.spec}{"\n"}{end}"#;
    let kinds = "ipujobs,ipupartitions,ipupolicies";
    scene
        .kubectl(&["get", kinds, "--all-namespaces", each])
        .await
}

/// Users apply the CRDs themselves: Helm leaves those that are there as they are.
async fn apply_definitions(scene: &Scene, release: &Release) -> Result<(), Failed> {
    let folder = release.definitions().display().to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename"];
    scene.kubectl(&[&apply[..], &[&folder]].concat()).await?;
    Ok(())
}

/// The Pods of both processes run the image of this version.
async fn is_of_version(scene: &Scene, version: &str) -> Result<(), Failed> {
    let images = "--output=jsonpath={.items[*].spec.template.spec.containers[*].image}";
    let ask = ["get", "deployments", "--namespace", NAMESPACE, images];
    let images = scene.kubectl(&ask).await?;
    let tag = format!(":{version}");
    let is_older = |image: &str| image.ends_with(&tag);
    if images.split_whitespace().all(is_older) {
        return Ok(());
    }
    Err(format!("the release is of {version}, and its Pods run {images}").into())
}
