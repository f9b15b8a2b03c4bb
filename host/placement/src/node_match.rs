//! Pure: whether the Pods of a request may run on a node, by the rules of the scheduler of
//! Kubernetes.

use std::collections::BTreeMap;

use ipu_api::node_scheduling::{NodeOperator, NodeRequirement, NodeScheduling, NodeTerm, OUTAGES};

/// Taint of a cordoned node. The scheduler treats `spec.unschedulable` like it.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// Bytes of an entry beside its texts.
const ENTRY_BYTES: usize = size_of::<String>() * 2;

/// The only field of a node that an affinity can name.
const NAME_FIELD: &str = "metadata.name";

/// The fields of a node that decide whether Pods may run on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub is_cordoned: bool,
    /// Whether its condition `Ready` is other than True. No condition: the node has not reported
    /// yet, and has a taint.
    pub is_not_ready: bool,
    /// Whether it failed a check of ipu-node. False if the admin does not check nodes.
    pub has_failed_check: bool,
    /// Its taints with the effects NoSchedule and NoExecute.
    pub taints: Vec<NodeTaint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTaint {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What the Pods of a request require of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requirements {
    /// Labels that it must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required affinity and tolerations. `None`: they are not known, and every node fulfils them.
    pub scheduling: Option<NodeScheduling>,
}

/// Why no new Pod of a request may run on a node that has the required labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    /// It is cordoned.
    Cordoned,
    /// It is not ready.
    NotReady,
    /// It failed a check of ipu-node.
    FailedCheck,
    /// It has a taint that the Pods do not tolerate, as `key:effect`.
    Tainted(String),
}

impl Requirements {
    /// These labels, and nothing else that is known.
    pub fn labels(node_selector: BTreeMap<String, String>) -> Self {
        Self {
            node_selector,
            scheduling: None,
        }
    }

    /// Returns about how many bytes they take in memory.
    pub fn bytes(&self) -> usize {
        let selector = self.node_selector.iter();
        let selector = selector.map(|(key, value)| key.len() + value.len() + ENTRY_BYTES);
        let scheduling = self.scheduling.as_ref().map_or(0, NodeScheduling::bytes);
        selector.sum::<usize>() + scheduling
    }

    /// Whether the node has the labels and fields that the Pods require.
    pub fn selects(&self, node: &NodeFacts) -> bool {
        let mut labels = self.node_selector.iter();
        let terms = self.scheduling.as_ref();
        let terms = terms.map_or(&[][..], |scheduling| &scheduling.node_selector_terms);
        labels.all(|(key, value)| node.labels.get(key) == Some(value))
            && (terms.is_empty() || terms.iter().any(|term| matches_term(term, node)))
    }

