//! The CRD of IPUJobs and the validation guest, with the same objects: both admit the same, except
//! for two lists with reasons.

use std::collections::{BTreeMap, BTreeSet};

use cluster::control_plane::pool::Loan;
use guest_validation::rules;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::Status;
use kube::{Error, ResourceExt};
use serde_json::{Value, json};

use crate::planes;

const RULES: &str = include_str!("../../guests/validation/src/rules/cases.json");

/// Number of other changes that each change is combined with.
const NEIGHBOURS: usize = 4;

/// The controller finds these violations itself before it creates anything, with the code of the
/// guest. The CRD accepts them, as Graphcore's CRD did, so that stored jobs stay valid.
const AGAIN: &str = "the controller checks it again before it creates objects for the job";

/// The guest does not allow changes of these fields, and the CRD does: a job that bypassed the
/// webhooks can be fixed as long as nothing was created for it. Its partitions never change.
const FIXABLE: &str = "a job that bypassed the webhooks can be fixed";

/// Fields that only the guest checks, with the reason why no rule of the CRD does.
const ONLY_THE_GUEST: [(&str, &str); 17] = [
    (
        "metadata.name",
        "the names of Pods contain it, and their length depends on the sizes of the job",
    ),
    ("spec.interactive", AGAIN),
    ("spec.ipusPerJobInstance", AGAIN),
    ("spec.jobInstances", AGAIN),
    ("spec.launcher", FIXABLE),
    ("spec.launcher.command", AGAIN),
    (
        "spec.launcher.serviceAccountName",
        "the controller ignores an account that launchers must not have",
    ),
    ("spec.managedBy", AGAIN),
    ("spec.modelReplicas", AGAIN),
    ("spec.modelReplicasPerWorker", FIXABLE),
    ("spec.restartPolicy.backOffLimit", AGAIN),
    ("spec.workerPerJobInstance", AGAIN),
    ("spec.workers.replicas", AGAIN),
    ("spec.workers.strategy.rollingUpdate", AGAIN),
    ("spec.workers.template.spec.containers", AGAIN),
    ("spec.workers.template.spec.containers.image", AGAIN),
    ("spec.workersPerJobInstance", AGAIN),
];

/// Fields that only the CRD checks, with the reason why the guest does not need to.
const ONLY_THE_DEFINITION: [(&str, &str); 0] = [];

/// Checks with both, and collects the fields in which only one of them finds a violation.
struct Differential {
    jobs: Api<DynamicObject>,
    only_the_guest: BTreeMap<String, Value>,
    only_the_definition: BTreeMap<String, Value>,
    admitted: Vec<Value>,
    _plane: Loan,
}

impl Differential {
    async fn start() -> Self {
        let plane = planes::with_definitions().await;
        let client = plane.client().await.unwrap();
        let kind = ApiResource {
            group: "graphcore.ai".to_owned(),
            version: "v1alpha1".to_owned(),
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            plural: "ipujobs".to_owned(),
        };
        Self {
            jobs: Api::namespaced_with(client, "default", &kind),
            only_the_guest: BTreeMap::new(),
            only_the_definition: BTreeMap::new(),
            admitted: Vec::new(),
            _plane: plane,
        }
    }

    /// Checks a new object, or an update of `old`, which is stored in that version.
    async fn feed(&mut self, object: &Value, old: Option<(&Value, &str)>) {
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let mut sent: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let answer = if let Some((_, version)) = old {
            let name = sent.metadata.name.clone().unwrap();
            sent.metadata.resource_version = Some(version.to_owned());
            self.jobs.replace(&name, &params, &sent).await
        } else {
            self.jobs.create(&params, &sent).await
        };
        let old = old.map(|(old, _)| old);
        let definition = match answer {
            Err(Error::Api(status)) => fields(&status),
            answered => {
                answered.unwrap();
                BTreeSet::new()
            }
        };
        let verdict = rules::check(object, old, rules::Settings::default());
        let guest: BTreeSet<String> = verdict
            .violations
            .iter()
            .map(|violation| bare(&violation.field))
            .collect();
        let about = || json!({"object": object, "old": old});
        match (guest.is_empty(), definition.is_empty()) {
            (true, true) => self.admitted.push(object.clone()),
            (false, true) => {
                for field in guest {
                    self.only_the_guest.entry(field).or_insert_with(about);
                }
            }
            (true, false) => {
                for field in definition {
                    self.only_the_definition.entry(field).or_insert_with(about);
                }
            }
            (false, false) => {}
        }
    }
}

fn fields(status: &Status) -> BTreeSet<String> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields: BTreeSet<String> = causes.map(|cause| bare(&cause.field)).collect();
    assert!(!fields.is_empty(), "a refusal names no field: {status:?}");
    fields
}

/// Returns a field without indexes of lists.
fn bare(field: &str) -> String {
    let mut bare = String::new();
    let mut depth = 0;
    for sign in field.chars() {
        match sign {
            '[' => depth += 1,
            ']' => depth -= 1,
            sign if depth == 0 => bare.push(sign),
            _ => {}
        }
    }
    bare
}

fn merged(base: &Value, change: &Value) -> Value {
    let mut value = base.clone();
    json_patch::merge(&mut value, change);
    value
}

/// Returns the fields in which only one of them finds a violation and that are in no list, each
/// with an object, and the unused entries of the lists.
fn unlisted(found: &BTreeMap<String, Value>, listed: &[(&str, &str)]) -> Vec<String> {
    let is_listed = |field: &str| listed.iter().any(|(listed, _)| *listed == field);
    let missing = found
        .iter()
        .filter(|(field, _)| !is_listed(field))
        .map(|(field, example)| format!("{field}: {example}"));
    let idle = listed
        .iter()
        .filter(|(field, _)| !found.contains_key(*field))
        .map(|(field, _)| format!("{field} is in the list, but both give the same result"));
    missing.chain(idle).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_definition_and_the_guest_admit_the_same_outside_lists_with_reasons() {
    let mut differential = Differential::start().await;
    let table: Value = serde_json::from_str(RULES).unwrap();
    let valid = &table["valid"];
    let changes: Vec<&Value> = table["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| &case["change"])
        .collect();
    for (at, change) in changes.iter().enumerate() {
        let first = merged(valid, change);
        differential.feed(&first, None).await;
        for other in changes.iter().skip(at + 1).take(NEIGHBOURS) {
            differential.feed(&merged(&first, other), None).await;
        }
    }
    let mut olds = std::mem::take(&mut differential.admitted);
    for object in &mut olds {
        object["metadata"]["name"] = json!("twin");
    }
    olds.dedup();
    for old in olds.iter().step_by(8) {
        let stored: DynamicObject = serde_json::from_value(old.clone()).unwrap();
        let jobs = differential.jobs.clone();
        let stored = jobs.create(&PostParams::default(), &stored).await.unwrap();
        let version = stored.resource_version().unwrap();
        for new in &olds {
            differential.feed(new, Some((old, &version))).await;
        }
        jobs.delete("twin", &Default::default()).await.unwrap();
    }
    assert!(olds.len() > 20, "{} objects were admitted", olds.len());
    let found = [
        unlisted(&differential.only_the_guest, &ONLY_THE_GUEST),
        unlisted(&differential.only_the_definition, &ONLY_THE_DEFINITION),
    ];
    assert_eq!(found, [Vec::<String>::new(), Vec::new()]);
}
