//! The guests of the previous release, which are active before an upgrade and decide after it.

use cluster::settings::checkout;
use harness::operator::NAMESPACE;
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use serde_json::json;
use tests::guests::released::{MODULES, REFUSED, Released, guests};

use crate::failing_pods::job;
use crate::fixture::Fixture;
use crate::pods::runs;
use crate::policies::{apply, once_active, once_called};

/// The job that they decide about.
const JOB: &str = "decided";

/// Activates an IPUPolicy with each of the guests.
pub(crate) async fn activate(fixture: &Fixture) -> Result<(), Failed> {
    let guests = released()?;
    let mut create = vec!["create", "configmap", MODULES, "--namespace", NAMESPACE];
    let files = guests.iter();
    let files = files.map(|guest| format!("--from-file={}={}", guest.key(), guest.file.display()));
    let files: Vec<String> = files.collect();
    create.extend(files.iter().map(String::as_str));
    fixture.kubectl(&create).await?;
    for guest in &guests {
        apply(fixture, guest.policy, guest.spec()).await?;
    }
    are_active(fixture, &guests).await
}

/// Checks that the guests decide about a job: it has their defaults, it is refused over the limit
/// of their settings, and its partition is where they have placed it.
pub(crate) async fn decide(fixture: &Fixture) -> Result<(), Failed> {
    let guests = released()?;
    are_active(fixture, &guests).await?;
    let waits = json!({"command": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"]});
    let mut job = job(JOB, json!({}), waits)?;
    fixture.create(&job).await?;
    job.metadata.name = Some("large".to_owned());
    job.spec.ipus_per_job_instance = 16.to_string();
    match fixture.create(&job).await {
        Err(kube::Error::Api(status)) if status.message.contains(REFUSED) => {}
        other => return Err(format!("a job of 16 IPUs: {other:?}").into()),
    }

    runs(fixture, &format!("{JOB}-worker-0"), None).await?;
    let spec = serde_json::to_value(fixture.job(JOB).await?.spec)?;
    assert_eq!(spec["cleanPodPolicy"], "None");
    let restarts = json!({"type": "Never", "backOffLimit": 3});
    assert_eq!(spec["restartPolicy"], restarts);
    let [.., placement] = &guests;
    let partitions = fixture.partitions().await?;
    let mut partitions = partitions.iter();
    let partition = partitions.find(|found| found.spec.owner.name == JOB);
    let status = partition.and_then(|found| found.status.as_ref());
    let attempt = status.and_then(|status| status.attempts.last());
    let by = attempt.and_then(|attempt| attempt.decided_by.as_ref());
    let by = by.ok_or("the partition does not name its policy")?;
    assert_eq!(by.policy, placement.policy);
    assert_eq!(by.digest.as_ref(), Some(&placement.digest));
    for guest in &guests {
        let called = once_called(fixture, guest.policy, |calls| calls.answered > 0);
        assert_eq!(called.await?.failed, 0, "{}", guest.policy);
    }

    let go = ["exec", "decided-worker-0", "--", "touch", "/tmp/go"];
    fixture.kubectl(&go).await?;
    fixture.once(JOB, JobState::Completed).await?;
    fixture.kubectl(&["delete", "ipujob", JOB]).await?;
    Ok(())
}

/// Deletes the policies and their modules, if they exist.
pub(crate) async fn delete(fixture: &Fixture) -> Result<(), Failed> {
    let guests = released()?;
    let mut policies = vec!["delete", "ipupolicy", "--ignore-not-found"];
    policies.extend(guests.iter().map(|guest| guest.policy));
    fixture.kubectl(&policies).await?;
    let modules = ["delete", "configmap", MODULES, "--ignore-not-found"];
    fixture
        .kubectl(&[&modules[..], &["--namespace", NAMESPACE]].concat())
        .await?;
    Ok(())
}

async fn are_active(fixture: &Fixture, guests: &[Released]) -> Result<(), Failed> {
    for guest in guests {
        once_active(fixture, guest.policy).await?;
    }
    Ok(())
}

fn released() -> Result<[Released; 3], Failed> {
    // The text of an error alone does not contain its causes.
    guests(checkout()).map_err(|error| format!("{error:#}").into())
}
