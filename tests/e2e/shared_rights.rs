//! `launcher.sharedRights=true`: the launchers of a namespace share one set of rights, which
//! outlives the setting.

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use harness::operator::NAMESPACE;
use libtest_mimic::Failed;

use crate::fixture::Fixture;
use crate::host_network::{changed, jobs_run_on_one_node};

/// Several jobs of Open MPI 4 and 5 run on the network of one node, where the agent needs most to
/// know. Then the policy is still there, and an admin deletes it.
pub(crate) fn suffice_for_jobs(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let values = ["worker.hostNetwork=true", "launcher.sharedRights=true"];
        changed(fixture, || fixture.release.upgrade(&values)).await?;
        let ran = AssertUnwindSafe(jobs_share(fixture)).catch_unwind().await;
        // The following trials expect rights for each job.
        changed(fixture, || fixture.release.install()).await?;
        ran.unwrap_or_else(|panic| resume_unwind(panic))?;
        fixture.clear().await?;
        let policy = format!("ipu-operator-launchers.{NAMESPACE}");
        let shared = [
            "delete",
            "rolebindings,roles,serviceaccounts",
            "ipu-launchers",
        ];
        fixture.kubectl(&shared).await?;
        for kind in ["policies", "policybindings"] {
            let kind = format!("validatingadmission{kind}");
            fixture.kubectl(&["delete", &kind, &policy]).await?;
        }
        Ok(())
    })
}

async fn jobs_share(fixture: &Fixture) -> Result<(), Failed> {
    jobs_run_on_one_node(fixture).await?;
    let account = "jsonpath={.spec.serviceAccountName}";
    let pod = ["get", "pod", "one-launcher", "--output", account];
    assert_eq!(fixture.kubectl(&pod).await?, "ipu-launchers");
    let own = ["get", "roles,rolebindings", "--output", "name"];
    let names = fixture.kubectl(&own).await?;
    assert!(!names.contains("one-launcher"), "{names}");
    Ok(())
}
