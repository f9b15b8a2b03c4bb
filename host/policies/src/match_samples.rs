//! Pure: sample requests on which match conditions are tried when a policy is loaded.

use std::sync::Arc;

use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::ipupolicy::Hook;
use ipu_api::labels::{NATIVE_POD_LABEL, PARTITION_ANNOTATION};
use ipu_guest_host::policy_request::{PolicyRequest, Review};
use ipu_guest_host::sample_request;
use serde_json::{Value, json};

use super::match_input::{MatchInput, ReviewedResource, namespace_object, review_attributes};

/// An IPUJob in a review.
pub const IPUJOB: ReviewedResource = ReviewedResource {
    group: ipu_api::GROUP,
    version: ipu_api::VERSION,
    kind: "IPUJob",
    resource: "ipujobs",
};

/// The number of instances of an IPUJob in a review.
pub const SCALE: ReviewedResource = ReviewedResource {
    group: "autoscaling",
    version: "v1",
    kind: "Scale",
    resource: "ipujobs/scale",
};

/// A Pod in a review.
pub const POD: ReviewedResource = ReviewedResource {
    group: "",
    version: "v1",
    kind: "Pod",
    resource: "pods",
};

/// Returns the variables for each kind of request at a hook: at admission the creation and an
/// update of an IPUJob, and the creation of a native Pod; at validation also of one that shares a
/// partition.
pub(super) fn samples(hook: Hook) -> Vec<MatchInput> {
    match sample_request(hook) {
        PolicyRequest::Defaulting(review) => reviews(&review),
        PolicyRequest::Validation(review) => {
            let sharing = sample(&review, POD, &sharing_pod(), None);
            reviews(&review).into_iter().chain([sharing]).collect()
        }
        PolicyRequest::Placement(placement) => vec![MatchInput::of_partition(&placement.request)],
    }
}

/// The IPUJob as which guests see a native Pod of one container.
pub fn native_pod() -> Value {
    json!({
        "apiVersion": ipu_api::API_VERSION,
        "kind": "IPUJob",
        "metadata": {
            "name": "sample",
            "namespace": "default",
            "labels": {NATIVE_POD_LABEL: "true"},
        },
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": "4",
            "workers": {"template": {
                "spec": {"containers": [{"name": "worker", "image": "sample"}]},
            }},
        },
    })
}

/// The IPUJob as which guests see a native Pod that shares a partition.
fn sharing_pod() -> Value {
    let mut pod = native_pod();
    pod["metadata"]["annotations"] = json!({PARTITION_ANNOTATION: "sample"});
    pod["spec"]["ipusPerJobInstance"] = json!("0");
    pod
}

fn reviews(review: &Review) -> Vec<MatchInput> {
    let created = &review.object;
    let mut updated = created.clone();
    updated["spec"]["jobInstances"] = json!(2);
    vec![
        sample(review, IPUJOB, created, None),
        sample(review, IPUJOB, &updated, Some(created)),
        sample(review, POD, &native_pod(), None),
    ]
}

fn sample(
    review: &Review,
    reviewed: ReviewedResource,
    object: &Value,
    old: Option<&Value>,
) -> MatchInput {
    let admission = Admission {
        operation: if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        },
        ..review.admission()
    };
    let request = review_attributes("sample", "sample", reviewed, &admission);
    MatchInput {
        object: Some(Arc::new(object.clone())),
        old_object: old.cloned().map(Arc::new),
        request: Arc::new(request),
        namespace_object: namespace_object(&admission.namespace, admission.context.labels.as_ref()),
    }
}
