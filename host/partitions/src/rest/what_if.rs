//! Asks the placement policy where a partition would be made, and why not elsewhere; makes nothing.

use std::time::Duration;

use ipu_api::ipupartition::WaitingReason;
use ipu_guest_host::context::PlacementContext;
use ipu_guest_host::model::{ControllerView, Decision, PartitionRequest, PassedOver};
use ipu_policies::active_policies::ActivePolicies;
use schemars::JsonSchema;
use serde::Serialize;

use super::answers::{self, QueryCapacity};
use super::query_request::QueryRequest;
use crate::placement::request::shortened;

/// Most controllers for which it is said why they were passed over.
const EXPLAINED_MAX: usize = 256;

/// Longest time that is spent on asking for the reasons one by one.
const EXPLAINING: Duration = Duration::from_secs(2);

/// The answer of `/query`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Answer {
    /// How many partitions of the size could be made.
    #[serde(flatten)]
    pub capacity: QueryCapacity,
    /// Where the next one would be made.
    #[serde(flatten)]
    pub placement: Placement,
}

/// Where a partition would be made now, by the placement policy that is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Whether it would be tried on a controller, wait, or be rejected.
    pub decision: Outcome,
    /// The controller on which it would be made; only with `try`.
    pub controller: Option<String>,
    /// Why no controller could ever serve it; only with `reject`.
    pub reason: Option<String>,
    /// Why controllers were passed over: with `try` those before the chosen one in the admin's
    /// list, with `wait` those that the policy names; 256 at most.
    pub passed_over: Vec<WaitingReason>,
    /// Why the built-in serial walk decided instead of the policy; missing where the policy did.
    pub overruled: Option<String>,
    /// The largest partition that could be made now on any controller that answers, in IPUs. An
    /// estimate: the controllers do not tell which IPUs can stand together.
    pub largest_size: u32,
}

/// What would be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A controller would be asked to make it.
    Try,
    /// It would wait for room.
    Wait,
    /// It could never be made.
    Reject,
}

/// Answers a question about these controllers, with what is known of the namespaces. The policy is asked once where the answer says all,
/// twice where controllers before the chosen one were passed over, and one by one for those only
/// where the second answer does not say why.
pub async fn answer(
    guests: &ActivePolicies,
    query: &QueryRequest,
    context: PlacementContext,
    controllers: &[ControllerView],
) -> Answer {
    let request = request(query, context);
    let placed = guests.place(&request, controllers, &[]).await;
    let reachable = controllers.iter().filter(|one| one.unreachable.is_none());
    let mut placement = Placement {
        decision: Outcome::Wait,
        controller: None,
        reason: None,
        passed_over: Vec::new(),
        overruled: placed.overruled.as_deref().map(shortened),
        largest_size: reachable.map(|one| one.largest_free).max().unwrap_or(0),
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
            placement.passed_over = passed.into_iter().take(EXPLAINED_MAX).map(told).collect();
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

/// Why each of the controllers before the chosen one was passed over.
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
        return passed.into_iter().take(EXPLAINED_MAX).map(told).collect();
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
    // Whoever asks waits, and a policy may take a second for each: what is known by then is told.
    let _ = tokio::time::timeout(EXPLAINING, one_by_one).await;
    reasons
}

/// Why a controller was passed over, from what is decided where there is no other.
fn reason_alone(decision: Decision, chosen: &str) -> String {
    match decision {
        Decision::Try(_) => format!("could serve it as well; the policy prefers {chosen}"),
        Decision::Wait(passed) => match passed.into_iter().next() {
            Some(passed) => shortened(&passed.reason),
            None => "the policy gives no reason".to_owned(),
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

fn told(passed: PassedOver) -> WaitingReason {
    WaitingReason {
        controller: passed.controller,
        reason: shortened(&passed.reason),
    }
}
