//! Pure: an existing object as the request that would create it again, and the answer of a guest as
//! the outcome.

use std::sync::Arc;

use ipu_api::guest::admission::{Admission, Operation, User};
use ipu_api::guest::namespace::NamespaceContext;
use ipu_api::ipupolicy::Labels;
use ipu_guest_host::GuestError;
use ipu_guest_host::policy_request::{Answer, PolicyRequest, Review};
use ipu_policies::match_input::{
    MatchInput, ReviewedResource, namespace_object, review_attributes,
};
use ipu_policies::match_samples::POD;
use ipu_policies::matcher::MatchSubject;
use ipu_text::explain;
use serde_json::{Value, json};

use super::outcome::{ObjectName, Outcome};
use crate::answer::Decision;
use crate::{PodFields, RecreatedPod, validate};

/// UID of the requests in match conditions.
const UID: &str = "audit";

/// A request that would create an object again.
#[derive(Debug)]
pub struct Subject {
    /// The request to a guest.
    pub request: PolicyRequest,
    input: MatchInput,
    /// `request` of the match conditions, if the object were updated.
    update: Arc<Value>,
    namespace_labels: Option<Labels>,
    pod: Option<PodFields>,
}

/// An update of an object, for match conditions.
#[derive(Debug)]
pub struct Update {
    input: MatchInput,
    namespace_labels: Option<Labels>,
}

impl Subject {
    /// Builds the request for an object of the API server. `None`: the operator calls no guest
    /// about it, because it is being deleted, or is a Pod that requests no IPUs. `labels` returns
    /// those of a namespace, if they are known.
    pub fn of(
        object: Value,
        resource: ReviewedResource,
        user: &User,
        labels: impl FnOnce(&str) -> Option<Labels>,
    ) -> (ObjectName, Option<Self>) {
        let name = ObjectName::of(&object, resource);
        let is_deleted = !object["metadata"]["deletionTimestamp"].is_null();
        if is_deleted {
            return (name, None);
        }
        let (object, pod) = if resource == POD {
            match RecreatedPod::of(created(object), &name.namespace) {
                Some(RecreatedPod { job, fields }) => (job, Some(fields)),
                None => return (name, None),
            }
        } else {
            (created(object), None)
        };
        let namespace_labels = labels(&name.namespace);
        let admission = Admission {
            user: user.clone(),
            namespace: name.namespace.clone(),
            context: NamespaceContext {
                labels: namespace_labels.clone(),
                usage: None,
            },
            ..Admission::of(Operation::Create)
        };
        let attributes = review_attributes(UID, &name.name, resource, &admission);
        let update = Admission {
            operation: Operation::Update,
            ..admission.clone()
        };
        let subject = Self {
            update: Arc::new(review_attributes(UID, &name.name, resource, &update)),
            input: MatchInput {
                object: Some(Arc::new(object.clone())),
                old_object: None,
                request: Arc::new(attributes),
                namespace_object: namespace_object(&name.namespace, namespace_labels.as_ref()),
            },
            request: PolicyRequest::Validation(Review::of(admission, object, None)),
            namespace_labels,
            pod,
        };
        (name, Some(subject))
    }

    /// Returns what `spec.match` reads.
    pub fn match_subject(&self) -> MatchSubject<'_> {
        MatchSubject {
            namespace_labels: self.namespace_labels.as_ref(),
            old_object: None,
            input: &self.input,
        }
    }

    /// Returns updates of the object that show whether the operator calls a guest at updates: one
    /// that leaves the object as it is, and one that sets all of it, for conditions that compare it
    /// with the previous object.
    pub fn updates(&self) -> [Update; 2] {
        let unchanged = self.input.object.clone();
        [unchanged, Some(Arc::new(json!({})))].map(|old_object| Update {
            input: MatchInput {
                old_object,
                request: self.update.clone(),
                ..self.input.clone()
            },
            namespace_labels: self.namespace_labels.clone(),
        })
    }

    /// Returns the outcome of an answer, in fields of the object.
    pub fn outcome(&self, answer: Result<Answer, GuestError>) -> Outcome {
        let decision = match answer {
            Ok(Answer::Verdict(verdict)) => validate::decision(verdict).0,
            Ok(Answer::Defaulting(_) | Answer::Decision(_)) => {
                return Outcome::Failed("the answer is of another world".to_owned());
            }
            Err(error) => return Outcome::Failed(explain(&error)),
        };
        let Decision::Refused(mut violations) = decision else {
            return Outcome::Allowed;
        };
        for violation in &mut violations {
            if let Some(pod) = &self.pod {
                pod.translate(violation);
            }
        }
        Outcome::Refused(violations)
    }
}

impl Update {
    /// Returns what `spec.match` reads. Selectors read the labels that the object has.
    pub fn match_subject(&self) -> MatchSubject<'_> {
        MatchSubject {
            namespace_labels: self.namespace_labels.as_ref(),
            old_object: None,
            input: &self.input,
        }
    }
}

/// Removes what the API server does not take from the user who creates an object.
fn created(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        metadata.insert("generation".to_owned(), json!(1));
    }
    object
}

#[cfg(test)]
mod tests {
    use ipu_api::guest::admission::{Verdict, Violation};
    use ipu_policies::match_samples::IPUJOB;

    use super::*;
    use crate::shared_partition::shares_partition;

    fn job() -> Value {
        json!({
            "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
            "metadata": {
                "name": "mnist", "namespace": "team", "uid": "1", "resourceVersion": "7", "generation": 3,
                "managedFields": [], "labels": {"team": "a"},
            },
            "spec": {"ipusPerJobInstance": "4"},
            "status": {"state": "Running"},
        })
    }

