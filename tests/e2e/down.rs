//! A V-IPU controller that does not respond: jobs that fit elsewhere run, and the others wait and name the reason.

use cluster::wait::{Seen, until};
use ipu_api::ipujob::IPUJob;
use kube::Api;
use libtest_mimic::Failed;

use crate::fixture::{Fixture, PATIENCE};

/// The first controller is down. The second one serves a job that would fit on the first.
pub(crate) fn goes_elsewhere(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (first, second) = fixture.controllers();
        fixture.order(first, r#"{"down":"refuse"}"#).await?;
        let job = fixture.apply("01-single-worker.yaml").await?;
        let (controller, node) = fixture.facts().placed(&job, PATIENCE).await?;
        assert_eq!(
            (controller, node),
            (second.address.clone(), second.node.clone())
        );
        fixture.facts().completed(&job, PATIENCE).await?;
        fixture.clear_orders(first).await?;
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

/// The first controller is too small for the job and the second is down: the job's status names both and the reasons,
/// and the job completes once the second is back.
pub(crate) fn waits_and_says_why(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let (first, second) = fixture.controllers();
        fixture.order(second, r#"{"down":"refuse"}"#).await?;
        let job = fixture.apply("03-large.yaml").await?;
        let jobs: Api<IPUJob> = Api::namespaced(fixture.operated.client.clone(), &job.namespace);
        until("the status to name both controllers", PATIENCE, || async {
            let status = jobs.get(&job.name).await?.status.unwrap_or_default();
            let reasons: Vec<&str> = status
                .conditions
                .iter()
                .map(|condition| condition.message.as_str())
                .collect();
            let reasons = reasons.join(" | ");
            let named = [&first.address, &second.address];
            Ok::<_, kube::Error>(Seen::when(reasons, |reasons| {
                named.iter().all(|name| reasons.contains(*name))
            }))
        })
        .await?;
        fixture.clear_orders(second).await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        fixture.delete_and_leave_nothing("03-large.yaml").await
    })
}
