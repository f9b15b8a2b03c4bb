//! Pure: the variables of match conditions, as they appear for a review and for a partition.

use std::sync::Arc;

use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::guest::placement::PartitionRequest;
use ipu_api::ipupolicy::Labels;
use serde_json::{Value, json};

/// The variables of an expression.
pub(super) const VARIABLES: [&str; 4] = ["object", "oldObject", "request", NAMESPACE_OBJECT];

/// The variable that needs the labels of the namespace.
pub(super) const NAMESPACE_OBJECT: &str = "namespaceObject";

/// The variables of match conditions.
#[derive(Clone, Debug, Default)]
pub struct MatchInput {
    /// `object`: the IPUJob. `None` for Placement.
    pub object: Option<Arc<Value>>,
    /// `oldObject`: the previous IPUJob, on update.
    pub old_object: Option<Arc<Value>>,
    /// `request`: attributes of the request.
    pub request: Arc<Value>,
    /// `namespaceObject`: name and labels of the namespace. `None` while its labels are unknown.
    pub namespace_object: Option<Arc<Value>>,
}

/// The kind of the object in a review, and its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReviewedResource {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version of the API.
    pub version: &'static str,
    /// Name of the kind.
    pub kind: &'static str,
    /// Name of the resource.
    pub resource: &'static str,
}

impl ReviewedResource {
    /// Returns the path of its list in a namespace, or in all.
    pub fn list_path(self, namespace: Option<&str>) -> String {
        let Self {
            group,
            version,
            resource,
            ..
        } = self;
        let start = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespace {
            Some(namespace) => format!("{start}/namespaces/{namespace}/{resource}"),
            None => format!("{start}/{resource}"),
        }
    }
}

impl MatchInput {
    /// Builds the variables of a partition, which has no object.
    pub(super) fn of_partition(request: &PartitionRequest) -> Self {
        let namespace = &request.context.namespace;
        Self {
            request: Arc::new(json!({
                "namespace": request.namespace,
                "owner": request.owner,
                "slot": request.slot,
                "ipus": request.ipus,
                "gcds": request.gcds,
                "nodeSelector": request.node_selector,
            })),
            namespace_object: namespace_object(&request.namespace, namespace.labels.as_ref()),
            ..Self::default()
        }
    }

    /// Returns the values by the names of [`VARIABLES`].
    pub(super) fn values(&self) -> [(&'static str, &Value); 4] {
        [
            ("object", or_null(self.object.as_ref())),
            ("oldObject", or_null(self.old_object.as_ref())),
            ("request", &*self.request),
            (NAMESPACE_OBJECT, or_null(self.namespace_object.as_ref())),
        ]
    }
}

/// Builds `request` of a review, with the fields that Kubernetes documents for it.
pub fn review_attributes(
    uid: &str,
    name: &str,
    reviewed: ReviewedResource,
    admission: &Admission,
) -> Value {
    let ReviewedResource {
        group,
        version,
        kind,
        resource,
    } = reviewed;
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    json!({
        "uid": uid,
        // The webhooks are registered for one version of each resource, so the API server converts
        // nothing.
        "kind": kind,
        "requestKind": kind,
        "resource": resource,
        "requestResource": resource,
        "operation": match admission.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
        },
        "namespace": admission.namespace,
        "name": name,
        "dryRun": admission.dry_run,
        "subResource": admission.sub_resource,
        "requestSubResource": admission.sub_resource,
        "userInfo": {"username": admission.user.name, "groups": admission.user.groups},
    })
}

/// Builds `namespaceObject`. `None` while the labels are unknown, which differs from no labels.
pub fn namespace_object(name: &str, labels: Option<&Labels>) -> Option<Arc<Value>> {
    let labels = labels?;
    Some(Arc::new(
        json!({"metadata": {"name": name, "labels": labels}}),
    ))
}

fn or_null(value: Option<&Arc<Value>>) -> &Value {
    value.map_or(&Value::Null, Arc::as_ref)
}
