//! Two hundred jobs on the real nodes, and an upgrade that replaces both of the operator's
//! processes under them.

use std::fs;
use std::time::Duration;

use cluster::wait::{Seen, until};
use futures::{StreamExt, TryStreamExt, stream};
use harness::operator::VIPU_NAMESPACE;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use kube::Api;
use kube::api::ListParams;
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};
use crate::release::{once_replaced, upgraded_under};
use crate::unaffected::Live;

/// Jobs of one Pod and one IPU each.
const JOBS: usize = 200;

/// Time limit until two nodes on a busy machine have started all Pods.
const LONG: Duration = Duration::from_mins(20);

/// Jobs that are submitted at the same time.
const AT_ONCE: usize = 8;

/// The list of V-IPU controllers with a third one, which both nodes reach.
const CONTROLLERS: &str = "global.vipuControllers={pod1.vipu:8090:ipunode=pod1,\
                           pod2.vipu:8090:ipunode=pod2,pod3.vipu:8090:kubernetes.io/os=linux}";

/// While `helm upgrade` and `helm rollback` replace both processes, no Pod is replaced or
/// restarted, no partition changes, and no event reports a problem.
pub(crate) fn is_not_disturbed_by_an_upgrade(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let manifest = third_controller(fixture)?;
        fixture.operated.kubectl.apply(manifest.path()).await?;
        let deployment = ["rollout", "status", "deployment/pod3", "--timeout=120s"];
        fixture
            .kubectl(&[&deployment[..], &["--namespace", VIPU_NAMESPACE]].concat())
            .await?;
        fixture.release.upgrade(&[CONTROLLERS])?;
        start(fixture).await?;
        let before = Live::now(fixture).await?;
        assert_eq!((before.pods.len(), before.partitions.len()), (JOBS, JOBS));

        let new = upgraded_under(fixture, &before).await?;
        let back = ["rollback", "ipu-operator", "--wait", "--timeout", "180s"];
        fixture.release.run(&back)?;
        once_replaced(fixture, &new, 3).await?;
        before.is_undisturbed_by(fixture, "helm rollback").await?;

        let all = ["delete", "ipujobs", "--all", "--timeout=600s"];
        fixture.kubectl(&all).await?;
        fixture.facts().nothing_in_the_api(LONG).await?;
        fixture.release.install()?;
        fixture.operated.kubectl.delete(manifest.path()).await?;
        Ok(())
    })
}

/// The second simulated controller of the examples again, larger and under another name.
fn third_controller(fixture: &Fixture) -> Result<tempfile::NamedTempFile, Failed> {
    let examples = fixture
        .operated
        .repository
        .join("examples/vipu-simulator.yaml");
    let text = fs::read_to_string(examples)?;
    let of_second = text
        .split("\n---\n")
        .filter(|part| part.contains("name: pod2\n"));
    let third: Vec<String> = of_second
        .map(|part| {
            part.replace("pod2", "pod3")
                .replace("--ipus=64", "--ipus=128")
        })
        .collect();
    assert_eq!(third.len(), 2, "a Service and a Deployment");
    let file = tempfile::NamedTempFile::with_suffix(".yaml")?;
    fs::write(file.path(), third.join("\n---\n"))?;
    Ok(file)
}

/// Submits all jobs, and waits until each runs.
async fn start(fixture: &Fixture) -> Result<(), Failed> {
    stream::iter(0..JOBS)
        .map(Ok::<_, Failed>)
        .try_for_each_concurrent(AT_ONCE, |number| async move {
            let mut job = fixture.example("06-inference.yaml")?;
            job.metadata.name = Some(format!("many-{number}"));
            let pod = &mut job.spec.workers.template.0["spec"];
            pod["terminationGracePeriodSeconds"] = json!(0);
            pod["containers"] = json!([{
                "name": "main",
                "image": "ipu-operator.local/openmpi:4",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
            }]);
            fixture.create(&job).await?;
            Ok(())
        })
        .await?;
    let jobs: Api<IPUJob> = Api::default_namespaced(fixture.operated.client.clone());
    until(format!("{JOBS} jobs to run"), LONG, || async {
        let found = jobs.list(&ListParams::default()).await?;
        let states = found.iter().filter_map(|job| job.status.as_ref());
        let running = states.filter(|status| status.launcher_status == JobState::Running);
        Ok::<_, kube::Error>(Seen::when(running.count(), |count| *count == JOBS))
    })
    .await?;
    until("every Pod to run", PATIENCE, || async {
        let live = Live::now(fixture).await.map_err(|failed| {
            failed
                .message()
                .unwrap_or("the API server did not answer")
                .to_owned()
        })?;
        Ok::<_, String>(Seen::when(live.running(), |count| *count == JOBS))
    })
    .await?;
    Ok(())
}
