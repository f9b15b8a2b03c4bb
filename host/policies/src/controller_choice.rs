//! Calls the guest of the active placement policy. If its decision is invalid or missing, the
//! built-in serial walk decides, or the request waits (`onError`).

use ipu_api::guest::digest::ModuleDigest;
use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PassedOver, PlaceAttempt, Placed,
};
use ipu_api::ipupolicy::{Hook, OnError};
use ipu_guest_host::GuestError;
use ipu_placement::decision_check::check_decision;
use ipu_placement::serial_walk::serial_walk;
use ipu_text::explain;

use super::active_policies::{ActivePolicies, HookChain, is_sampled};
use super::bound_policy::BoundPolicy;
use super::call_stats::{Comparison, Requester};
use super::comparison;
use super::match_evaluator::Purpose;
use super::match_input::MatchInput;
use super::matcher::MatchSubject;

impl ActivePolicies {
    /// Decides what to do next for a requested partition. There always is a decision.
    pub async fn place(
        &self,
        request: &PartitionRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Placed {
        let chain = self.chain(Hook::Placement);
        let input = MatchInput::of_partition(request);
        let subject = subject(request, &input);
        let stage = chain.stages.first().map(Vec::as_slice).unwrap_or_default();
        let dry_run = request.context.progress.dry_run;
        let purpose = if dry_run {
            Purpose::DryRun
        } else {
            Purpose::Decision
        };
        let evaluator = self.evaluator();
        let matched = evaluator.first_match(stage, &subject, purpose).await;
        let built_in = BoundPolicy::built_in(Hook::Placement);
        let (policy, (digest, checked)) = match matched {
            Some((policy, Ok(()))) => (
                policy,
                self.call(policy, request, controllers, attempts).await,
            ),
            Some((policy, Err(error))) => (policy, (None, Err(explain(&error)))),
            None => (&built_in, (None, Err("no guest is active".into()))),
        };
        if let (Err(reason), false) = (&checked, dry_run) {
            self.record_failure(policy, request, reason);
        }
        let is_unanswered = checked.is_err() && policy.on_error == OnError::Wait;
        let (decision, overruled) = match checked {
            Ok(decision) => (decision, None),
            Err(_) if is_unanswered => (unanswered(&policy.name, controllers), None),
            Err(reason) => (serial_walk(request, controllers, attempts), Some(reason)),
        };
        let placed = Placed {
            decision,
            digest,
            policy: policy.name.to_string(),
            overruled,
        };
        // Dry runs are frequent and change nothing, and a request without an answer has nothing to
        // compare with.
        if !dry_run && !is_unanswered {
            let decided = || DecidedRequest {
                input: input.clone(),
                request: request.clone(),
                controllers: controllers.to_vec(),
                attempts: attempts.to_vec(),
                enforced: placed.decision.clone(),
            };
            self.compare(&chain, &subject, request, decided);
        }
        placed
    }

    /// Starts the comparisons with the shadow policies of the chain in the background.
    fn compare(
        &self,
        chain: &HookChain,
        subject: &MatchSubject<'_>,
        request: &PartitionRequest,
        decided: impl Fn() -> DecidedRequest,
    ) {
        let name = format!("{}/{}/{}", request.namespace, request.owner, request.slot);
        for shadow in &chain.shadows {
            if is_sampled(shadow.share_percent, &name) && shadow.selects(subject) {
                self.compare_in_background(
                    shadow,
                    Purpose::Decision,
                    &decided,
                    DecidedRequest::subject,
                    DecidedRequest::compare,
                );
            }
        }
    }

    /// Logs and counts that the guest gave no usable answer.
    fn record_failure(&self, policy: &BoundPolicy, request: &PartitionRequest, reason: &str) {
        let (name, metrics) = (&*policy.name, self.host().metrics());
        let (owner, namespace) = (&*request.owner, &*request.namespace);
        if policy.on_error == OnError::Wait {
            metrics.count_unanswered(name);
            tracing::warn!(
                policy = name,
                owner,
                namespace,
                "the request waits for an answer of the guest: {reason}"
            );
        } else {
            metrics.count_fallback(name);
            tracing::warn!(
                policy = name,
                owner,
                namespace,
                "the built-in serial walk decides instead of the guest: {reason}"
            );
        }
    }

    /// Calls one guest, and checks its decision.
    async fn call(
        &self,
        policy: &BoundPolicy,
        request: &PartitionRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> (Option<ModuleDigest>, Result<Decision, String>) {
        let host = self.host();
        let dry_run = request.context.progress.dry_run;
        let answered = async {
            loop {
                let call = host.place(&policy.guest, request, controllers, attempts);
                match call.await {
                    // A decision waits: a long queue must not change which guest decides.
                    Err(GuestError::Busy { .. }) if !dry_run => {}
                    answer => return answer,
                }
            }
        };
        // Anyone can request a dry run, so it must not cause a rollback.
        let owner = format!("{}/{}", request.namespace, request.owner);
        let requester = Requester {
            namespace: &request.namespace,
            user: &owner,
        };
        let record = |failed| {
            if !dry_run {
                policy.stats.record_call(failed, Some(requester));
            }
        };
        match answered.await {
            Ok(served) => {
                let checked = check_decision(served.answer, request, controllers, attempts);
                record(checked.is_err());
                (Some(served.digest), checked)
            }
            Err(error) => {
                if error.is_failure() {
                    record(true);
                }
                (policy.guest.digest().cloned(), Err(explain(&error)))
            }
        }
    }
}

/// A request with its enforced decision, for the comparison with a shadow policy.
struct DecidedRequest {
    input: MatchInput,
    request: PartitionRequest,
    controllers: Vec<ControllerView>,
    attempts: Vec<PlaceAttempt>,
    enforced: Decision,
}

impl DecidedRequest {
    fn subject(&self) -> MatchSubject<'_> {
        subject(&self.request, &self.input)
    }

    /// Calls the guest of the shadow policy, checks its decision, and compares it with the enforced
    /// one.
    async fn compare(policies: ActivePolicies, shadow: BoundPolicy, decided: Self) -> Comparison {
        let Self {
            request,
            controllers,
            attempts,
            enforced,
            ..
        } = decided;
        let host = policies.host();
        let answer = host.place(&shadow.guest, &request, &controllers, &attempts);
        match answer.await {
            Ok(served) => match check_decision(served.answer, &request, &controllers, &attempts) {
                Ok(decision) => comparison::decisions(&enforced, &decision),
                Err(why) => Comparison::Different(format!("it would have been overruled: {why}")),
            },
            Err(error) => Comparison::without_answer(&error),
        }
    }
}

/// Builds the decision of a policy whose request waits for its guest. The reason has no details,
/// which could change with each call: the log has them.
fn unanswered(policy: &str, controllers: &[ControllerView]) -> Decision {
    let reason = format!(
        "the guest of IPUPolicy {policy} gives no answer, and spec.onError is Wait; the operator calls it again"
    );
    let passed_over = controllers.iter().map(|controller| PassedOver {
        controller: controller.name.clone(),
        reason: reason.clone(),
    });
    Decision::Wait(passed_over.collect())
}

fn subject<'a>(request: &'a PartitionRequest, input: &'a MatchInput) -> MatchSubject<'a> {
    MatchSubject {
        namespace_labels: request.context.namespace.labels.as_ref(),
        old_object: None,
        input,
    }
}

#[cfg(test)]
mod tests;
