//! Pure: the rules that apply to no Pod that shares a partition. Guests see it as an IPUJob with 0
//! IPUs.
//!
//! Such a Pod has no size, so rules about sizes must not refuse it: that 0 is no power of two, or
//! less than the least. A guest does not say what a rule is about, and any rule may name the field
//! of the size. Therefore the guest is asked about the same Pod with other sizes. What it reports
//! for every one of them is not about the size, and holds.

use std::slice::Iter;

use ipu_api::guest::admission::{Verdict, Violation};
use ipu_api::labels::{NATIVE_POD_LABEL, PARTITION_ANNOTATION};
use ipu_guest_host::policy_request::Review;
use serde_json::{Value, json};

use super::request::{AdmissionRequest, Reviewed};

/// The field of an IPUJob that holds its size.
pub(super) const SIZE: &str = "spec.ipusPerJobInstance";

/// The sizes of partitions, in IPUs.
const SIZES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// Whether an IPUJob shows a Pod that shares a partition.
pub fn shares_partition(job: &Value) -> bool {
    let metadata = &job["metadata"];
    metadata["labels"][NATIVE_POD_LABEL] == "true"
        && metadata["annotations"][PARTITION_ANNOTATION].is_string()
        && job["spec"]["ipusPerJobInstance"] == "0"
}

/// Which violations of the size hold for a Pod without a size.
#[derive(Debug)]
pub struct SizeTrial {
    verdict: Verdict,
    sizes: Iter<'static, u32>,
}

impl SizeTrial {
    /// A trial of the verdict on a request. The owner of an IPUJob writes its labels and
    /// annotations himself.
    pub fn of(verdict: Verdict, request: &AdmissionRequest) -> Self {
        let is_shared = request.reviewed == Reviewed::Pod && shares_partition(&request.object);
        Self::new(verdict, is_shared)
    }

    /// A trial of the verdict on an object that no user writes as an IPUJob.
    pub fn of_review(verdict: Verdict, review: &Review) -> Self {
        Self::new(verdict, shares_partition(&review.object))
    }

    fn new(verdict: Verdict, is_shared: bool) -> Self {
        let sizes = if is_shared { &SIZES[..] } else { &[] };
        Self {
            verdict,
            sizes: sizes.iter(),
        }
    }

    /// Returns the next size, in IPUs, for which the guest is to be asked. `None`: the verdict is
    /// known.
    pub fn next_size(&mut self) -> Option<u32> {
        if !self.verdict.violations.iter().any(is_about_size) {
            return None;
        }
        self.sizes.next().copied()
    }

    /// Notes the verdict on the Pod with the size.
    pub fn note(&mut self, mut other: Verdict) {
        other.violations.retain(is_about_size);
        let violations = &mut self.verdict.violations;
        let before = violations
            .iter()
            .filter(|violation| is_about_size(violation));
        if other.violations.len() < before.count() {
            violations.retain(|violation| !is_about_size(violation));
            violations.extend(other.violations);
        }
    }

    /// Returns the verdict without violations that another size would not have.
    pub fn verdict(self) -> Verdict {
        self.verdict
    }
}

/// The IPUJob that shows a Pod with this size, in IPUs.
pub fn with_size(job: &Value, ipus: u32) -> Value {
    let mut job = job.clone();
    job["spec"]["ipusPerJobInstance"] = json!(ipus.to_string());
    job
}

/// The review of a Pod with this size, in IPUs.
pub fn review_with_size(review: &Review, ipus: u32) -> Review {
    let old = review.old_object.as_ref();
    Review {
        object: with_size(&review.object, ipus),
        old_object: old.map(|old| with_size(old, ipus)),
        ..review.clone()
    }
}

fn is_about_size(violation: &Violation) -> bool {
    violation.field == SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    fn violation(field: &str, message: &str) -> Violation {
        Violation {
            field: field.to_owned(),
            message: message.to_owned(),
        }
    }

    /// The review of a Pod that shares a partition.
    fn sharing() -> AdmissionRequest {
        let mut sharing = request(|review| {
            let metadata = &mut review["object"]["metadata"];
            metadata["labels"] = json!({"graphcore.ai/native-pod": "true"});
            metadata["annotations"] = json!({"graphcore.ai/partition": "shared"});
            review["object"]["spec"]["ipusPerJobInstance"] = json!("0");
        });
        sharing.reviewed = Reviewed::Pod;
        sharing
    }

    /// A rule about the size: its name, and whether it allows this number of IPUs.
    type Rule = (&'static str, fn(u32) -> bool);

    /// The messages of these rules about the size that hold for a request.
    fn held(request: &AdmissionRequest, rules: &[Rule]) -> Vec<String> {
        let ask = |ipus: u32| {
            let broken = rules.iter().filter(|(_, allows)| !allows(ipus));
            let broken = broken.map(|(name, _)| violation(SIZE, &format!("{name}: {ipus}")));
            Verdict {
                violations: broken
                    .chain([violation("metadata.name", "other")])
                    .collect(),
                warnings: vec!["old spelling".to_owned()],
            }
        };
        let mut trial = SizeTrial::of(ask(0), request);
        while let Some(ipus) = trial.next_size() {
            let job = with_size(&request.object, ipus);
            let shown = job["spec"]["ipusPerJobInstance"].as_str().unwrap();
            trial.note(ask(shown.parse().unwrap()));
        }
        let mut verdict = trial.verdict();
        assert_eq!(verdict.warnings, ["old spelling"]);
        let other = verdict
            .violations
            .iter()
            .filter(|violation| !is_about_size(violation));
        assert_eq!(other.count(), 1);
        verdict.violations.retain(is_about_size);
        let messages = verdict
            .violations
            .into_iter()
            .map(|violation| violation.message);
        messages.collect()
    }

    #[test]
    fn a_rule_that_some_size_would_keep_is_about_the_size() {
        for rule in [
            (|ipus| ipus.is_power_of_two()) as fn(u32) -> bool,
            |ipus| ipus >= 16,
            |ipus| [4, 8].contains(&ipus),
            |ipus| (1..=2).contains(&ipus),
        ] {
            assert_eq!(held(&sharing(), &[("size", rule)]), [""; 0]);
        }
    }

    #[test]
    fn a_rule_that_every_size_breaks_holds_whatever_field_it_names() {
        let nothing: Rule = ("no IPUs here", |_| false);
        assert_eq!(held(&sharing(), &[nothing]).len(), 1);
        let sizes: Rule = ("size", |ipus| ipus == 8);
        assert_eq!(held(&sharing(), &[sizes, nothing]), ["no IPUs here: 8"]);
    }

    #[test]
    fn the_owner_of_a_job_cannot_take_its_size_away() {
        let mut job = sharing();
        job.reviewed = Reviewed::IPUJob;
        let size: Rule = ("size", |ipus| ipus > 0);
        assert_eq!(held(&job, &[size]), ["size: 0"]);
    }

    #[test]
    fn both_states_of_a_pod_are_shown_with_the_size() {
        let mut review = Review::of(
            sharing().admission(
                ipu_api::guest::admission::Operation::Update,
                Default::default(),
            ),
            sharing().object,
            Some(sharing().object),
        );
        review = review_with_size(&review, 4);
        let old = review.old_object.unwrap();
        for object in [&review.object, &old] {
            assert_eq!(object["spec"]["ipusPerJobInstance"], json!("4"));
            assert!(!shares_partition(object));
        }
    }
}
