//! IPUPolicies with values of a newer definition than this version of the operator reads.

use cluster::wait::{Seen, eventually};
use ipu_api::ipupolicy::{IPUPolicy, PolicyPhase};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::fixture::{Fixture, at_most};

/// Extends the definition as a newer version of the operator would: by a mode and a hook.
async fn upgrade_definition(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let patch: json_patch::Patch = serde_json::from_value(json!([
        {"op": "add", "path": format!("{spec}/mode/enum/-"), "value": "Audit"},
        {"op": "add", "path": format!("{spec}/hook/enum/-"), "value": "Preemption"},
    ]))
    .unwrap();
    let name = format!("{}.{}", IPUPolicy::plural(&()), IPUPolicy::group(&()));
    let params = PatchParams::default();
    let patch = Patch::Json::<()>(patch);
    definitions.patch(&name, &params, &patch).await.unwrap();
}

/// An admin of the newer version.
struct Admin(Api<DynamicObject>);

impl Admin {
    fn new(client: &Client) -> Self {
        let resource = ApiResource::erase::<IPUPolicy>(&());
        Self(Api::all_with(client.clone(), &resource))
    }

    /// Applies a spec, once the API server serves the newer definition.
    async fn apply(&self, name: &str, spec: &Value) {
        let policy = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUPolicy",
            "metadata": {"name": name}, "spec": spec,
        });
        let force = PatchParams::apply("an-admin").force();
        eventually("the newer value is accepted", async || {
            Seen::once_accepted(self.0.patch(name, &force, &Patch::Apply(&policy)).await)
        })
        .await;
    }

    /// Returns the message once the phase of the present generation is Refused.
    async fn once_refused(&self, name: &str) -> String {
        let what = format!("the IPUPolicy {name} is refused");
        let status = eventually(&what, async || {
            let policy = self.0.get(name).await.unwrap();
            let generation = policy.metadata.generation;
            Seen::when(policy.data["status"].clone(), |status| {
                status["phase"] == json!(PolicyPhase::Refused)
                    && status["observedGeneration"].as_i64() == generation
            })
        });
        status.await["message"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_cannot_be_read_is_a_missing_guest() {
    let fixture = Fixture::start().await;
    upgrade_definition(&fixture.client).await;
    let admin = Admin::new(&fixture.client);

    // The active version stays active.
    fixture.apply("small", at_most(4)).await.unwrap();
    fixture.once_in("small", PolicyPhase::Active).await;
    fixture.once_answered(8, Some("8")).await;
    let mut newer = at_most(16);
    newer["mode"] = json!("Audit");
    admin.apply("small", &newer).await;
    let message = admin.once_refused("small").await;
    for part in [
        "cannot read spec.mode",
        "`Audit`",
        "previous version stays active",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    fixture.once_answered(8, Some("8")).await;
    fixture.once_answered(4, None).await;

    // Without an active version, `onError` decides.
    for (on_error, words) in [("Fail", Some("cannot read spec.mode")), ("Ignore", None)] {
        newer["onError"] = json!(on_error);
        admin.apply("another", &newer).await;
        let message = admin.once_refused("another").await;
        assert!(message.contains("spec.onError decides"), "{message}");
        fixture.once_answered(2, words).await;
    }

    // A hook of a newer version is called by nothing.
    newer["hook"] = json!("Preemption");
    admin.apply("unknown", &newer).await;
    let message = admin.once_refused("unknown").await;
    assert!(message.contains("cannot read spec.hook"), "{message}");
    fixture.once_answered(2, None).await;
}
