//! Pure: an existing Pod that requests IPUs, as validation guests would see it if its user created it again.

use ipu_api::pod_request::{NewPartition, PodRequest};
use ipu_guest_host::model::Violation;
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

/// The fields of a Pod that requests a partition, for those of the IPUJob that guests see.
#[derive(Debug, PartialEq)]
pub struct PodFields(NewPartition);

impl RecreatedPod {
    /// Shows a Pod without what the operator has put into it. `None`: the Pod webhook shows no guest such a Pod, because it
    /// requests no partition of its own, or in a form that the operator itself refuses.
    pub fn of(mut pod: Value, namespace: &str) -> Option<Self> {
        let removals = copied::removals(&pod).operations;
        json_patch::patch(&mut pod, &removals).ok()?;
        let Ok(Some(PodRequest::New(partition))) = PodRequest::of(&pod) else {
            return None;
        };
        Some(Self {
            job: as_job(pod, namespace, &partition),
            fields: PodFields(partition),
        })
    }
}

impl PodFields {
    /// Replaces the field of the IPUJob in a violation by that of the Pod.
    pub fn translate(&self, violation: &mut Violation) {
        shown::translate(violation, &self.0);
    }
}

/// The IPUJob as which rules see a Pod that requests this partition.
pub(super) fn as_job(pod: Value, namespace: &str, partition: &NewPartition) -> Value {
    // A Pod with a partition of its own is the first GCD of it.
    let pod = patch::without_additions(pod, 0);
    shown::as_job(pod, namespace, partition.ipus)
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

    /// The Pod after the webhook, and after the operator has given it a partition and a scheduler a node.
    fn bound() -> Value {
        let mut bound = pod(|_| {});
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

    #[test]
    fn a_pod_with_a_partition_is_shown_as_its_user_wrote_it() {
        let mut wrote = pod(|pod| pod["spec"]["nodeSelector"] = json!({"disk": "ssd"}));
        wrote["metadata"]["labels"] = json!({"graphcore.ai/native-pod": "true"});
        let new = RecreatedPod::of(wrote, "team").unwrap();
        assert_eq!(RecreatedPod::of(bound(), "team"), Some(new));
    }

    #[test]
    fn violations_are_about_the_fields_of_the_pod() {
        let recreated = RecreatedPod::of(bound(), "team").unwrap();
        let mut violation = Violation {
            field: "spec.ipusPerJobInstance".to_owned(),
            message: "wrong".to_owned(),
        };
        recreated.fields.translate(&mut violation);
        assert_eq!(violation.field, "metadata.annotations[graphcore.ai/ipu]");
    }

    #[test]
    fn guests_see_only_pods_with_a_partition_of_their_own() {
        for annotations in [
            json!({}),
            json!({"graphcore.ai/partition": "shared"}),
            json!({"graphcore.ai/ipu": "four"}),
        ] {
            let other = pod(|pod| pod["metadata"]["annotations"] = annotations.clone());
            assert_eq!(RecreatedPod::of(other, "team"), None, "{annotations}");
        }
    }
}
