//! CustomResourceDefinitions as an admin applies them, and with a schema that accepts everything.

use cluster::definitions;
use cluster::wait::{Seen, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};

/// Applies a definition, and waits until the API server serves it. A change of a served definition
/// takes longer.
pub(crate) async fn define(client: &Client, definition: &CustomResourceDefinition) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    let force = PatchParams::apply("tests").force();
    api.patch(&name, &force, &Patch::Apply(definition))
        .await
        .unwrap();
    eventually("the CRD is served", async || {
        Seen::when(api.get(&name).await.unwrap(), definitions::is_served)
    })
    .await;
}

/// Returns the definition with a spec that accepts everything.
pub(crate) fn loose(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let schema = definition.spec.versions[0].schema.as_mut().unwrap();
    let schema = schema.open_api_v3_schema.as_mut().unwrap();
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties = None;
    spec.required = None;
    spec.x_kubernetes_validations = None;
    spec.x_kubernetes_preserve_unknown_fields = Some(true);
    definition
}
