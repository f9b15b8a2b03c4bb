//! Reports an unreadable IPUPartition: the field, the reason and the remedy.

use ipu_api::ipupartition::IPUPartition;
use ipu_runtime::api_client;
use ipu_runtime::trimmed::Trimmed;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;

use super::events;
use crate::leader::Context;
use crate::store::Guarded;

/// Logs the problem of the object and writes an event. `error` comes from the watch and names no
/// field, so this reads the object again.
pub(crate) async fn report(context: &Context, object: &Guarded, error: &str) {
    let name = object.name_any();
    let kind = ApiResource::erase::<IPUPartition>(&());
    let api = Api::<Trimmed<DynamicObject>>::all_with(context.client.clone(), &kind);
    let problem = match api_client::with_timeout(api.get_opt(&name)).await {
        Ok(Some(Trimmed(found))) => problem(&found),
        // It is gone or readable meanwhile; the watch reports this, too.
        Ok(None) => None,
        Err(_) => Some(format!("it cannot be read: {error}")),
    };
    let Some(problem) = problem else {
        return;
    };
    tracing::error!(partition = name, problem, "left alone");
    context.publish(object, events::of_unreadable(&problem));
}

/// The unreadable field, and the reason. `None`: the object is readable.
fn problem(object: &DynamicObject) -> Option<String> {
    let value = serde_json::to_value(object).ok()?;
    let error = serde_path_to_error::deserialize::<_, IPUPartition>(&value).err()?;
    Some(format!(
        "{} cannot be read: {}",
        error.path(),
        error.inner()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_field_is_named() {
        let object = |ipus| {
            let owner = json!({
                "apiVersion": "example.com/v1", "kind": "Notebook", "namespace": "default",
                "name": "mine", "uid": "1",
            });
            serde_json::from_value::<DynamicObject>(json!({
                "apiVersion": "graphcore.ai/v1alpha1",
                "kind": "IPUPartition",
                "metadata": {"name": "wanted"},
                "spec": {"owner": owner, "slot": 0, "ipus": ipus, "gcds": 1},
            }))
            .unwrap()
        };
        assert_eq!(problem(&object(json!(4))), None);
        let said = problem(&object(json!("four"))).unwrap();
        assert!(said.starts_with("spec.ipus cannot be read: "), "{said}");
    }
}
