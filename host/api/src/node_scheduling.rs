//! Pure: what the Pods of an owner require of a node beside its labels, in a bounded form that an
//! IPUPartition carries.

use k8s_openapi::api::core::v1::{self, PodSpec};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most terms, most requirements of a term, and most tolerations. Pods with more count as Pods
/// without restrictions.
const ITEMS_MAX: usize = 32;

/// Most values of a requirement.
const VALUES_MAX: usize = 64;

/// Longest key or value, in bytes: a label key with its prefix has 317 at most.
const TEXT_MAX: usize = 320;

/// Taints of nodes that are not ready. The API server adds tolerations of them to every Pod, so
/// that it survives a short outage of its node; they say nothing about where new Pods should run.
pub const OUTAGES: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// What the Pods of an owner require of a node beside its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScheduling {
    /// Terms of the required node affinity. A node matches if it matches one of them. Empty: every
    /// node matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub node_selector_terms: Vec<NodeTerm>,
    /// Tolerations of taints with the effects NoSchedule and NoExecute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<NodeToleration>,
}

/// A term of a required node affinity. A node matches if it matches all requirements; none matches
/// an empty term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTerm {
    /// Requirements of the node's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<NodeRequirement>,
    /// Requirements of the node's fields. The only field is `metadata.name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_fields: Vec<NodeRequirement>,
}

/// A requirement of a label or field of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeRequirement {
    /// The label or field.
    #[schemars(length(max = 320))]
    pub key: String,
    /// The comparison.
    pub operator: NodeOperator,
    /// The values of the comparison.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 320)))]
    pub values: Vec<String>,
}

/// A comparison of a label with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NodeOperator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is missing.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is missing.
    DoesNotExist,
    /// The label is an integer, and larger than the only value.
    Gt,
    /// The label is an integer, and smaller than the only value.
    Lt,
}

/// A toleration of taints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NodeToleration {
    /// Key of the taints. Missing: every key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub key: Option<String>,
    /// Value of the taints. Missing: every value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub value: Option<String>,
    /// Effect of the taints, `NoSchedule` or `NoExecute`. Missing: both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 320))]
    pub effect: Option<String>,
}

impl NodeScheduling {
    /// Reads the spec of a Pod. `None`: it exceeds the bounds, or has an unknown operator, so that
    /// nothing is known.
    pub fn of(spec: &PodSpec) -> Option<Self> {
        let affinity = spec.affinity.as_ref();
        let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
        let terms = required.map_or(&[][..], |required| &required.node_selector_terms);
        let tolerations = spec
            .tolerations
            .iter()
            .flatten()
            .filter(|toleration| counts(toleration));
        let tolerations = tolerations.map(toleration).collect::<Option<Vec<_>>>()?;
        Some(Self {
            node_selector_terms: bounded(terms.iter().map(term))?,
            tolerations: bounded(tolerations.into_iter().map(Some))?,
        })
    }

    /// Returns about how many bytes it takes in memory.
    pub fn bytes(&self) -> usize {
        let terms = self.node_selector_terms.iter().map(NodeTerm::bytes);
        let tolerations = self.tolerations.iter().map(NodeToleration::bytes);
        terms.chain(tolerations).sum()
    }
}

impl NodeTerm {
    fn bytes(&self) -> usize {
        let requirements = self.match_expressions.iter().chain(&self.match_fields);
        size_of::<Self>() + requirements.map(NodeRequirement::bytes).sum::<usize>()
    }
}

impl NodeRequirement {
    fn bytes(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|value| size_of::<String>() + value.len());
        size_of::<Self>() + self.key.len() + values.sum::<usize>()
    }
}

impl NodeToleration {
    fn bytes(&self) -> usize {
        let texts = [&self.key, &self.value, &self.effect];
        size_of::<Self>() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }
}

/// Whether a toleration says where new Pods may run.
fn counts(toleration: &v1::Toleration) -> bool {
    let is_outage = |key: &String| OUTAGES.contains(&key.as_str());
    let is_preference = toleration.effect.as_deref() == Some("PreferNoSchedule");
    !is_preference && !toleration.key.as_ref().is_some_and(is_outage)
}

