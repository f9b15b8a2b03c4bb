//! Pure: rewrites what names a container of the template, because the launcher's Pod has other containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, EnvVar, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
};

use super::launcher_rules;
use super::resource_value::value;
use crate::validate::Template;

/// Name of the launcher's container.
pub const CONTAINER: &str = "launcher";

/// Start of the annotations with the values of `resourceFieldRef`s in volumes.
const VALUE_ANNOTATION: &str = "graphcore.ai/worker-resource-";

/// Annotation with the name of the container whose log `kubectl logs` shows, in versions of kubectl before 1.21.
const DEFAULT_LOGS_ANNOTATION: &str = "kubectl.kubernetes.io/default-logs-container";

/// Replaces references to the resources of containers that only workers have, by their values there. `unnamed` is the
/// container of a reference without a name; `None`: the container of the variables itself.
pub fn resolve_variables(env: &mut [EnvVar], template: &Template, unnamed: Option<&str>) {
    for variable in env {
        let source = variable.value_from.as_mut();
        let Some(reference) = source.and_then(|source| source.resource_field_ref.as_mut()) else {
            continue;
        };
        if let Some(found) = resolve(reference, template, unnamed) {
            variable.value = Some(found);
            variable.value_from = None;
        }
    }
}

/// Does the same for volumes. Their values are annotations, to which the volumes refer instead.
pub fn resolve_volumes(
    spec: &mut PodSpec,
    template: &Template,
    annotations: &mut BTreeMap<String, String>,
) {
    let volumes = spec.volumes.iter_mut().flatten();
    let files = volumes.flat_map(|volume| {
        let own = volume.downward_api.iter_mut();
        let own = own.filter_map(|source| source.items.as_mut());
        let projected = volume.projected.iter_mut();
        let sources = projected.flat_map(|projected| projected.sources.iter_mut().flatten());
        let projected = sources.filter_map(|source| source.downward_api.as_mut()?.items.as_mut());
        own.chain(projected).flatten()
    });
    // One for all files: a template can have thousands, and each would pass over the keys of those before it.
    let mut keys = (0..).map(|number| format!("{VALUE_ANNOTATION}{number}"));
    for file in files {
        resolve_file(file, template, annotations, &mut keys);
    }
}

fn resolve_file(
    file: &mut DownwardAPIVolumeFile,
    template: &Template,
    annotations: &mut BTreeMap<String, String>,
    keys: &mut impl Iterator<Item = String>,
) {
    let reference = file.resource_field_ref.as_mut();
    let Some(found) = reference.and_then(|found| resolve(found, template, None)) else {
        return;
    };
    let Some(key) = keys.find(|key| !annotations.contains_key(key)) else {
        return;
    };
    file.resource_field_ref = None;
    file.field_ref = Some(ObjectFieldSelector {
        field_path: format!("metadata.annotations['{key}']"),
        ..ObjectFieldSelector::default()
    });
    annotations.insert(key, found);
}

/// Returns the value of a reference to a container that only workers have. A value that only the kubelet knows is that
/// of the launcher, on the launcher's node.
fn resolve(
    reference: &mut ResourceFieldSelector,
    template: &Template,
    unnamed: Option<&str>,
) -> Option<String> {
    let name = reference.container_name.as_deref();
    let name = name.filter(|name| !name.is_empty()).or(unnamed)?;
    let container = workers_only(template).find(|container| container.name == name)?;
    let found = value(container, reference);
    if found.is_none() {
        reference.container_name = Some(CONTAINER.to_owned());
    }
    found
}

/// The containers of the template that the launcher's Pod does not have under their name.
fn workers_only(template: &Template) -> impl Iterator<Item = &Container> {
    let runs = launcher_rules::run_init_containers(&template.spec, &template.first);
    let init_containers = template.spec.init_containers.iter().flatten();
    let init_containers = init_containers.zip(runs).filter(|(_, runs)| !runs);
    let containers = std::iter::once(&template.first).chain(&template.others);
    containers.chain(init_containers.map(|(container, _)| container))
}

/// Returns the annotations of the template as the launcher has them. Keys that name the first container name the
/// launcher's, such as `container.apparmor.security.beta.kubernetes.io/<name>`. Those of containers that only workers
/// have are left out, because the API server refuses a Pod with them.
pub fn annotations(template: &Template) -> BTreeMap<String, String> {
    let found = template.metadata.annotations.iter().flatten();
    let mut annotations: BTreeMap<_, _> = found
        .flat_map(|(key, value)| {
            keys(key, template)
                .into_iter()
                .map(move |key| (key, value.clone()))
        })
        .collect();
    if let Some(name) = annotations.get_mut(DEFAULT_LOGS_ANNOTATION) {
        CONTAINER.clone_into(name);
    }
    annotations
}

/// Returns the keys under which the launcher has an annotation.
fn keys(key: &str, template: &Template) -> Vec<String> {
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
    match workers_only(template).find(|container| container.name == name) {
        Some(found) if found.name == template.first.name && names_container => vec![renamed],
        Some(_) if names_container => Vec::new(),
        // The last part may be a word that only happens to be a container's name.
        Some(found) if found.name == template.first.name => vec![key.to_owned(), renamed],
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
