//! Calls the guest of the active placement policy. If its decision is invalid or missing, the built-in serial walk
//! decides.

use ipu_api::ipupolicy::{BUILT_IN, Hook};
use ipu_guest_host::model::{
    ControllerView, Decision, ModuleDigest, PartitionRequest, PlaceAttempt, Placed,
};
use ipu_guest_host::{GuestError, check_decision, serial_walk};
use ipu_runtime::panics::caught;
use ipu_text::explain;

use super::active_policies::{ActivePolicies, BoundShadow, is_sampled};
use super::bound_policy::BoundPolicy;
use super::call_stats::Comparison;
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
        let (policy, digest, checked) = match matched {
            Some((policy, Ok(()))) => {
                let (digest, checked) = self.call(policy, request, controllers, attempts).await;
                (policy.name.to_string(), digest, checked)
            }
            Some((policy, Err(error))) => (policy.name.to_string(), None, Err(explain(&error))),
            None => (BUILT_IN.to_owned(), None, Err("no guest is active".into())),
        };
        let placed = match checked {
            Ok(decision) => Placed {
                decision,
                digest,
                policy,
                overruled: None,
            },
            Err(reason) => {
                if !dry_run {
                    self.record_fallback(&policy, request, &reason);
                }
                Placed {
                    decision: serial_walk(request, controllers, attempts),
                    digest,
                    policy,
                    overruled: Some(reason),
                }
            }
        };
        // Dry runs are frequent and change nothing.
        let shadows = chain.shadows.iter();
        for shadow in shadows.filter(|_| !dry_run) {
            let name = format!("{}/{}/{}", request.namespace, request.owner, request.slot);
            if is_sampled(shadow.share_percent, &name)
                && shadow.policy.matcher.selects(&subject) == Ok(true)
            {
                let call = (request, controllers, attempts);
                self.compare_decision(shadow, &input, call, &placed.decision);
            }
        }
        placed
    }

    /// Logs and counts that the built-in serial walk decides.
    fn record_fallback(&self, policy: &str, request: &PartitionRequest, reason: &str) {
        tracing::warn!(
            policy,
            owner = request.owner,
            namespace = request.namespace,
            "the built-in serial walk decides instead of the guest: {reason}"
        );
        self.host().metrics().count_fallback(policy);
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
        let record = |failed| {
            if !dry_run {
                policy
                    .stats
                    .record_call(failed, Some(&request.namespace));
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

    fn compare_decision(
        &self,
        shadow: &BoundShadow,
        input: &MatchInput,
        (request, controllers, attempts): (&PartitionRequest, &[ControllerView], &[PlaceAttempt]),
        enforced: &Decision,
    ) {
        let stats = shadow.policy.stats.clone();
        let Ok(permit) = self.comparison_permits().clone().try_acquire_owned() else {
            stats.record_comparison(Comparison::Skipped);
            return;
        };
        let (policies, input) = (self.clone(), input.clone());
        let (guest, matcher) = (shadow.policy.guest.clone(), shadow.policy.matcher.clone());
        let (request, controllers) = (request.clone(), controllers.to_vec());
        let (attempts, enforced) = (attempts.to_vec(), enforced.clone());
        tokio::spawn(caught(async move {
            let subject = subject(&request, &input);
            if policies
                .evaluator()
                .matches(&matcher, &subject, Purpose::Decision)
                .await
                != Ok(true)
            {
                return;
            }
            let host = policies.host();
            let answer = host.place(&guest, &request, &controllers, &attempts).await;
            let checked = answer
                .map(|served| check_decision(served.answer, &request, &controllers, &attempts));
            stats.record_comparison(match checked {
                Ok(Ok(decision)) => comparison::decisions(&enforced, &decision),
                Ok(Err(why)) => {
                    Comparison::Different(format!("it would have been overruled: {why}"))
                }
                Err(error) => Comparison::without_answer(&error),
            });
            drop(permit);
        }));
    }
}

fn subject<'a>(request: &'a PartitionRequest, input: &'a MatchInput) -> MatchSubject<'a> {
    MatchSubject {
        namespace_labels: request.context.namespace.labels.as_ref(),
        input,
    }
}
