//! Pure: the policies, by hook and by their position among the guests of the hook.

use jiff::Timestamp;

use super::{Listed, Page};
use crate::cluster::{Cluster, Kind};
use crate::projection::Policy;

/// A part of the policies.
pub fn policies(cluster: &Cluster, page: Page, now: Timestamp) -> Listed<Policy> {
    let mut all: Vec<&Policy> = cluster.policies.values().collect();
    all.sort_by(|one, other| place(one).cmp(&place(other)));
    let not_shown = cluster.not_shown(&[Kind::Policies], now);
    page.of(&all, not_shown, |one| (*one).clone())
}

fn place(policy: &Policy) -> (&str, i32, &str) {
    (policy.hook, policy.order, &policy.name)
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::view::fixture::now;

    fn policy(name: &str, order: i32, status: &serde_json::Value) -> DynamicObject {
        let object = json!({
            "apiVersion": "graphcore.ai/v1alpha1",
            "kind": "IPUPolicy",
            "metadata": {"name": name},
            "spec": {
                "hook": "Placement", "order": order, "mode": "Shadow",
                "module": {"configMap": {"name": "modules", "key": "best-fit.wasm"}},
            },
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn policies_show_digest_and_shadow_counts() {
        let counts = json!({
            "phase": "Shadow", "message": "tried", "activeDigest": "sha256:00", "desiredDigest": "sha256:00",
            "calls": {"answered": 9, "failed": 1},
            "shadow": {"equal": 7, "different": 2, "failed": 1, "skipped": 0},
            "replicas": [{"name": "a"}, {"name": "b", "problem": "too old"}],
        });
        let mut known = Cluster::default();
        known.policies.apply(Event::Init, Policy::of);
        for object in [policy("late", 5, &json!({})), policy("early", 1, &counts)] {
            known.policies.apply(Event::InitApply(object), Policy::of);
        }
        known.policies.apply(Event::InitDone, Policy::of);
        let page = Page {
            offset: 0,
            limit: 50,
        };
        let listed = policies(&known, page, now());
        let rows = serde_json::to_value(&listed.rows).unwrap();
        let early = json!({
            "name": "early", "hook": "Placement", "mode": "Shadow", "order": 1, "phase": "Shadow",
            "message": "tried", "activeDigest": "sha256:00", "desiredDigest": "sha256:00",
            "answered": 9, "failed": 1,
            "shadow": {"equal": 7, "different": 2, "failed": 1, "skipped": 0},
            "replicas": 2, "replicasWithProblem": 1,
        });
        assert_eq!(rows[0], early);
        assert_eq!(rows[1]["name"], "late");
    }
}
