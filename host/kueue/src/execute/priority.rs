//! Reads the priority of a queued job.

use ipu_api::queueing::{GROUP, VERSION};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use super::{RequestError, failed_to};
use crate::build::Priority;
use crate::job::QueuedJob;

/// Reads the priority of a job: that of its WorkloadPriorityClass, of its Pods' PriorityClass, or
/// the default.
pub(super) async fn priority(client: &Client, job: &QueuedJob) -> Result<Priority, RequestError> {
    if let Some(name) = &job.priority_class {
        let kind = ApiResource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "WorkloadPriorityClass".to_owned(),
            plural: "workloadpriorityclasses".to_owned(),
        };
        let classes: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let class = classes.get(name).await;
        let class = class.map_err(failed_to("read the WorkloadPriorityClass of the IPUJob"))?;
        return Ok(Priority {
            class: Some(json!({"group": kind.group, "kind": kind.kind, "name": name})),
            value: value_of(&class.data),
        });
    }
    let classes: Api<PriorityClass> = Api::all(client.clone());
    let action = "read the PriorityClass of the IPUJob";
    let name = job
        .pod_sets
        .iter()
        .find_map(|set| set.template.pointer("/spec/priorityClassName"));
    let name = name.and_then(Value::as_str).filter(|name| !name.is_empty());
    let class = if let Some(name) = name {
        Some(classes.get(name).await.map_err(failed_to(action))?)
    } else {
        let all = classes
            .list(&ListParams::default())
            .await
            .map_err(failed_to(action))?;
        all.items
            .into_iter()
            .find(|class| class.global_default == Some(true))
    };
    let Some(class) = class else {
        return Ok(Priority::default());
    };
    let name = class.metadata.name.unwrap_or_default();
    Ok(Priority {
        class: Some(json!({"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name})),
        value: class.value.unwrap_or_default(),
    })
}

fn value_of(class: &Value) -> i32 {
    let value = class.get("value").and_then(Value::as_i64);
    value
        .and_then(|value| i32::try_from(value).ok())
        .unwrap_or(0)
}
