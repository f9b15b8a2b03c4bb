//! Pure: the rules that apply to no Pod that shares a partition. Guests see it as an IPUJob with 0 IPUs.

use ipu_api::labels::{NATIVE_POD_LABEL, PARTITION_ANNOTATION};
use ipu_guest_host::model::Verdict;
use serde_json::Value;

use super::request::{AdmissionRequest, Reviewed};

/// The field of an IPUJob that holds its size.
pub(super) const SIZE: &str = "spec.ipusPerJobInstance";

/// Returns the verdict on a request without violations of fields that its object does not have.
pub fn applicable(verdict: Verdict, request: &AdmissionRequest) -> Verdict {
    // The user of an IPUJob writes its labels and annotations himself.
    let is_pod = request.reviewed == Reviewed::Pod;
    if is_pod && shares_partition(&request.object) {
        return without_size(verdict);
    }
    verdict
}

/// Whether an IPUJob shows a Pod that shares a partition.
pub fn shares_partition(job: &Value) -> bool {
    let metadata = &job["metadata"];
    metadata["labels"][NATIVE_POD_LABEL] == "true"
        && metadata["annotations"][PARTITION_ANNOTATION].is_string()
        && job["spec"]["ipusPerJobInstance"] == "0"
}

/// Removes the violations of the size: a Pod that shares a partition has none, so no rule about sizes applies to it.
pub(super) fn without_size(mut verdict: Verdict) -> Verdict {
    verdict
        .violations
        .retain(|violation| violation.field != SIZE);
    verdict
}

#[cfg(test)]
mod tests {
    use ipu_guest_host::model::Violation;
    use serde_json::json;

    use super::*;
    use crate::request::tests::request;

    fn verdict(violations: &[Violation]) -> Verdict {
        Verdict {
            violations: violations.to_vec(),
            warnings: vec!["old spelling".to_owned()],
        }
    }

    #[test]
    fn only_pods_that_share_a_partition_have_no_size() {
        let mut asked = request(|review| {
            let metadata = &mut review["object"]["metadata"];
            metadata["labels"] = json!({"graphcore.ai/native-pod": "true"});
            metadata["annotations"] = json!({"graphcore.ai/partition": "shared"});
            review["object"]["spec"]["ipusPerJobInstance"] = json!("0");
        });
        let size = Violation {
            field: "spec.ipusPerJobInstance".to_owned(),
            message: "is too small".to_owned(),
        };
        let other = Violation {
            field: "metadata.name".to_owned(),
            ..size.clone()
        };
        let both = verdict(&[size, other.clone()]);
        // The owner of an IPUJob writes its labels and annotations himself.
        assert_eq!(applicable(both.clone(), &asked), both);
        asked.reviewed = Reviewed::Pod;
        assert_eq!(applicable(both, &asked), verdict(&[other]));
    }
}
