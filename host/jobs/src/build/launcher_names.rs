//! Pure: rewrites what names a container of the template, because the launcher's Pod has other
//! containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, EnvVar, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::launcher_rules;
use super::resource_value::value;
use crate::validate::{Template, ValidJob};

/// Name of the launcher's container.
pub const CONTAINER: &str = "launcher";

/// Start of the annotations with the values of `resourceFieldRef`s in volumes.
const VALUE_ANNOTATION: &str = "graphcore.ai/worker-resource-";

/// Start of the annotations with the values of labels in volumes.
const LABEL_ANNOTATION: &str = "graphcore.ai/worker-label-";

/// Path of the labels of a Pod in a `fieldRef`.
const LABELS_PATH: &str = "metadata.labels";

/// Longest value of a label, in bytes. The API server refuses a Pod with a longer one.
const LABEL_MAX: usize = 63;

/// Annotation with the name of the container whose log `kubectl logs` shows, in versions of kubectl
/// before 1.21.
const DEFAULT_LOGS_ANNOTATION: &str = "kubectl.kubernetes.io/default-logs-container";

/// Ends of the keys of annotations that list containers, of the injectors of Vault and
/// OpenTelemetry, for example.
const LISTS: [&str; 2] = ["container-names", "inject-containers"];

/// Replaces references to the resources of containers that only workers have, by their values
/// there. `unnamed` is the container of a reference without a name; `None`: the container of the
/// variables itself.
pub fn resolve_variables(env: &mut [EnvVar], job: &ValidJob, unnamed: Option<&str>) {
    let workers: Vec<_> = workers_only(job).collect();
    for variable in env {
        let source = variable.value_from.as_mut();
        let Some(reference) = source.and_then(|source| source.resource_field_ref.as_mut()) else {
            continue;
        };
        if let Some(found) = resolve(reference, &workers, unnamed) {
            variable.value = Some(found);
            variable.value_from = None;
        }
    }
}

/// Does the same for volumes. Their values are annotations, to which the volumes refer instead.
pub fn resolve_volumes(
    spec: &mut PodSpec,
    job: &ValidJob,
    annotations: &mut BTreeMap<String, String>,
) {
    let workers: Vec<_> = workers_only(job).collect();
    // One for all files: a template can have thousands, and each would pass over the keys of those
    // before it.
    let mut keys = numbered(VALUE_ANNOTATION);
    for file in files(spec) {
        let reference = file.resource_field_ref.as_mut();
        if let Some(found) = reference.and_then(|found| resolve(found, &workers, None)) {
            file.resource_field_ref = None;
            refer(file, found, annotations, &mut keys);
        }
    }
}

/// Replaces references to labels that only workers have by their values in the template. The
/// launcher does not have these labels. Those of the operator, such as the role, are its own.
pub fn resolve_labels(spec: &mut PodSpec, template: &Template, metadata: &mut ObjectMeta) {
    let own = metadata.labels.clone().unwrap_or_default();
    let annotations = metadata.annotations.get_or_insert_default();
    let init_containers = spec.init_containers.iter_mut().flatten();
    let containers = init_containers.chain(&mut spec.containers);
    for variable in containers.flat_map(|container| container.env.iter_mut().flatten()) {
        let source = variable.value_from.as_ref();
        let field = source.and_then(|source| source.field_ref.as_ref());
        if let Some(found) = field.and_then(|field| label(&field.field_path, template, &own)) {
            variable.value = Some(found);
            variable.value_from = None;
        }
    }
    let mut keys = numbered(LABEL_ANNOTATION);
    // By path: thousands of files can refer to the same labels, whose values are in the Pod once.
    let mut known: BTreeMap<String, ObjectFieldSelector> = BTreeMap::new();
    for file in files(spec) {
        let Some(ObjectFieldSelector { field_path, .. }) = file.field_ref.clone() else {
            continue;
        };
        if let Some(reference) = known.get(&field_path) {
            file.field_ref = Some(reference.clone());
            continue;
        }
        let found = if field_path == LABELS_PATH {
            all_labels(template, &own)
        } else {
            label(&field_path, template, &own)
        };
        if let Some(found) = found {
            refer(file, found, annotations, &mut keys);
            known.extend(file.field_ref.clone().map(|new| (field_path, new)));
        }
    }
}

/// Returns the value of a reference to a label of the template. `own` are those of the launcher.
fn label(path: &str, template: &Template, own: &BTreeMap<String, String>) -> Option<String> {
    let key = path.strip_prefix(LABELS_PATH)?;
    let key = key.strip_prefix("['")?.strip_suffix("']")?;
    let found = template.metadata.labels.as_ref()?.get(key);
    let found = found.filter(|value| value.len() <= LABEL_MAX && !own.contains_key(key));
    found.cloned()
}

