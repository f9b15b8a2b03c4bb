//! Pure: gives the workers of a job a network of the release: its interface, its RDMA device, and
//! the right to pin memory.
//!
//! The template gets an annotation that names the network, so that an update of the job keeps it,
//! and the operator knows that the launcher gets no second interface. A template with networks of
//! its own stays as its user wrote it.

mod settings;
#[cfg(test)]
mod tests;

use guest_sdk::types::Violation;
use serde_json::{Map, Value, json};

pub use self::settings::{Preset, Settings};

/// Annotation on an IPUJob: the network of its workers. The guest writes it into the template that
/// it has completed.
pub const NETWORK_ANNOTATION: &str = "graphcore.ai/network";

/// Annotation of a Pod: the NetworkAttachmentDefinitions from which Multus makes interfaces.
pub const ATTACHMENTS_ANNOTATION: &str = "k8s.v1.cni.cncf.io/networks";

/// Value of [`NETWORK_ANNOTATION`] for workers without a network of the release.
pub const NONE: &str = "none";

/// The capability to pin memory, which RDMA does.
const IPC_LOCK: &str = "IPC_LOCK";

/// Completes the template of an IPUJob, if its workers use a network of the release. `old` is the
/// job before an update.
///
/// The error refuses the job.
pub fn apply(
    mut object: Value,
    old: Option<&Value>,
    settings: &Settings,
) -> Result<Value, Violation> {
    let is_written = |template: &Value| annotation(template, NETWORK_ANNOTATION).is_some();
    let template = object.pointer("/spec/workers/template");
    let has_own = template.is_some_and(|template| {
        annotation(template, ATTACHMENTS_ANNOTATION).is_some() && !is_written(template)
    });
    let shares_node =
        template.is_some_and(|template| template["spec"]["hostNetwork"] == json!(true));
    let Some(name) = wanted(&object, old, settings) else {
        return Ok(object);
    };
    let Some(preset) = settings.networks.get(&name) else {
        // A job that exists keeps working when its network leaves the values.
        return old.map_or_else(|| Err(unknown(&name, settings)), |_| Ok(object));
    };
    if has_own || shares_node {
        return Ok(object);
    }
    if let Some(template) = object.pointer_mut("/spec/workers/template") {
        complete(template, &name, preset);
    }
    Ok(object)
}

/// Returns the name of the network that the template needs. A template that exists gets none,
/// because that would change the Pods of a running job.
fn wanted(object: &Value, old: Option<&Value>, settings: &Settings) -> Option<String> {
    let named = match old.map(|old| old.pointer("/spec/workers/template")) {
        Some(template) => template.and_then(|template| annotation(template, NETWORK_ANNOTATION)),
        None => annotation(object, NETWORK_ANNOTATION).or(settings.worker_network.as_deref()),
    };
    named.filter(|name| *name != NONE).map(ToOwned::to_owned)
}

fn unknown(name: &str, settings: &Settings) -> Violation {
    let names = settings.networks.keys().map(String::as_str);
    let names: Vec<&str> = names.chain([NONE]).collect();
    Violation {
        field: format!("metadata.annotations[{NETWORK_ANNOTATION}]"),
        message: format!(
            "{name:?} is no network of the operator's release; use one of: {}",
            names.join(", ")
        ),
    }
}

/// Returns an annotation of an object or of a template.
fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(key)?
        .as_str()
}

/// Adds what is missing to a template. A part of another type than the API's stays for the schema.
fn complete(template: &mut Value, name: &str, preset: &Preset) {
    let Some(first) = template.pointer_mut("/spec/containers/0") else {
        return;
    };
    add_resource(first, &preset.resource);
    add_capability(first);
    let Some(annotations) =
        child(template, "metadata").and_then(|metadata| object(metadata, "annotations"))
    else {
        return;
    };
    for (key, value) in [
        (ATTACHMENTS_ANNOTATION, preset.attachment.as_str()),
        (NETWORK_ANNOTATION, name),
    ] {
        annotations.entry(key).or_insert_with(|| json!(value));
    }
}

/// Requests one device, if the container does not name the resource itself.
fn add_resource(container: &mut Value, resource: &str) {
    let names_it = ["limits", "requests"]
        .iter()
        .any(|list| !container["resources"][list][resource].is_null());
    if names_it || resource.is_empty() {
        return;
    }
    if let Some(resources) = child(container, "resources") {
        for list in ["limits", "requests"] {
            if let Some(list) = object(resources, list) {
                list.insert(resource.to_owned(), json!("1"));
            }
        }
    }
}

/// Adds the right to pin memory, if the container has it not yet and does not give it away.
fn add_capability(container: &mut Value) {
    let context = &container["securityContext"];
    let names = |list: &str, known: &[&str]| {
        let capabilities = context["capabilities"][list].as_array();
        capabilities.is_some_and(|capabilities| {
            let mut names = capabilities.iter().filter_map(Value::as_str);
            names.any(|name| known.contains(&name))
        })
    };
    let of_one = [IPC_LOCK, "CAP_IPC_LOCK"];
    let has_it = names("add", &of_one) || names("add", &["ALL"]);
    if has_it || names("drop", &of_one) || context["privileged"] == json!(true) {
        return;
    }
    let capabilities =
        child(container, "securityContext").and_then(|context| object(context, "capabilities"));
    if let Some(capabilities) = capabilities {
        let add = capabilities.entry("add").or_insert(Value::Null);
        if add.is_null() {
            *add = json!([]);
        }
        if let Some(add) = add.as_array_mut() {
            add.push(json!(IPC_LOCK));
        }
    }
}

/// Returns the field of an object, which is created if it is missing or null.
fn child<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    let fields = parent.as_object_mut()?;
    let field = fields.entry(key).or_insert(Value::Null);
    if field.is_null() {
        *field = json!({});
    }
    Some(field)
}

/// Returns the object in a field, which is created if it is missing or null.
fn object<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    child(parent, key)?.as_object_mut()
}
