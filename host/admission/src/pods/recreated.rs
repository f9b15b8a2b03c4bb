//! Pure: an existing Pod that requests IPUs, as validation guests would see it if its user created
//! it again.

use ipu_api::guest::admission::Violation;
use ipu_api::pod_request::PodRequest;
use serde_json::Value;

use super::{copied, patch, shown};

/// A Pod as the IPUJob that guests see.
#[derive(Debug, PartialEq)]
pub struct RecreatedPod {
    /// The IPUJob.
    pub job: Value,
    /// The fields of the Pod.
    pub fields: PodFields,
}

/// The fields of a Pod that requests IPUs, for those of the IPUJob that guests see.
#[derive(Debug, PartialEq)]
pub struct PodFields(PodRequest);

impl RecreatedPod {
    /// Shows a Pod without what the operator has put into it. `None`: the Pod webhook shows no
    /// guest such a Pod, because it requests no IPUs, or in a form that the operator itself
    /// refuses.
    pub fn of(mut pod: Value, namespace: &str) -> Option<Self> {
        let removals = copied::removals(&pod).operations;
        json_patch::patch(&mut pod, &removals).ok()?;
        let request = PodRequest::of(&pod).ok().flatten()?;
        Some(Self {
            job: as_job(pod, namespace, &request),
            fields: PodFields(request),
        })
    }
}

impl PodFields {
    /// Replaces the field of the IPUJob in a violation by that of the Pod.
    pub fn translate(&self, violation: &mut Violation) {
        shown::translate(violation, &self.0);
    }
}

/// The IPUJob as which rules see a Pod with this request.
pub(super) fn as_job(pod: Value, namespace: &str, request: &PodRequest) -> Value {
    let pod = patch::without_additions(pod, request.gcd());
    shown::as_job(pod, namespace, request.new_ipus())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"graphcore.ai/ipu": "4"}},
            "spec": {"containers": [{"name": "main", "image": "a:1"}]},
        });
        change(&mut pod);
        pod
    }

    /// The Pod after the webhook, and after the operator has given it a partition and a scheduler a
    /// node.
    fn bound(change: impl FnOnce(&mut Value)) -> Value {
        let mut bound = pod(change);
        let request = PodRequest::of(&bound).unwrap().unwrap();
        let additions = patch::additions(&bound, &request);
        json_patch::patch(&mut bound, &additions).unwrap();
        bound["spec"]
            .as_object_mut()
            .unwrap()
            .remove("schedulingGates");
        bound["spec"]["nodeName"] = json!("node-1");
        bound["spec"]["nodeSelector"] = json!({"vipu": "pod1", "disk": "ssd"});
        bound["metadata"]["labels"]["graphcore.ai/partition-id"] = json!("p-1");
        for (key, value) in [
            ("graphcore.ai/vipu-host", "pod1"),
            ("graphcore.ai/vipu-port", "8090"),
            ("graphcore.ai/node-label", "vipu=pod1"),
        ] {
            bound["metadata"]["annotations"][key] = json!(value);
        }
        bound
    }

    /// Turns a request into one for an IPUPartition that exists.
    fn shared(pod: &mut Value) {
        pod["metadata"]["annotations"] =
            json!({"graphcore.ai/partition": "shared", "graphcore.ai/gcd": "1"});
    }

    #[test]
    fn a_pod_with_a_partition_is_shown_as_its_user_wrote_it() {
        for (request, ipus) in [((|_| {}) as fn(&mut Value), "4"), (shared, "0")] {
            let mut wrote = pod(request);
            wrote["spec"]["nodeSelector"] = json!({"disk": "ssd"});
            wrote["metadata"]["labels"] = json!({"graphcore.ai/native-pod": "true"});
            let new = RecreatedPod::of(wrote, "team").unwrap();
            assert_eq!(new.job["spec"]["ipusPerJobInstance"], json!(ipus));
            assert_eq!(RecreatedPod::of(bound(request), "team"), Some(new));
        }
    }

    #[test]
    fn violations_are_about_the_fields_of_the_pod() {
        let recreated = RecreatedPod::of(bound(|_| {}), "team").unwrap();
        let mut violation = Violation {
            field: "spec.ipusPerJobInstance".to_owned(),
            message: "wrong".to_owned(),
        };
        recreated.fields.translate(&mut violation);
        assert_eq!(violation.field, "metadata.annotations[graphcore.ai/ipu]");
    }

    #[test]
    fn guests_see_only_pods_with_a_readable_request() {
        for annotations in [
            json!({}),
            json!({"graphcore.ai/partition": "Shared"}),
            json!({"graphcore.ai/ipu": "four"}),
        ] {
            let other = pod(|pod| pod["metadata"]["annotations"] = annotations.clone());
            assert_eq!(RecreatedPod::of(other, "team"), None, "{annotations}");
        }
    }
}
