//! Reviews the existing IPUJobs and native Pods for each Validation policy in mode Shadow, in the
//! replica that leads the rollout, which writes the results into the status of the policies.
//!
//! The reviews go one after the other, with a pause after each object, so that admission keeps the
//! processor and the permits of guests. Their calls count in no metric and for no promotion.

mod list;

use std::time::Duration;

use ipu_admission::audit::{ObjectName, Outcome, Subject, Tally};
use ipu_admission::shared_partition::{SizeTrial, review_with_size};
use ipu_api::guest::admission::{User, Verdict};
use ipu_api::ipupolicy::{Hook, Labels};
use ipu_guest_host::metrics::GuestCalls;
use ipu_guest_host::policy_request::{self, Answer, PolicyRequest};
use ipu_guest_host::{GuestError, GuestHost};
use ipu_policies::active_policies::{ActivePolicies, BoundShadow};
use ipu_policies::existing_reviews::{Due, Reviewed};
use ipu_policies::match_evaluator::Purpose;
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples::{IPUJOB, POD};
use ipu_policies::namespace_usage::Namespaces;
use ipu_runtime::lease::LeadershipStatus;
use ipu_runtime::scope::Scope;
use ipu_runtime::{clock, panics};
use ipu_text::explain;
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use self::list::{ListError, Listed, ObjectList};

pub use self::list::MEMORY;

/// Period at which the reviewer looks for policies whose review is due.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Shortest pause after an object: at most 40 objects are reviewed in a second.
const MIN_PAUSE: Duration = Duration::from_millis(25);

/// Multiple of the time of a call for which the reviewer pauses after it.
const PAUSE_FACTOR: u32 = 4;

/// Attempts to get an answer, while the process is busy with other requests.
const ATTEMPTS: u32 = 3;

/// Delay before another attempt.
const BUSY_DELAY: Duration = Duration::from_secs(1);

/// Reviews the existing objects for policies in mode Shadow.
pub struct ExistingReviewer {
    /// A client of the API server.
    pub client: Client,
    /// The namespaces whose objects the webhooks review.
    pub scope: Scope,
    /// Whether the operator gives IPUs to native Pods.
    pub has_native_pods: bool,
    /// The policies.
    pub active: ActivePolicies,
    /// The labels of the namespaces.
    pub namespaces: Namespaces,
    /// Whether this replica leads the rollout.
    pub leading: LeadershipStatus,
}

