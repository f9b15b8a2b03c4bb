//! Every manifest in `examples/` is admitted, and one snapshot shows its life and its objects as
//! YAML.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use guest_defaulting::defaults;
use insta::assert_yaml_snapshot;
use ipu_api::ipujob_status::JobState;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::fixtures::{MAX_IPUS, refusal};
use super::world::World;
use crate::validate::{ValidJob, ValidateError, read};

/// The examples whose objects are shown in full, without and with a launcher.
const IN_FULL: [&str; 2] = ["01-single-worker.yaml", "02-parallel.yaml"];

/// A job from its first reconcile to its end, as a reviewer reads it.
#[derive(Serialize)]
struct Review {
    /// A line for each reconcile: the situation, the columns of `kubectl get`, and the planned
    /// writes by object.
    life: Vec<String>,
    /// The created objects, by kind and name. Of Pods that repeat an earlier one, and of objects
    /// that repeat those of an example that is shown in full, only the differences. `null`: the
    /// field is missing.
    objects: BTreeMap<String, Value>,
}

#[test]
fn every_example_is_planned_as_reviewed_and_completes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let in_full = IN_FULL.map(|file| lived(&folder.join(file)));
    insta::glob!("../../../../examples", "[0-9]*.yaml", |path| {
        let (job, mut review) = lived(path);
        let is_in_full = IN_FULL.iter().any(|file| path.ends_with(file));
        let (like, base) = &in_full[usize::from(job.launcher.is_some())];
        let base = (!is_in_full).then(|| renamed(&base.objects, &like.name, &job.name));
        review.objects = differences(&review.objects, &base.unwrap_or_default());
        assert_yaml_snapshot!(review);
    });
}

/// A job of an example, and the review of its life with all objects in full.
fn lived(path: &Path) -> (ValidJob, Review) {
    let object = admitted(path);
    assert_eq!(refusal(&object, MAX_IPUS), None, "{}", path.display());
    let job = read(&object, MAX_IPUS).unwrap();
    let mut world = World::new();
    let (mut life, mut objects) = (Vec::new(), BTreeMap::new());
    let mut step = |when: &str, world: &mut World| {
        let plan = serde_json::to_value(world.step(&job).plan).unwrap();
        life.push(format!("{when}: {}{}", world.row(), writes(&plan)));
        for object in created(&plan) {
            let again = objects.insert(key(object), object.clone());
            assert!(again.is_none_or(|before| before == *object), "{object}");
        }
    };
    step("nothing exists", &mut world);
    world.ready(0..job.instances);
    step("the partitions are ready", &mut world);
    world.run_pods();
    step("the workers are ready", &mut world);
    world.run_pods();
    step("all Pods run", &mut world);
    let last = match job.launcher {
        Some(_) => format!("{}-launcher", job.name),
        None => format!("{}-worker-0", job.name),
    };
    world.end(&last, 0);
    step("the program has ended with 0", &mut world);
    step("the end is recorded", &mut world);
    assert_eq!(world.status().launcher_status, JobState::Completed);
    (job, Review { life, objects })
}

/// The fields of a plan that are not empty, with the names of their objects.
fn writes(plan: &Value) -> String {
    let fields = plan.as_object().unwrap().iter();
    let shown = fields.filter_map(|(field, value)| match value {
        Value::Array(objects) if objects.is_empty() => None,
        Value::Array(objects) => Some(format!(
            "; {field}: {}",
            objects.iter().map(key).collect::<Vec<_>>().join(", ")
        )),
        Value::Bool(false) => None,
        other => Some(format!("; {field}: {}", other.to_string().replace('"', ""))),
    });
    shown.collect()
}

/// The objects that a plan creates.
fn created(plan: &Value) -> impl Iterator<Item = &Value> {
    let fields = ["create_partitions", "apply", "create_pods"];
    fields
        .into_iter()
        .flat_map(|field| plan[field].as_array().unwrap())
}

/// An object as the plan names it: by kind and name, by name only, or an IPUPartition by its slot,
/// because its name has a hash of the job's.
fn key(object: &Value) -> String {
    let name = |metadata: &Value| metadata["name"].as_str().unwrap_or_default().to_owned();
    match object["kind"].as_str() {
        Some("IPUPartition") => format!("IPUPartition {}", object["spec"]["slot"]),
        Some(kind) => format!("{kind} {}", name(&object["metadata"])),
        None => name(object),
    }
}

/// Objects of an example as another job would have them.
fn renamed(objects: &BTreeMap<String, Value>, from: &str, to: &str) -> BTreeMap<String, Value> {
    let text = serde_json::to_string(objects).unwrap();
    serde_json::from_str(&text.replace(from, to)).unwrap()
}

/// What distinguishes each object from the first of its kind in the same job, or from the object of
/// this name in another example. An object without either is complete.
fn differences(
    objects: &BTreeMap<String, Value>,
    base: &BTreeMap<String, Value>,
) -> BTreeMap<String, Value> {
    let first = |key: &str| {
        let first = key.trim_end_matches(|last: char| last.is_ascii_digit());
        objects
            .get_key_value(&format!("{first}0"))
            .filter(|(first, _)| *first != key)
    };
    let shown = objects.iter().map(|(key, object)| {
        let like = first(key).map(|(_, first)| first).or_else(|| base.get(key));
        let shown = like.map_or_else(|| object.clone(), |like| difference(like, object));
        (key.clone(), shown)
    });
    shown.collect()
}

/// The fields in which an object differs from another. Elements of lists with the same names, such
/// as containers, are fields. Other lists are complete.
fn difference(from: &Value, to: &Value) -> Value {
    let mut found = Map::new();
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let missing = from.keys().filter(|key| !to.contains_key(*key));
            found.extend(missing.map(|key| (key.clone(), Value::Null)));
            for (key, value) in to
                .iter()
                .filter(|(key, value)| from.get(*key) != Some(value))
            {
                let like = from.get(key);
                let shown = like.map_or_else(|| value.clone(), |like| difference(like, value));
                found.insert(key.clone(), shown);
            }
        }
        (Value::Array(from), Value::Array(to)) if has_names_of(from, to) => {
            for (from, to) in from.iter().zip(to).filter(|(from, to)| from != to) {
                let name = to["name"].as_str().unwrap_or_default();
                found.insert(name.to_owned(), difference(from, to));
            }
        }
        _ => return to.clone(),
    }
    found.into()
}

/// Whether two lists consist of elements with the same names.
fn has_names_of(from: &[Value], to: &[Value]) -> bool {
    let names = |list: &[Value]| -> Option<Vec<String>> {
        let names = list.iter().map(|element| element["name"].as_str());
        names.map(|name| name.map(str::to_owned)).collect()
    };
    names(from).is_some() && names(from) == names(to)
}

#[test]
fn every_bad_example_is_refused_with_field_and_reason() {
    insta::glob!("../../../../examples/bad", "*.yaml", |path| {
        let error = refusal(&admitted(path), MAX_IPUS).unwrap();
        assert!(matches!(error, ValidateError::Broken(_)), "{error:?}");
        assert_yaml_snapshot!(error.to_string());
    });
}

/// The IPUJob of a manifest as the API server stores it: with defaults, and with the fields that
/// the server adds.
fn admitted(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    let object: Value = serde_saphyr::from_str(&text).unwrap();
    let mut object = defaults::apply(object).unwrap().object;
    json_patch::merge(
        &mut object,
        &json!({"metadata": {
            "namespace": "default",
            "uid": "beb81bbe-2309-494a-9e28-2a75a704be15",
            "generation": 1,
        }}),
    );
    object
}
