//! Namespaces with limits, and with Pod Security.

use cluster::images::openmpi::OpenMpi;
use cluster::wait::{Seen, until};
use ipu_api::ipujob::IPUJob;
use ipu_api::ipujob_status::JobState;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Pod};
use kube::Api;
use kube::api::PostParams;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::failing_pods::job;
use crate::fixture::{Fixture, PATIENCE};

/// A LimitRange sets default limits on every container of a job, including the operator's, and refuses a worker that
/// exceeds its maximum.
pub(crate) fn limit_range_is_kept(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let limits = json!({"metadata": {"name": "small"}, "spec": {"limits": [{
            "type": "Container", "max": {"memory": "256Mi"}, "default": {"memory": "256Mi"},
            "defaultRequest": {"memory": "32Mi"},
        }]}});
        let namespace = Ruled::make(fixture, "limits", json!({})).await?;
        let ranges: Api<LimitRange> = namespace.api(fixture);
        ranges
            .create(&PostParams::default(), &serde_json::from_value(limits)?)
            .await?;
        let large = json!({"resources": {"limits": {"memory": "512Mi"}}});
        namespace
            .create(fixture, &job("large", json!({}), large)?)
            .await?;
        let refused = [
            "the API server refused Pod large-worker-0",
            "maximum memory usage per Container is 256Mi, but limit is 512Mi",
        ];
        namespace.described(fixture, "large", &refused).await?;
        namespace.create(fixture, &parallel(fixture, 0)?).await?;
        namespace
            .once(fixture, "parallel", JobState::Completed)
            .await?;
        namespace.remove(fixture).await
    })
}

/// Pod Security `baseline` refuses a template that shares the network of its node, and the job reports it. It accepts a
/// parallel job as in the examples.
pub(crate) fn baseline_accepts_a_parallel_job(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let namespace = Ruled::make(fixture, "baseline", enforce("baseline")).await?;
        let shares = json!({"hostNetwork": true});
        namespace
            .create(fixture, &job("shares", shares, json!({}))?)
            .await?;
        let refused = [
            "the API server refused Pod shares-worker-0",
            "violates PodSecurity \"baseline:latest\"",
            "hostNetwork=true",
        ];
        namespace.described(fixture, "shares", &refused).await?;
        namespace.create(fixture, &parallel(fixture, 0)?).await?;
        namespace
            .once(fixture, "parallel", JobState::Completed)
            .await?;
        namespace.remove(fixture).await
    })
}

/// Pod Security `restricted` refuses a template without the required fields, and the job names them. It accepts a
/// template with them, including the launcher and the operator's own containers.
pub(crate) fn restricted_accepts_a_job_with_the_required_fields(
    fixture: &Fixture,
) -> Result<(), Failed> {
    fixture.block_on(async {
        let namespace = Ruled::make(fixture, "restricted", enforce("restricted")).await?;
        namespace
            .create(fixture, &job("plain", json!({}), json!({}))?)
            .await?;
        let refused = [
            "the API server refused Pod plain-worker-0",
            "violates PodSecurity \"restricted:latest\"",
            "securityContext.runAsNonRoot=true",
        ];
        namespace.described(fixture, "plain", &refused).await?;
        let mut job = parallel(fixture, 1000)?;
        let pod = &mut job.spec.workers.template.0["spec"];
        pod["securityContext"]["runAsNonRoot"] = true.into();
        pod["securityContext"]["seccompProfile"] = json!({"type": "RuntimeDefault"});
        pod["containers"][0]["securityContext"] = json!({
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        });
        namespace.create(fixture, &job).await?;
        namespace
            .once(fixture, "parallel", JobState::Completed)
            .await?;
        namespace.remove(fixture).await
    })
}

fn enforce(level: &str) -> Value {
    json!({"pod-security.kubernetes.io/enforce": level})
}

/// A parallel job of two workers whose ranks end at once.
fn parallel(fixture: &Fixture, user: i64) -> Result<IPUJob, Failed> {
    let command = ["mpirun", "-np", "2", "--bind-to", "none", "true"];
    fixture.parallel(OpenMpi::Four, user, &command)
}

/// A namespace with rules.
struct Ruled(&'static str);

impl Ruled {
    async fn make(fixture: &Fixture, name: &'static str, labels: Value) -> Result<Self, Failed> {
        let namespaces: Api<Namespace> = Api::all(fixture.operated.client.clone());
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace = serde_json::from_value(namespace)?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        Ok(Self(name))
    }

    fn api<K>(&self, fixture: &Fixture) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(fixture.operated.client.clone(), self.0)
    }

    async fn create(&self, fixture: &Fixture, job: &IPUJob) -> Result<(), Failed> {
        self.api(fixture)
            .create(&PostParams::default(), job)
            .await?;
        Ok(())
    }

    async fn described(&self, fixture: &Fixture, job: &str, words: &[&str]) -> Result<(), Failed> {
        fixture.described_in(self.0, job, words).await?;
        Ok(())
    }

    async fn once(&self, fixture: &Fixture, name: &str, state: JobState) -> Result<(), Failed> {
        let jobs: Api<IPUJob> = self.api(fixture);
        let pods: Api<Pod> = self.api(fixture);
        let what = format!("{name} in {} to be {state:?}", self.0);
        until(what, PATIENCE, || async {
            let status = jobs.get(name).await?.status.unwrap_or_default();
            if status.launcher_status == state {
                return Ok::<_, kube::Error>(Seen::Yes(()));
            }
            let pods = pods.list(&Default::default()).await?.items.len();
            let said = status.last_message;
            let seen = format!("{:?}, {pods} Pods: {said}", status.launcher_status);
            Ok(Seen::NotYet(seen))
        })
        .await?;
        Ok(())
    }

    async fn remove(self, fixture: &Fixture) -> Result<(), Failed> {
        fixture.clear(self.0).await?;
        fixture.kubectl(&["delete", "namespace", self.0]).await?;
        Ok(())
    }
}