    /// Returns why no new Pod may run on the node now. `None`: it may.
    pub fn blocker(&self, node: &NodeFacts) -> Option<Blocker> {
        let unschedulable = NodeTaint {
            key: CORDONED.to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        if node.is_cordoned && !self.tolerates(&unschedulable) {
            return Some(Blocker::Cordoned);
        }
        let is_outage = |taint: &NodeTaint| OUTAGES.contains(&taint.key.as_str());
        if node.is_not_ready || node.taints.iter().any(is_outage) {
            return Some(Blocker::NotReady);
        }
        if node.has_failed_check {
            return Some(Blocker::FailedCheck);
        }
        // Without knowledge of the tolerations, only what no usual Pod tolerates counts.
        self.scheduling.as_ref()?;
        let mut taints = node.taints.iter();
        let taint = taints.find(|taint| !self.tolerates(taint))?;
        Some(Blocker::Tainted(format!("{}:{}", taint.key, taint.effect)))
    }

    fn tolerates(&self, taint: &NodeTaint) -> bool {
        let is = |wanted: Option<&str>, found: &str| wanted.is_none_or(|wanted| wanted == found);
        let scheduling = self.scheduling.iter();
        let mut tolerations = scheduling.flat_map(|scheduling| &scheduling.tolerations);
        tolerations.any(|toleration| {
            is(toleration.key.as_deref(), &taint.key)
                && is(toleration.value.as_deref(), &taint.value)
                && is(toleration.effect.as_deref(), &taint.effect)
        })
    }
}

/// An empty term matches no node.
fn matches_term(term: &NodeTerm, node: &NodeFacts) -> bool {
    let NodeTerm {
        match_expressions,
        match_fields,
    } = term;
    let is_empty = match_expressions.is_empty() && match_fields.is_empty();
    let field = |key: &str| (key == NAME_FIELD).then_some(&*node.name);
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    let mut expressions = match_expressions.iter();
    let mut fields = match_fields.iter();
    !is_empty
        && expressions.all(|requirement| matches_requirement(requirement, label(&requirement.key)))
        && fields.all(|requirement| {
            requirement.key == NAME_FIELD
                && matches_requirement(requirement, field(&requirement.key))
        })
}

fn matches_requirement(requirement: &NodeRequirement, found: Option<&str>) -> bool {
    let NodeRequirement {
        operator, values, ..
    } = requirement;
    let has_one = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let numbers = || {
        let [value] = &values[..] else { return None };
        let found: i64 = found?.parse().ok()?;
        Some((found, value.parse::<i64>().ok()?))
    };
    match operator {
        NodeOperator::In => has_one(),
        NodeOperator::NotIn => !has_one(),
        NodeOperator::Exists => found.is_some(),
        NodeOperator::DoesNotExist => found.is_none(),
        NodeOperator::Gt => numbers().is_some_and(|(found, value)| found > value),
        NodeOperator::Lt => numbers().is_some_and(|(found, value)| found < value),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node() -> NodeFacts {
        let labels = [("zone", "a"), ("cores", "64"), ("empty", "")];
        NodeFacts {
            name: "n1".to_owned(),
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..NodeFacts::default()
        }
    }

    fn taint(key: &str, effect: &str) -> NodeTaint {
        NodeTaint {
            key: key.to_owned(),
            value: "v".to_owned(),
            effect: effect.to_owned(),
        }
    }

    fn required(scheduling: Value) -> Requirements {
        Requirements {
            scheduling: serde_json::from_value(scheduling).unwrap(),
            ..Requirements::default()
        }
    }

    /// The cases of `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`.
    #[test]
    fn requirements_match_as_in_the_scheduler() {
        let cases = [
            ("zone", "In", json!(["a", "b"]), true),
            ("zone", "In", json!(["b"]), false),
            ("other", "In", json!(["a"]), false),
            ("zone", "NotIn", json!(["b"]), true),
            ("zone", "NotIn", json!(["a", "b"]), false),
            ("other", "NotIn", json!(["a"]), true),
            ("empty", "Exists", json!([]), true),
            ("other", "Exists", json!([]), false),
            ("other", "DoesNotExist", json!([]), true),
            ("empty", "DoesNotExist", json!([]), false),
            ("cores", "Gt", json!(["63"]), true),
            ("cores", "Gt", json!(["64"]), false),
            ("cores", "Lt", json!(["65"]), true),
            ("cores", "Lt", json!(["64"]), false),
            ("zone", "Gt", json!(["1"]), false),
            ("other", "Lt", json!(["1"]), false),
            ("cores", "Gt", json!(["many"]), false),
            ("cores", "Gt", json!(["1", "2"]), false),
        ];
        for (key, operator, values, expected) in cases {
            let case = format!("{key} {operator} {values}");
            let expression = json!({"key": key, "operator": operator, "values": values});
            let terms = json!([{"matchExpressions": [expression]}]);
            let required = required(json!({"nodeSelectorTerms": terms}));
            assert_eq!(required.selects(&node()), expected, "{case}");
        }
    }

    #[test]
    fn one_term_with_all_its_requirements_must_match() {
        let zone = |zone: &str| json!({"key": "zone", "operator": "In", "values": [zone]});
        let name = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
        let other = json!({"key": "metadata.uid", "operator": "NotIn", "values": ["n1"]});
        let cases = [
            (json!([]), true),
            (json!([{}]), false),
            (json!([{"matchExpressions": [zone("a"), zone("b")]}]), false),
            (
                json!([{"matchExpressions": [zone("b")]}, {"matchExpressions": [zone("a")]}]),
                true,
            ),
            (json!([{"matchFields": [name("n1")]}]), true),
            (json!([{"matchFields": [name("n2")]}]), false),
            (json!([{"matchFields": [other]}]), false),
            (
                json!([{"matchExpressions": [zone("a")], "matchFields": [name("n2")]}]),
                false,
            ),
        ];
        for (terms, expected) in cases {
            let required = required(json!({"nodeSelectorTerms": terms}));
            assert_eq!(required.selects(&node()), expected, "{terms}");
        }
    }

    #[test]
    fn all_labels_of_the_selector_are_required() {
        let selecting = |pairs: &[(&str, &str)]| Requirements {
            node_selector: pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            scheduling: None,
        };
        assert!(selecting(&[]).selects(&node()));
        assert!(selecting(&[("zone", "a"), ("cores", "64")]).selects(&node()));
        assert!(!selecting(&[("zone", "a"), ("cores", "32")]).selects(&node()));
        assert!(!selecting(&[("other", "")]).selects(&node()));
    }

    #[test]
    fn taints_are_tolerated_as_in_the_scheduler() {
        let cases = [
            (json!([]), false),
            (json!([{}]), true),
            (json!([{"key": "ipu"}]), true),
            (json!([{"key": "other"}]), false),
            (json!([{"key": "ipu", "value": "v"}]), true),
            (json!([{"key": "ipu", "value": ""}]), false),
            (json!([{"key": "ipu", "effect": "NoSchedule"}]), true),
            (json!([{"key": "ipu", "effect": "NoExecute"}]), false),
            (json!([{"effect": "NoSchedule"}]), true),
        ];
        let mut tainted = node();
        tainted.taints = vec![taint("ipu", "NoSchedule")];
        let blocked = Some(Blocker::Tainted("ipu:NoSchedule".to_owned()));
        for (tolerations, is_tolerated) in cases {
            let required = required(json!({"tolerations": tolerations}));
            let expected = (!is_tolerated).then(|| blocked.clone()).flatten();
            assert_eq!(required.blocker(&tainted), expected, "{tolerations}");
        }
        tainted.taints.push(taint("team", "NoExecute"));
        let one = required(json!({"tolerations": [{"key": "ipu"}]}));
        let other = Some(Blocker::Tainted("team:NoExecute".to_owned()));
        assert_eq!(one.blocker(&tainted), other);
        let unknown = Requirements::default();
        assert_eq!(unknown.blocker(&tainted), None, "they are not known");
    }

    #[test]
    fn a_cordoned_node_and_one_that_is_not_ready_get_no_new_pods() {
        let nothing = required(json!({}));
        let everything = required(json!({"tolerations": [{}]}));
        assert_eq!(nothing.blocker(&node()), None);
        let mut cordoned = node();
        cordoned.is_cordoned = true;
        assert_eq!(nothing.blocker(&cordoned), Some(Blocker::Cordoned));
        let unknown = Requirements::default();
        assert_eq!(unknown.blocker(&cordoned), Some(Blocker::Cordoned));
        assert_eq!(everything.blocker(&cordoned), None, "the Pods tolerate it");
        let mut silent = node();
        silent.is_not_ready = true;
        let mut new = node();
        new.taints = vec![taint("node.kubernetes.io/not-ready", "NoSchedule")];
        for node in [silent, new] {
            for required in [&nothing, &everything, &unknown] {
                assert_eq!(required.blocker(&node), Some(Blocker::NotReady));
            }
        }
    }
}
