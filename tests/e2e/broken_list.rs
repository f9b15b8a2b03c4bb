//! A typing error in the admin's list of V-IPU controllers.

use cluster::wait::{Seen, until};
use harness::demo::KubectlError;
use harness::operator::NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use libtest_mimic::Failed;
use serde_json::json;

use crate::fixture::{Fixture, PATIENCE};

/// The log quotes the bad line, and the operator keeps serving with the valid lines.
pub(crate) fn the_rest_goes_on(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let maps: Api<ConfigMap> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
        let name = "ipu-operator-vipu-controllers";
        let before = maps.get(name).await?.data.unwrap_or_default();
        let good = before.get("controllers.yaml").cloned().unwrap_or_default();
        set(
            &maps,
            name,
            &format!("pod9:not-a-port:ipunode=pod9\n{good}"),
        )
        .await?;
        let log = [
            "logs",
            "--namespace",
            NAMESPACE,
            "--selector=app.kubernetes.io/component=vipu-proxy",
            "--tail=-1",
        ];
        until("the log to name the bad line", PATIENCE, || async {
            let log = fixture.operated.kubectl.run(&log).await?;
            Ok::<_, KubectlError>(if log.contains("not-a-port") {
                Seen::Yes(())
            } else {
                Seen::NotYet("no line of the log names it".to_owned())
            })
        })
        .await?;
        let job = fixture.apply("01-single-worker.yaml").await?;
        fixture.facts().completed(&job, PATIENCE).await?;
        set(&maps, name, &good).await?;
        fixture
            .delete_and_leave_nothing("01-single-worker.yaml")
            .await
    })
}

async fn set(maps: &Api<ConfigMap>, name: &str, list: &str) -> Result<(), kube::Error> {
    let patch = Patch::Merge(json!({"data": {"controllers.yaml": list}}));
    maps.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}
