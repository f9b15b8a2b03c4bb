//! Workloads of Kueue and the operator, found by the job that owns them.

use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::objects::IPUS;

/// A Workload.
#[derive(Clone, Debug)]
pub struct Workload(pub DynamicObject);

impl Workload {
    /// Its name.
    pub fn name(&self) -> String {
        self.0.name_any()
    }

    /// Its condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Value> {
        let conditions = self.0.data["status"]["conditions"].as_array()?;
        conditions.iter().find(|found| found["type"] == type_)
    }

    /// Whether its condition of this type is True.
    pub fn is(&self, type_: &str) -> bool {
        let condition = self.condition(type_);
        condition.is_some_and(|found| found["status"] == "True")
    }

    /// The reason of its condition of this type, or an empty text.
    pub fn reason(&self, type_: &str) -> &str {
        self.text_of(type_, "reason")
    }

    /// The message of its condition of this type, or an empty text.
    pub fn message(&self, type_: &str) -> &str {
        self.text_of(type_, "message")
    }

    fn text_of(&self, type_: &str, field: &str) -> &str {
        let condition = self.condition(type_);
        condition.map_or("", |found| found[field].as_str().unwrap_or_default())
    }

    /// Whether it counts against a quota: it has a reservation and an admission.
    pub fn holds_quota(&self) -> bool {
        self.is("QuotaReserved") && self.admission().is_some()
    }

    /// Its `status.admission`.
    pub fn admission(&self) -> Option<&Value> {
        let admission = self.0.data["status"].get("admission");
        admission.filter(|found| !found.is_null())
    }

    /// The flavor of IPUs of one of its podSets.
    pub fn flavor(&self, pod_set: &str) -> Option<&str> {
        let assignments = self.admission()?["podSetAssignments"].as_array()?;
        let mut found = assignments.iter().filter(|one| one["name"] == pod_set);
        found.next()?["flavors"][IPUS].as_str()
    }

    /// The state of one of its AdmissionChecks: its name, `state`, `message`, and the rest.
    pub fn check(&self, name: &str) -> Option<&Value> {
        let checks = self.0.data["status"]["admissionChecks"].as_array()?;
        checks.iter().find(|found| found["name"] == name)
    }

    /// Names and counts of its podSets.
    pub fn pod_sets(&self) -> Vec<(String, u64)> {
        let sets = self.0.data["spec"]["podSets"].as_array();
        let sets = sets.into_iter().flatten();
        sets.map(|set| {
            let name = set["name"].as_str().unwrap_or_default().to_owned();
            (name, set["count"].as_u64().unwrap_or_default())
        })
        .collect()
    }

    /// The IPUs of all its podSets together.
    pub fn ipus(&self) -> u64 {
        let sets = self.0.data["spec"]["podSets"].as_array();
        let sets = sets.into_iter().flatten();
        sets.map(|set| set["count"].as_u64().unwrap_or_default() * of_template(&set["template"]))
            .sum()
    }
}

/// The Workloads of a namespace.
pub fn workloads(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// The Workloads that an IPUJob of this name owns. If a job was created again, Workloads of the
/// earlier job may remain among them for a while.
pub async fn of_job(
    client: &Client,
    namespace: &str,
    job: &str,
) -> Result<Vec<Workload>, kube::Error> {
    of_owner(client, namespace, ("IPUJob", job)).await
}

/// The Workloads that an object of this kind and name owns.
pub async fn of_owner(
    client: &Client,
    namespace: &str,
    (kind, name): (&str, &str),
) -> Result<Vec<Workload>, kube::Error> {
    let all = workloads(client, namespace)
        .list(&ListParams::default())
        .await?;
    let is_owned = |found: &DynamicObject| {
        let mut owners = found.owner_references().iter();
        owners.any(|owner| owner.kind == kind && owner.name == name)
    };
    let owned = all.items.into_iter().filter(is_owned);
    Ok(owned.map(Workload).collect())
}

/// The IPUs that a ClusterQueue has reserved, according to its status.
pub fn reserved_ipus(cluster_queue: &DynamicObject) -> u64 {
    let flavors = cluster_queue.data["status"]["flavorsReservation"].as_array();
    let resources = flavors.into_iter().flatten();
    let resources = resources.filter_map(|flavor| flavor["resources"].as_array());
    let of_ipus = resources.flatten().filter(|one| one["name"] == IPUS);
    of_ipus.map(|one| quantity(&one["total"])).sum()
}

/// The IPUs that all containers of a Pod template request. Without a request, the limit counts.
fn of_template(template: &Value) -> u64 {
    let containers = template["spec"]["containers"].as_array();
    let resources = containers
        .into_iter()
        .flatten()
        .map(|one| &one["resources"]);
    let ipus = resources.map(|one| {
        let requested = one["requests"].get(IPUS);
        requested.or(one["limits"].get(IPUS)).map_or(0, quantity)
    });
    ipus.sum()
}

/// A whole number.
fn quantity(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or(value.as_u64()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(object: &Value) -> Workload {
        Workload(serde_json::from_value(object.clone()).unwrap())
    }

    #[test]
    fn ipus_are_counted_over_all_pods() {
        let container =
            |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        let found = workload(&json!({"metadata": {"name": "a"}, "spec": {"podSets": [
            {"name": "launcher", "count": 1, "template": container(json!({}))},
            {"name": "worker", "count": 4, "template": container(json!({"limits": {IPUS: "2"}}))},
        ]}}));
        assert_eq!(found.ipus(), 8);
        assert_eq!(
            found.pod_sets(),
            [("launcher".to_owned(), 1), ("worker".to_owned(), 4)]
        );
    }

    #[test]
    fn quota_is_held_by_a_reservation_and_an_admission_together() {
        let with = |status: &str, admission: Value| {
            workload(&json!({"metadata": {"name": "a"}, "status": {
                "conditions": [{"type": "QuotaReserved", "status": status, "reason": "R"}],
                "admission": admission,
            }}))
        };
        let admission = json!({"podSetAssignments": [{"name": "worker", "flavors": {IPUS: "f"}}]});
        let admitted = with("True", admission.clone());
        assert!(admitted.holds_quota());
        assert_eq!(admitted.flavor("worker"), Some("f"));
        assert_eq!(admitted.reason("QuotaReserved"), "R");
        assert!(!with("False", admission).holds_quota());
        assert!(!with("True", Value::Null).holds_quota());
    }

    #[test]
    fn a_queue_reports_its_reserved_ipus() {
        let queue: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "q"},
            "status": {"flavorsReservation": [
                {"name": "a", "resources": [{"name": IPUS, "total": "4"}, {"name": "cpu", "total": "9"}]},
                {"name": "b", "resources": [{"name": IPUS, "total": "8"}]},
            ]},
        }))
        .unwrap();
        assert_eq!(reserved_ipus(&queue), 12);
    }
}