/// Returns all labels of the template and of the launcher, as the kubelet writes them into a file.
fn all_labels(template: &Template, own: &BTreeMap<String, String>) -> Option<String> {
    let mut all = template.metadata.labels.clone()?;
    all.extend(own.clone());
    let lines = all.iter().map(|(key, value)| format!("{key}={value:?}"));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// The files of a Pod's volumes with fields of the Pod.
fn files(spec: &mut PodSpec) -> impl Iterator<Item = &mut DownwardAPIVolumeFile> {
    let volumes = spec.volumes.iter_mut().flatten();
    volumes.flat_map(|volume| {
        let own = volume.downward_api.iter_mut();
        let own = own.filter_map(|source| source.items.as_mut());
        let projected = volume.projected.iter_mut();
        let sources = projected.flat_map(|projected| projected.sources.iter_mut().flatten());
        let projected = sources.filter_map(|source| source.downward_api.as_mut()?.items.as_mut());
        own.chain(projected).flatten()
    })
}

fn numbered(start: &'static str) -> impl Iterator<Item = String> {
    (0..).map(move |number| format!("{start}{number}"))
}

/// Makes a file refer to an annotation with this value.
fn refer(
    file: &mut DownwardAPIVolumeFile,
    value: String,
    annotations: &mut BTreeMap<String, String>,
    keys: &mut impl Iterator<Item = String>,
) {
    let Some(key) = keys.find(|key| !annotations.contains_key(key)) else {
        return;
    };
    file.field_ref = Some(ObjectFieldSelector {
        field_path: format!("metadata.annotations['{key}']"),
        ..ObjectFieldSelector::default()
    });
    annotations.insert(key, value);
}

/// Returns the value of a reference to one of the containers that only workers have. A value that
/// only the kubelet knows is that of the launcher, on the launcher's node.
fn resolve(
    reference: &mut ResourceFieldSelector,
    workers: &[&Container],
    unnamed: Option<&str>,
) -> Option<String> {
    let name = reference.container_name.as_deref();
    let name = name.filter(|name| !name.is_empty()).or(unnamed)?;
    let container = workers.iter().find(|container| container.name == name)?;
    let found = value(container, reference);
    if found.is_none() {
        reference.container_name = Some(CONTAINER.to_owned());
    }
    found
}

/// The containers of the template that the launcher's Pod does not have under their name.
fn workers_only(job: &ValidJob) -> impl Iterator<Item = &Container> {
    let template = &job.template;
    let runs = launcher_rules::run_init_containers(job);
    let init_containers = template.spec.init_containers.iter().flatten();
    let init_containers = init_containers.zip(runs).filter(|(_, runs)| !runs);
    let containers = std::iter::once(&template.first).chain(&template.others);
    containers.chain(init_containers.map(|(container, _)| container))
}

/// Returns the annotations of the template as the launcher has them. Keys that name the first
/// container name the launcher's, such as `container.apparmor.security.beta.kubernetes.io/<name>`.
/// Those of containers that only workers have are left out, because the API server refuses a Pod
/// with them.
pub fn annotations(job: &ValidJob) -> BTreeMap<String, String> {
    let first = &job.template.first.name;
    let workers: Vec<_> = workers_only(job).collect();
    let found = job.template.metadata.annotations.iter().flatten();
    let mut annotations: BTreeMap<_, _> = found
        .flat_map(|(key, value)| {
            keys(key, first, &workers)
                .into_iter()
                .map(move |key| (key, value.clone()))
        })
        .collect();
    if let Some(name) = annotations.get_mut(DEFAULT_LOGS_ANNOTATION) {
        CONTAINER.clone_into(name);
    }
    for (key, names) in &mut annotations {
        if LISTS.iter().any(|end| key.ends_with(end)) {
            *names = renamed(names, first);
        }
    }
    annotations
}

/// Returns a list of names, separated by commas, in which the first container has the name of the
/// launcher's.
fn renamed(names: &str, first: &str) -> String {
    let names = names.split(',').map(str::trim);
    let names = names.map(|name| if name == first { CONTAINER } else { name });
    names.collect::<Vec<_>>().join(",")
}

/// Returns the keys under which the launcher has an annotation.
fn keys(key: &str, first: &str, workers: &[&Container]) -> Vec<String> {
    let kept = vec![key.to_owned()];
    let Some((prefix, rest)) = key.split_once('/') else {
        return kept;
    };
    // Runtimes read keys of both forms: `container.<…>/<name>`, and `<…>/container.<name>`.
    let (form, name) = match rest.strip_prefix("container.") {
        Some(name) => ("container.", name),
        None => ("", rest),
    };
    let names_container = !form.is_empty() || prefix.starts_with("container.");
    let renamed = format!("{prefix}/{form}{CONTAINER}");
    match workers.iter().find(|container| container.name == name) {
        Some(found) if found.name == first && names_container => vec![renamed],
        Some(_) if names_container => Vec::new(),
        // The last part may be a word that only happens to be a container's name.
        Some(found) if found.name == first => vec![key.to_owned(), renamed],
        Some(_) | None => kept,
    }
}

/// Gives an init container of the template with the name of the launcher's container another name.
pub fn rename_init_containers(spec: &mut PodSpec) {
    let mut containers = spec.init_containers.iter_mut().flatten();
    if let Some(found) = containers.find(|container| container.name == CONTAINER) {
        found.name = format!("{CONTAINER}-init");
    }
}
