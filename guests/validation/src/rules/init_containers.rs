//! Pure: the init containers of the template that the launcher's Pod runs too.

use std::collections::BTreeSet;

use ipu_pod_template::quantity::scaled;
use serde_json::Value;

use super::Verdict;
use super::fields::{at, has_launcher, text};

/// Maximum number of init containers that are checked.
const CONTAINERS_MAX: usize = 64;

/// Maximum number of resources of an init container that are checked.
const RESOURCES_MAX: usize = 16;

/// Requests of a launcher without `launcher.resources`: the default of the chart.
const DEFAULT: [(&str, &str); 2] = [("cpu", "10m"), ("memory", "64Mi")];

/// Places after the point that a quantity can have.
const PLACES: i64 = 9;

/// An init container of the template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitContainer<'a> {
    /// The names of its volumes.
    pub volumes: Vec<&'a str>,
    /// Whether it is a sidecar, which runs beside the containers.
    pub is_sidecar: bool,
}

/// Returns for each init container whether the launcher's Pod runs it too: it fills a volume of the
/// first container, or a volume of a later init container that does. Sidecars belong to the
/// workers.
pub fn run_by_launcher(first: &[&str], init_containers: &[InitContainer<'_>]) -> Vec<bool> {
    let mut needed: BTreeSet<&str> = first.iter().copied().collect();
    let mut runs: Vec<bool> = Vec::with_capacity(init_containers.len());
    for container in init_containers.iter().rev() {
        let shares = container.volumes.iter().any(|name| needed.contains(name));
        let is_needed = shares && !container.is_sidecar;
        if is_needed {
            needed.extend(&container.volumes);
        }
        runs.push(is_needed);
    }
    runs.reverse();
    runs
}

/// Warns of init containers that make the launcher's Pod large, and of those that lack a sidecar
/// there.
pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    let pod = at(spec, &["workers", "template", "spec"]);
    let Some(pod) = pod.filter(|_| has_launcher(spec)) else {
        return;
    };
    let list = |key: &str| at(pod, &[key]).and_then(Value::as_array);
    let found = list("initContainers").into_iter().flatten();
    let found: Vec<&Value> = found.take(CONTAINERS_MAX).collect();
    let first = list("containers").and_then(|list| list.first());
    let mut first = first.map(volumes).unwrap_or_default();
    first.extend(
        at(spec, &["launcher"])
            .into_iter()
            .flat_map(volumes_of_variables),
    );
    let init_containers: Vec<InitContainer<'_>> =
        found.iter().map(|container| read(container)).collect();
    let runs = run_by_launcher(&first, &init_containers);
    let own = at(spec, &["launcher", "resources"]);
    let field = "spec.workers.template.spec.initContainers";
    let mut sidecar = None;
    for (index, container) in found.iter().enumerate() {
        if init_containers[index].is_sidecar {
            sidecar = sidecar.or(Some(name(container)));
        }
        if !runs[index] {
            continue;
        }
        if let Some(resource) = larger_request(container, own) {
            verdict.warn(format!(
                "{field}[{index}]: the launcher's Pod runs it too, because it has a volume of the first container, and \
                 so requests its {resource}, more than spec.launcher.resources; a full node cannot run it"
            ));
        }
        if let Some(sidecar) = sidecar {
            verdict.warn(format!(
                "{field}[{index}]: the launcher's Pod runs it too, and without the sidecar {sidecar}, which only \
                 workers have; make it work without"
            ));
        }
    }
}

fn read(container: &Value) -> InitContainer<'_> {
    InitContainer {
        volumes: volumes(container),
        is_sidecar: text(container, &["restartPolicy"]) == Some("Always"),
    }
}

/// The names of the volumes that a container mounts, has as devices, or has variables of.
fn volumes(container: &Value) -> Vec<&str> {
    let lists = ["volumeMounts", "volumeDevices"].into_iter();
    let entries = lists.filter_map(|key| at(container, &[key])?.as_array());
    let names = entries.flatten().filter_map(|entry| text(entry, &["name"]));
    names.chain(volumes_of_variables(container)).collect()
}

/// The names of the volumes with the files that variables come from.
fn volumes_of_variables(container: &Value) -> impl Iterator<Item = &str> {
    let variables = at(container, &["env"]).and_then(Value::as_array);
    let file = ["valueFrom", "fileKeyRef", "volumeName"];
    let variables = variables.into_iter().flatten();
    variables.filter_map(move |variable| text(variable, &file))
}

/// A name that fits into a warning.
fn name(container: &Value) -> &str {
    let name = text(container, &["name"]).unwrap_or_default();
    if name.len() > 63 { "…" } else { name }
}

/// Returns a resource of which a container requests more than the launcher itself does.
fn larger_request<'a>(container: &'a Value, launcher: Option<&Value>) -> Option<&'a str> {
    let resources = at(container, &["resources"])?;
    let lists = ["requests", "limits"].into_iter();
    let lists = lists.filter_map(|key| at(resources, &[key])?.as_object());
    let names = lists.flat_map(|list| list.keys().take(RESOURCES_MAX));
    let default = |name: &str| {
        let found = DEFAULT.iter().find(|(of, _)| *of == name);
        found.and_then(|(_, quantity)| scaled(quantity, PLACES))
    };
    let own = |name: &str| launcher.map_or_else(|| default(name), |own| request(own, name));
    let mut larger = names.filter(|name| {
        let requested = request(resources, name).unwrap_or(0);
        name.len() <= 63 && requested > own(name).unwrap_or(0)
    });
    larger.next().map(String::as_str)
}

/// Returns a request, which is the limit where it is missing.
fn request(resources: &Value, name: &str) -> Option<u128> {
    let lists = ["requests", "limits"].into_iter();
    let mut found = lists.filter_map(|key| at(resources, &[key, name]));
    match found.next()? {
        Value::String(text) => scaled(text, PLACES),
        Value::Number(number) => scaled(&number.to_string(), PLACES),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_fill_a_volume_of_the_first_container_run() {
        let container = |volumes: &[&'static str], is_sidecar| InitContainer {
            volumes: volumes.to_vec(),
            is_sidecar,
        };
        let all = [
            container(&["archive"], false),
            container(&["data"], true),
            container(&["archive", "data"], false),
            container(&["archive"], false),
            container(&["other"], false),
            container(&[], false),
        ];
        let expected = [true, false, true, false, false, false];
        assert_eq!(run_by_launcher(&["data"], &all), expected);
        assert_eq!(run_by_launcher(&[], &all), [false; 6]);
    }
}