    fn pod(annotations: &Value) -> Value {
        json!({
            "metadata": {"name": "web", "namespace": "team", "uid": "2", "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "a:1"}]},
            "status": {"phase": "Running"},
        })
    }

    fn subject(object: Value, resource: ReviewedResource) -> (ObjectName, Option<Subject>) {
        let labels = |namespace: &str| {
            (namespace == "team").then(|| [("tier".to_owned(), "trial".to_owned())].into())
        };
        let user = User {
            name: "jane".to_owned(),
            groups: vec!["team".to_owned()],
        };
        Subject::of(object, resource, &user, labels)
    }

    fn review(subject: &Subject) -> &Review {
        match &subject.request {
            PolicyRequest::Validation(review) => review,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(field: &str) -> Answer {
        Answer::Verdict(Verdict {
            violations: vec![Violation {
                field: field.to_owned(),
                message: "no".to_owned(),
            }],
            warnings: vec!["old".to_owned()],
        })
    }

    #[test]
    fn a_job_is_reviewed_as_if_its_user_created_it_again() {
        let (name, subject) = subject(job(), IPUJOB);
        let subject = subject.unwrap();
        assert_eq!(
            (&*name.api_version, name.kind),
            ("graphcore.ai/v1alpha1", "IPUJob")
        );
        let mut expected = job();
        expected.as_object_mut().unwrap().remove("status");
        expected["metadata"] = json!({
            "name": "mnist", "namespace": "team", "uid": "1", "generation": 1, "labels": {"team": "a"},
        });
        let review = review(&subject);
        assert_eq!(review.object, expected);
        assert_eq!(review.operation, Operation::Create);
        assert_eq!((&review.old_object, review.dry_run), (&None, false));
        assert_eq!(review.user.name, "jane");
        assert_eq!(review.context.labels.as_ref().unwrap()["tier"], "trial");
        let input = subject.match_subject().input;
        assert_eq!(input.object.as_deref(), Some(&expected));
        assert_eq!(input.request["resource"]["resource"], json!("ipujobs"));
        assert_eq!(input.request["operation"], json!("CREATE"));
    }

    #[test]
    fn a_pod_is_reviewed_as_a_job_and_reported_as_a_pod() {
        let (name, subject) = subject(pod(&json!({"graphcore.ai/ipu": "4"})), POD);
        let subject = subject.unwrap();
        assert_eq!((&*name.api_version, name.kind), ("v1", "Pod"));
        let review = review(&subject);
        assert_eq!(review.object["kind"], json!("IPUJob"));
        assert_eq!(review.object["spec"]["ipusPerJobInstance"], json!("4"));
        let input = subject.match_subject().input;
        assert_eq!(input.request["resource"]["resource"], json!("pods"));
        let outcome = subject.outcome(Ok(refusal("spec.ipusPerJobInstance")));
        let Outcome::Refused(violations) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(
            violations[0].field,
            "metadata.annotations[graphcore.ai/ipu]"
        );
    }

    #[test]
    fn a_pod_that_shares_a_partition_is_shown_without_a_size() {
        let shared = pod(&json!({"graphcore.ai/partition": "shared"}));
        let subject = subject(shared, POD).1.unwrap();
        assert!(shares_partition(&review(&subject).object));
        for (field, expected) in [
            (
                "spec.ipusPerJobInstance",
                "metadata.annotations[graphcore.ai/partition]",
            ),
            (
                "spec.workers.template.spec.containers[0].image",
                "spec.containers[0].image",
            ),
        ] {
            let Outcome::Refused(violations) = subject.outcome(Ok(refusal(field))) else {
                panic!("it is refused");
            };
            assert_eq!(violations[0].field, expected);
        }
    }

    #[test]
    fn an_update_differs_from_the_creation_in_its_operation_and_previous_object() {
        let subject = subject(job(), IPUJOB).1.unwrap();
        let created = subject.match_subject().input.clone();
        let updates = subject.updates();
        let subjects = updates.each_ref().map(Update::match_subject);
        for update in subjects {
            assert_eq!(update.input.request["operation"], json!("UPDATE"));
            assert_eq!(update.input.object, created.object);
            assert_eq!(update.namespace_labels.unwrap()["tier"], "trial");
        }
        let old = subjects.map(|update| update.input.old_object.clone());
        assert_eq!(old, [created.object, Some(Arc::new(json!({})))]);
    }

    #[test]
    fn no_guest_is_called_about_other_objects() {
        let mut deleted = job();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let without_ipus = pod(&json!({}));
        for (object, resource) in [(deleted, IPUJOB), (without_ipus, POD)] {
            let (name, subject) = subject(object, resource);
            assert_eq!(name.namespace, "team");
            assert!(subject.is_none(), "{name:?}");
        }
    }

    #[test]
    fn only_violations_refuse() {
        let (_, subject) = subject(job(), IPUJOB);
        let subject = subject.unwrap();
        let allowed = Ok(Answer::Verdict(Verdict::default()));
        assert_eq!(subject.outcome(allowed), Outcome::Allowed);
        assert!(matches!(
            subject.outcome(Ok(refusal("spec.ipusPerJobInstance"))),
            Outcome::Refused(violations) if violations[0].field == "spec.ipusPerJobInstance"
        ));
        let failed = subject.outcome(Err(GuestError::Failed("late".to_owned())));
        assert!(
            matches!(&failed, Outcome::Failed(reason) if reason.contains("late")),
            "{failed:?}"
        );
    }
}