fn term(term: &v1::NodeSelectorTerm) -> Option<NodeTerm> {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    Some(NodeTerm {
        match_expressions: bounded(expressions.iter().map(requirement))?,
        match_fields: bounded(fields.iter().map(requirement))?,
    })
}

fn requirement(requirement: &v1::NodeSelectorRequirement) -> Option<NodeRequirement> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_bounded = values.len() <= VALUES_MAX && values.iter().all(|value| is_short(value));
    (is_bounded && is_short(&requirement.key)).then_some(NodeRequirement {
        key: requirement.key.clone(),
        operator: match &*requirement.operator {
            "In" => NodeOperator::In,
            "NotIn" => NodeOperator::NotIn,
            "Exists" => NodeOperator::Exists,
            "DoesNotExist" => NodeOperator::DoesNotExist,
            "Gt" => NodeOperator::Gt,
            "Lt" => NodeOperator::Lt,
            _ => return None,
        },
        values: values.to_vec(),
    })
}

/// A toleration with the operator `Exists` has no value.
fn toleration(toleration: &v1::Toleration) -> Option<NodeToleration> {
    let value = toleration.value.clone().unwrap_or_default();
    let read = NodeToleration {
        key: toleration.key.clone().filter(|key| !key.is_empty()),
        value: match toleration.operator.as_deref() {
            Some("Exists") => None,
            None | Some("" | "Equal") => Some(value),
            Some(_) => return None,
        },
        effect: toleration
            .effect
            .clone()
            .filter(|effect| !effect.is_empty()),
    };
    let texts = [&read.key, &read.value, &read.effect];
    let is_bounded = texts.into_iter().flatten().all(|text| is_short(text));
    is_bounded.then_some(read)
}

fn bounded<T>(items: impl ExactSizeIterator<Item = Option<T>>) -> Option<Vec<T>> {
    (items.len() <= ITEMS_MAX).then(|| items.collect())?
}

fn is_short(text: &str) -> bool {
    text.len() <= TEXT_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Option<NodeScheduling> {
        let mut spec = spec;
        spec["containers"] = json!([]);
        NodeScheduling::of(&serde_json::from_value(spec).unwrap())
    }

    fn affinity(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
            ],
        }}})
    }

    #[test]
    fn required_affinity_and_tolerations_are_read() {
        assert_eq!(read(json!({})), Some(NodeScheduling::default()));
        let mut spec = affinity(&json!([{
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
        }]));
        spec["tolerations"] = json!([
            {"operator": "Exists"},
            {"key": "ipu", "value": "yes", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal"},
            {"key": "soft", "operator": "Exists", "effect": "PreferNoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
        ]);
        let expected = json!({
            "nodeSelectorTerms": [{
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
            }],
            "tolerations": [
                {},
                {"key": "ipu", "value": "yes", "effect": "NoSchedule"},
                {"key": "team", "value": ""},
            ],
        });
        assert_eq!(json!(read(spec).unwrap()), expected);
    }

    #[test]
    fn what_exceeds_the_bounds_is_not_known() {
        let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        assert!(read(affinity(&json!(vec![term.clone(); ITEMS_MAX]))).is_some());
        assert_eq!(read(affinity(&json!(vec![term; ITEMS_MAX + 1]))), None);
        let values = |count: usize, length: usize| {
            let values = vec!["x".repeat(length); count];
            let requirement = json!({"key": "a", "operator": "In", "values": values});
            read(affinity(&json!([{"matchExpressions": [requirement]}])))
        };
        assert!(values(VALUES_MAX, TEXT_MAX).is_some());
        assert_eq!(values(VALUES_MAX + 1, 1), None);
        assert_eq!(values(1, TEXT_MAX + 1), None);
        let operators = [
            affinity(&json!([{"matchExpressions": [{"key": "a", "operator": "Like"}]}])),
            json!({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}),
            json!({"tolerations": vec![json!({"key": "a"}); ITEMS_MAX + 1]}),
        ];
        for spec in operators {
            assert_eq!(read(spec), None);
        }
    }
}
