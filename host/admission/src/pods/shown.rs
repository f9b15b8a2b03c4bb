//! Pure: the IPUJob as which guests see a Pod that requests IPUs, and the Pod's fields for those of
//! that IPUJob.

use ipu_api::guest::admission::Violation;
use ipu_api::labels::NATIVE_POD_LABEL;
use ipu_api::pod_request::PodRequest;
use ipu_guest_host::texts;
use ipu_text::sanitize;
use serde_json::{Map, Value, json};

use crate::shared_partition::SIZE;

/// The field of an IPUJob that holds its Pods.
const TEMPLATE: &str = "spec.workers.template.";

/// The IPUJob of one instance with one worker that corresponds to this Pod. Its metadata is that of
/// the Pod, with the label of native Pods. It lacks the `restartPolicy` of the Pod, because that
/// field has another meaning in an IPUJob. A Pod that shares a partition has 0 IPUs: those of the
/// partition count for its owner.
pub(super) fn as_job(mut pod: Value, namespace: &str, ipus: u32) -> Value {
    let mut metadata = match pod["metadata"].take() {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    };
    metadata.insert("namespace".to_owned(), json!(namespace));
    let labels = metadata.entry("labels").or_insert(Value::Null);
    match labels {
        Value::Object(labels) => {
            labels.insert(NATIVE_POD_LABEL.to_owned(), json!("true"));
        }
        other => *other = json!({NATIVE_POD_LABEL: "true"}),
    }
    let mut spec = pod["spec"].take();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("restartPolicy");
    }
    let mut job = json!({
        "apiVersion": ipu_api::API_VERSION,
        "kind": "IPUJob",
        "metadata": metadata,
        "spec": {
            "jobInstances": 1,
            "ipusPerJobInstance": ipus.to_string(),
            "workers": {"template": {}},
        },
    });
    job["spec"]["workers"]["template"]["spec"] = spec;
    job
}

/// The size of the IPUJob as which a Pod is shown.
pub(super) fn ipus(job: &Value) -> Option<u32> {
    let size = job.pointer("/spec/ipusPerJobInstance")?.as_str()?;
    size.parse().ok().filter(|ipus| *ipus > 0)
}

/// Replaces the field of the IPUJob by that of the Pod. A field that a Pod does not have is named
/// in the message.
pub(super) fn translate(violation: &mut Violation, request: &PodRequest) {
    let field = &violation.field;
    if field == SIZE {
        violation.field = request.field();
    } else if let Some(rest) = field.strip_prefix(TEMPLATE) {
        violation.field = rest.to_owned();
    } else if field.starts_with("spec") {
        let message = format!("as an IPUJob, {field}: {}", violation.message);
        violation.message = sanitize(&message, texts::MESSAGE);
        violation.field = request.field();
    }
}

#[cfg(test)]
mod tests {
    use ipu_api::pod_request::{ExistingPartition, NewPartition};

    use super::*;
    use crate::shared_partition::shares_partition;

    fn new(container: Option<usize>) -> PodRequest {
        PodRequest::New(NewPartition {
            ipus: 4,
            container,
            is_annotated: container.is_none(),
        })
    }

    fn violation(field: &str) -> Violation {
        Violation {
            field: field.to_owned(),
            message: "wrong".to_owned(),
        }
    }

    #[test]
    fn a_pod_that_shares_a_partition_has_no_size() {
        let pod = |ipus, annotations: Value| {
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {}});
            as_job(pod, "team", ipus)
        };
        let annotations = json!({"graphcore.ai/partition": "shared"});
        let shared = pod(0, annotations.clone());
        assert_eq!(shared["spec"]["ipusPerJobInstance"], json!("0"));
        assert!(shares_partition(&shared));
        assert!(!shares_partition(&pod(4, annotations)));
        assert!(!shares_partition(&pod(0, json!({}))));
    }

    #[test]
    fn violations_of_a_shared_partition_name_its_annotation() {
        let request = PodRequest::Existing(ExistingPartition {
            name: "shared".to_owned(),
            gcd: 1,
        });
        let mut violation = violation("spec.jobInstances");
        translate(&mut violation, &request);
        assert_eq!(
            violation.field,
            "metadata.annotations[graphcore.ai/partition]"
        );
        assert_eq!(violation.message, "as an IPUJob, spec.jobInstances: wrong");
    }

    #[test]
    fn guests_see_one_instance_of_one_worker() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"generateName": "web-", "labels": {"app": "web"}},
            "spec": {"restartPolicy": "Always", "containers": [{"name": "main", "image": "a:1"}]},
        });
        let job = as_job(pod, "team", 4);
        let expected = json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
            "metadata": {
                "generateName": "web-", "namespace": "team",
                "labels": {"app": "web", "graphcore.ai/native-pod": "true"},
            },
            "spec": {
                "jobInstances": 1, "ipusPerJobInstance": "4",
                "workers": {"template": {"spec": {"containers": [{"name": "main", "image": "a:1"}]}}},
            },
        });
        assert_eq!(job, expected);
        assert_eq!(ipus(&job), Some(4));
    }

    #[test]
    fn match_conditions_are_tried_on_such_a_pod() {
        let pod = json!({
            "metadata": {"name": "sample"},
            "spec": {"containers": [{"name": "worker", "image": "sample"}]},
        });
        let sample = ipu_policies::match_samples::native_pod();
        assert_eq!(as_job(pod, "default", 4), sample);
    }

    #[test]
    fn a_pod_without_metadata_or_spec_is_shown_without_them() {
        let job = as_job(json!({"metadata": 7}), "team", 4);
        let labels = json!({"graphcore.ai/native-pod": "true"});
        assert_eq!(
            job["metadata"],
            json!({"namespace": "team", "labels": labels})
        );
        assert_eq!(job["spec"]["workers"]["template"]["spec"], json!(null));
    }

    #[test]
    fn the_size_is_a_number_of_at_least_one() {
        for (size, expected) in [
            (json!("8"), Some(8)),
            (json!("0"), None),
            (json!("x"), None),
            (json!(8), None),
        ] {
            let job = json!({"spec": {"ipusPerJobInstance": size}});
            assert_eq!(ipus(&job), expected, "{job}");
        }
    }

    #[test]
    fn violations_name_the_field_of_the_pod() {
        let limit = "spec.containers[1].resources.limits[graphcore.ai/ipu]";
        let cases = [
            (SIZE, Some(1), limit, "wrong"),
            (
                SIZE,
                None,
                "metadata.annotations[graphcore.ai/ipu]",
                "wrong",
            ),
            (
                "spec.workers.template.spec.containers[0].image",
                Some(1),
                "spec.containers[0].image",
                "wrong",
            ),
            (
                "metadata.labels.team",
                Some(1),
                "metadata.labels.team",
                "wrong",
            ),
            (
                "spec.jobInstances",
                Some(1),
                limit,
                "as an IPUJob, spec.jobInstances: wrong",
            ),
        ];
        for (field, container, expected, message) in cases {
            let mut violation = violation(field);
            translate(&mut violation, &new(container));
            assert_eq!(
                (&*violation.field, &*violation.message),
                (expected, message)
            );
        }
    }
}