impl ExistingReviewer {
    /// Reviews the objects whenever a review is due, while this replica leads, until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let rounds = async {
            loop {
                if self.leading.is_valid() {
                    self.review_due().await;
                }
                sleep(CHECK_PERIOD).await;
            }
        };
        let _: Option<()> = stop.run_until_cancelled(rounds).await;
    }

    /// Reviews the objects for the policies whose review is due.
    async fn review_due(&self) {
        let reviews = self.active.existing_reviews();
        let chain = self.active.chain(Hook::Validation);
        let is_shadow = |uid: &str| chain.shadows.iter().any(|shadow| shadow.version.0 == uid);
        reviews.retain(is_shadow);
        for shadow in &chain.shadows {
            if shadow.policy.guest.digest().is_none() {
                continue;
            }
            let is_labelled = |namespace: &str| self.labels(namespace).is_some();
            let needs_labels = match reviews.due(&shadow.version, Instant::now(), is_labelled) {
                Due::NotYet => continue,
                Due::Now => true,
                Due::WithoutLabels => false,
            };
            let name = &*shadow.policy.name;
            match panics::caught(self.review(shadow, needs_labels)).await {
                Ok(Ok(Review::Ended(reviewed))) => {
                    reviews.store(&shadow.version, reviewed, Instant::now());
                }
                Ok(Ok(Review::Unlabelled(namespace))) => {
                    reviews.await_labels(&shadow.version, namespace, Instant::now());
                }
                Ok(Ok(Review::Outdated)) => {}
                Ok(Err(error)) => {
                    reviews.postpone(&shadow.version, Instant::now());
                    let reason = explain(&error);
                    warn!(
                        policy = name,
                        "failed to review the objects that exist; trying again: {reason}"
                    );
                }
                Err(panicked) => {
                    reviews.postpone(&shadow.version, Instant::now());
                    error!(
                        policy = name,
                        "failed to review the objects that exist; trying again: {panicked}"
                    );
                }
            }
        }
    }

    /// Reviews all objects. If it `needs_labels`, it ends at the first object whose namespace has
    /// unknown labels.
    async fn review(&self, shadow: &BoundShadow, needs_labels: bool) -> Result<Review, ListError> {
        let host = self.active.host().clone();
        let host = host.with_metrics(GuestCalls::default());
        let (mut tally, mut unlabelled) = (Tally::default(), None);
        let pods = self.has_native_pods.then_some(POD);
        for resource in [Some(IPUJOB), pods].into_iter().flatten() {
            let mut list = ObjectList::new(resource, &self.scope);
            while let Some(listed) = list.next(&self.client).await? {
                if !self.is_current(shadow) {
                    return Ok(Review::Outdated);
                }
                let began = Instant::now();
                let judged = match listed {
                    Listed::Object(object) => self.judge(&host, shadow, object, resource).await,
                    Listed::TooLarge(metadata, reason) => Judged {
                        object: ObjectName::of(&metadata, resource),
                        outcome: Outcome::Failed(reason),
                        lacks_labels: false,
                    },
                };
                if judged.lacks_labels {
                    let namespace = judged.object.namespace.clone();
                    if needs_labels {
                        return Ok(Review::Unlabelled(namespace));
                    }
                    unlabelled.get_or_insert(namespace);
                }
                tally.add(judged.object, judged.outcome);
                sleep(MIN_PAUSE.max(began.elapsed() * PAUSE_FACTOR)).await;
            }
        }
        let result = tally.ended(shadow.version.1, clock::now());
        Ok(Review::Ended(Reviewed { result, unlabelled }))
    }

    /// Returns the labels of a namespace, if they are known.
    fn labels(&self, namespace: &str) -> Option<Labels> {
        self.namespaces.context(namespace, "").labels
    }

    /// Whether this replica leads, and the version is still in mode Shadow.
    fn is_current(&self, shadow: &BoundShadow) -> bool {
        let chain = self.active.chain(Hook::Validation);
        let mut shadows = chain.shadows.iter();
        self.leading.is_valid() && shadows.any(|current| current.version == shadow.version)
    }

    async fn judge(
        &self,
        host: &GuestHost,
        shadow: &BoundShadow,
        object: Value,
        resource: ReviewedResource,
    ) -> Judged {
        let labels = |namespace: &str| self.labels(namespace);
        let (name, subject) = Subject::of(object, resource, &User::default(), labels);
        let Some(subject) = subject else {
            return Judged {
                object: name,
                outcome: Outcome::NotMatched,
                lacks_labels: false,
            };
        };
        let evaluator = self.active.evaluator();
        let matcher = &shadow.policy.matcher;
        let matched = evaluator
            .matches(matcher, &subject.match_subject(), Purpose::DryRun)
            .await;
        let outcome = match matched {
            Ok(true) => subject.outcome(call(host, shadow, &subject.request).await),
            Ok(false) => Outcome::NotMatched,
            Err(error) => Outcome::Failed(explain(&error)),
        };
        let is_matched = outcome != Outcome::NotMatched;
        Judged {
            object: name,
            outcome,
            lacks_labels: is_matched && subject.match_subject().namespace_labels.is_none(),
        }
    }
}

/// The end of a review.
enum Review {
    /// All objects are reviewed.
    Ended(Reviewed),
    /// The labels of this namespace are not known yet.
    Unlabelled(String),
    /// The version is no longer the one in mode Shadow, or this replica no longer leads.
    Outdated,
}

/// An object, and its outcome.
struct Judged {
    object: ObjectName,
    outcome: Outcome,
    /// Whether the guest or `spec.match` has decided without the labels of the namespace.
    lacks_labels: bool,
}

/// Asks the guest, also about other sizes of an object without a size.
async fn call(
    host: &GuestHost,
    shadow: &BoundShadow,
    request: &PolicyRequest,
) -> Result<Answer, GuestError> {
    let PolicyRequest::Validation(review) = request else {
        return Err(GuestError::Missing(Hook::Validation));
    };
    let mut trial = SizeTrial::of_review(validate(host, shadow, review).await?, review);
    while let Some(ipus) = trial.next_size() {
        let sized = review_with_size(review, ipus);
        trial.note(validate(host, shadow, &sized).await?);
    }
    Ok(Answer::Verdict(trial.verdict()))
}

/// Calls the guest. While the process is busy, other requests precede this one.
async fn validate(
    host: &GuestHost,
    shadow: &BoundShadow,
    review: &policy_request::Review,
) -> Result<Verdict, GuestError> {
    let admission = review.admission();
    let mut attempt = 1;
    loop {
        let answer = host
            .validate(&shadow.policy.guest, &admission, &review.object, None)
            .await;
        match answer {
            Err(error) if !error.is_failure() && attempt < ATTEMPTS => {
                attempt += 1;
                sleep(BUSY_DELAY).await;
            }
            answer => return answer.map(|served| served.answer),
        }
    }
}

#[cfg(test)]
mod tests;
