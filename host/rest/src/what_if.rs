//! Answers to what-if queries: the controller that the placement policy would choose, and the
//! reasons against others. Creates nothing.

use std::time::Duration;

use ipu_api::guest::placement::{
    ControllerView, Decision, PartitionRequest, PassedOver, PlacementContext,
};
use ipu_api::ipupartition::WaitingReason;
use ipu_placement::guest_call::values::shortened;
use ipu_policies::active_policies::ActivePolicies;
use schemars::JsonSchema;
use serde::Serialize;

use super::answers::{self, QueryCapacity};
use super::largest_size;
use super::query_request::QueryRequest;

/// Most controllers with a reason in an answer.
const EXPLAINED_MAX: usize = 256;

/// Time limit of single requests for reasons.
const EXPLAINING: Duration = Duration::from_secs(2);

/// The answer of `/query`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Answer {
    /// Number of partitions of the size that could be created.
    #[serde(flatten)]
    pub capacity: QueryCapacity,
    /// Controller on which the next one would be created.
    #[serde(flatten)]
    pub placement: Placement,
}

/// The decision of the active placement policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Whether it would be tried on a controller, wait, or be rejected.
    pub decision: Outcome,
    /// The controller on which it would be created; only with `try`.
    pub controller: Option<String>,
    /// Reason why no controller could ever serve it; only with `reject`.
    pub reason: Option<String>,
    /// Reasons why controllers were passed over: with `try` those before the chosen one in the
    /// admin's list, with `wait` those that the guest names; 256 at most.
    pub passed_over: Vec<WaitingReason>,
    /// Reason why the built-in serial walk decided instead of the guest; missing if the guest did.
    pub overruled: Option<String>,
    /// The largest partition that would be created now for such a request, in IPUs: without
    /// capacity that is reserved for earlier requests, and as the active placement policy decides.
    /// An estimate where controllers do not report which IPUs are free. Missing if the guest did
    /// not answer, or not soon enough: then it is not known.
    pub largest_size: Option<u32>,
}

impl Placement {
    /// The placement of a request that waits for these reasons, whatever the guest decides.
    pub(super) fn waiting(self, reasons: Vec<WaitingReason>) -> Self {
        Self {
            decision: Outcome::Wait,
            controller: None,
            reason: None,
            passed_over: reasons,
            ..self
        }
    }

    /// The placement of a request that is rejected for this reason, whatever the guest decides.
    pub(super) fn rejected(self, why: &str) -> Self {
        Self {
            decision: Outcome::Reject,
            controller: None,
            reason: Some(shortened(why)),
            passed_over: Vec::new(),
            ..self
        }
    }
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It would be created.
    Try,
    /// It would wait for free capacity.
    Wait,
    /// It could never be created.
    Reject,
}

/// Answers a query about these controllers. The policy is asked once; a second time if it has
/// skipped controllers before the chosen one; about each of those alone if the second answer
/// contains no reasons; and about other sizes, the largest first, until one would be created.
pub async fn answer(
    guests: &ActivePolicies,
    query: &QueryRequest,
    context: PlacementContext,
    controllers: &[ControllerView],
) -> Answer {
    let request = request(query, context);
    let placed = guests.place(&request, controllers, &[]).await;
    let mut placement = Placement {
        decision: Outcome::Wait,
        controller: None,
        reason: None,
        passed_over: Vec::new(),
        overruled: placed.overruled.as_deref().map(shortened),
        largest_size: largest_size::of(guests, &request, query.gang_size, controllers, &placed)
            .await,
    };
    match placed.decision {
        Decision::Try(chosen) => {
            let before = controllers.iter().take_while(|one| one.name != chosen);
            let before: Vec<_> = before.take(EXPLAINED_MAX).cloned().collect();
            placement.decision = Outcome::Try;
            placement.passed_over = explain(guests, &request, &before, &chosen).await;
            placement.controller = Some(chosen);
        }
        Decision::Wait(passed) => {
            placement.passed_over = passed
                .into_iter()
                .take(EXPLAINED_MAX)
                .map(waiting_reason)
                .collect();
        }
        Decision::Reject(why) => {
            placement.decision = Outcome::Reject;
            placement.reason = Some(shortened(&why));
        }
    }
    Answer {
        capacity: answers::capacity(query.size, controllers),
        placement,
    }
}

/// Returns why each of the controllers before the chosen one was passed over.
async fn explain(
    guests: &ActivePolicies,
    request: &PartitionRequest,
    before: &[ControllerView],
    chosen: &str,
) -> Vec<WaitingReason> {
    if before.is_empty() {
        return Vec::new();
    }
    if let Decision::Wait(passed) = guests.place(request, before, &[]).await.decision {
        return passed
            .into_iter()
            .take(EXPLAINED_MAX)
            .map(waiting_reason)
            .collect();
    }
    let mut reasons = Vec::new();
    let one_by_one = async {
        for controller in before {
            let alone = std::slice::from_ref(controller);
            let decision = guests.place(request, alone, &[]).await.decision;
            reasons.push(WaitingReason {
                controller: controller.name.clone(),
                reason: reason_alone(decision, chosen),
            });
        }
    };
    // A policy may take a second for each controller: the answer contains the reasons up to the
    // time limit.
    let _ = tokio::time::timeout(EXPLAINING, one_by_one).await;
    reasons
}

/// Returns why a controller was passed over, from the decision without any other controller.
fn reason_alone(decision: Decision, chosen: &str) -> String {
    match decision {
        Decision::Try(_) => format!("could serve it as well; the guest prefers {chosen}"),
        Decision::Wait(passed) => match passed.into_iter().next() {
            Some(passed) => shortened(&passed.reason),
            None => "the guest gives no reason".to_owned(),
        },
        Decision::Reject(why) => shortened(&why),
    }
}

fn request(query: &QueryRequest, mut context: PlacementContext) -> PartitionRequest {
    context.progress.dry_run = true;
    PartitionRequest {
        namespace: query.namespace.clone(),
        owner: "query".to_owned(),
        slot: 0,
        ipus: query.size,
        gcds: query.gcds,
        node_selector: query.node_selector.clone(),
        context,
    }
}

fn waiting_reason(passed: PassedOver) -> WaitingReason {
    WaitingReason {
        controller: passed.controller,
        reason: shortened(&passed.reason),
    }
}
