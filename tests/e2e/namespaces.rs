//! Namespaces with limits, and with Pod Security.

use cluster::images::openmpi::OpenMpi;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::LimitRange;
use kube::Api;
use kube::api::PostParams;
use libtest_mimic::Failed;
use serde_json::json;

use crate::failing_pods::job;
use crate::fixture::Fixture;

/// A LimitRange sets default limits on every container of a job, including the operator's, and
/// refuses a worker that exceeds its maximum.
pub(crate) fn limit_range_is_kept(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let limits = json!({"metadata": {"name": "small"}, "spec": {"limits": [{
            "type": "Container", "max": {"memory": "256Mi"}, "default": {"memory": "256Mi"},
            "defaultRequest": {"memory": "32Mi"},
        }]}});
        let ranges: Api<LimitRange> = Api::default_namespaced(fixture.operated.client.clone());
        ranges
            .create(&PostParams::default(), &serde_json::from_value(limits)?)
            .await?;
        let large = json!({"resources": {"limits": {"memory": "512Mi"}}});
        fixture.create(&job("large", json!({}), large)?).await?;
        let refused = [
            "the API server refused Pod large-worker-0",
            "maximum memory usage per Container is 256Mi, but limit is 512Mi",
        ];
        fixture.described("large", &refused).await?;
        fixture.create(&parallel(fixture, 0)?).await?;
        fixture.once("parallel", JobState::Completed).await?;
        fixture.clear().await
    })
}

/// Pod Security `baseline` refuses a template that shares the network of its node, and the job
/// reports it. It accepts a parallel job as in the examples.
pub(crate) fn baseline_accepts_a_parallel_job(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        enforce(fixture, "baseline").await?;
        let shares = json!({"hostNetwork": true});
        fixture.create(&job("shares", shares, json!({}))?).await?;
        let refused = [
            "the API server refused Pod shares-worker-0",
            "violates PodSecurity \"baseline:latest\"",
            "hostNetwork=true",
        ];
        fixture.described("shares", &refused).await?;
        fixture.create(&parallel(fixture, 0)?).await?;
        fixture.once("parallel", JobState::Completed).await?;
        fixture.clear().await
    })
}

/// Pod Security `restricted` refuses a template without the required fields, and the job names
/// them. It accepts a template with them, including the launcher and the operator's own containers.
pub(crate) fn restricted_accepts_a_job_with_the_required_fields(
    fixture: &Fixture,
) -> Result<(), Failed> {
    fixture.block_on(async {
        enforce(fixture, "restricted").await?;
        fixture.create(&job("plain", json!({}), json!({}))?).await?;
        let refused = [
            "the API server refused Pod plain-worker-0",
            "violates PodSecurity \"restricted:latest\"",
            "securityContext.runAsNonRoot=true",
        ];
        fixture.described("plain", &refused).await?;
        let mut job = parallel(fixture, 1000)?;
        let pod = &mut job.spec.workers.template.0["spec"];
        pod["securityContext"]["runAsNonRoot"] = true.into();
        pod["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
        pod["containers"][0]["securityContext"] = json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        });
        fixture.create(&job).await?;
        fixture.once("parallel", JobState::Completed).await?;
        fixture.clear().await
    })
}

/// Sets the level of Pod Security of the trial's namespace.
async fn enforce(fixture: &Fixture, level: &str) -> Result<(), Failed> {
    let label = format!("pod-security.kubernetes.io/enforce={level}");
    let label = ["label", "namespace", &fixture.namespace, &label];
    fixture.kubectl(&label).await?;
    Ok(())
}

/// A parallel job of two workers whose ranks end at once.
fn parallel(fixture: &Fixture, user: i64) -> Result<IPUJob, Failed> {
    let command = ["mpirun", "-np", "2", "--bind-to", "none", "true"];
    fixture.parallel(OpenMpi::Four, user, &command)
}
