//! The largest size that a what-if query would get, as the placement policy decides.

use std::time::Duration;

use ipu_api::guest::placement::{ControllerView, Decision, PartitionRequest, Placed};
use ipu_policies::active_policies::ActivePolicies;

/// Time limit of the requests to the guest about other sizes.
const LIMIT: Duration = Duration::from_secs(2);

/// The largest size in which the policy would place the partitions of a gang, at most what is free
/// on controllers whose nodes the owner's Pods may use. `placed` is the decision about the size of
/// the request. `None`: the policy has not answered about one of the sizes within the time limit.
pub(super) async fn of(
    guests: &ActivePolicies,
    request: &PartitionRequest,
    gang: u32,
    controllers: &[ControllerView],
    placed: &Placed,
) -> Option<u32> {
    let usable: Vec<_> = controllers
        .iter()
        .filter(|view| is_usable(request, view))
        .collect();
    let fits = |size: u32| {
        let each = usable.iter().map(|view| view.places(size));
        each.fold(0, u32::saturating_add) >= gang
    };
    let largest = usable.iter().map(|view| view.largest_free).max();
    let is_placed = move |size: u32| is_placed(guests, request, size, controllers, placed);
    search(largest.unwrap_or(0), fits, is_placed, LIMIT).await
}

/// The first of `size`, its half and so on that fits and is placed; 0 if none is. `None`: this is
/// not known of one of them, or not within the time limit.
async fn search<F>(
    mut size: u32,
    fits: impl Fn(u32) -> bool,
    is_placed: impl Fn(u32) -> F,
    limit: Duration,
) -> Option<u32>
where
    F: Future<Output = Option<bool>>,
{
    let search = async {
        while size > 0 {
            if fits(size) && is_placed(size).await? {
                break;
            }
            size /= 2;
        }
        Some(size)
    };
    tokio::time::timeout(limit, search).await.ok().flatten()
}

/// Whether the policy would place a partition of another size. `placed` is its decision about the
/// size of the request. `None`: the policy has decided about that size, and not about this one.
async fn is_placed(
    guests: &ActivePolicies,
    request: &PartitionRequest,
    ipus: u32,
    controllers: &[ControllerView],
    placed: &Placed,
) -> Option<bool> {
    if ipus == request.ipus {
        return Some(matches!(placed.decision, Decision::Try(_)));
    }
    let asked = PartitionRequest {
        ipus,
        gcds: request.gcds.min(ipus),
        ..request.clone()
    };
    let answer = guests.place(&asked, controllers, &[]).await;
    // The serial walk, which has decided instead, knows no quota.
    let is_known = answer.overruled.is_none() || placed.overruled.is_some();
    is_known.then_some(matches!(answer.decision, Decision::Try(_)))
}

/// Whether the owner's Pods may run on a node of this controller, which answers.
fn is_usable(request: &PartitionRequest, view: &ControllerView) -> bool {
    let required = request.node_selector.get(&view.label_key);
    view.unreachable.is_none()
        && view.has_nodes
        && required.is_none_or(|value| *value == view.label_value)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    /// Far beyond what any step takes.
    const BOUND: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn the_largest_size_is_one_that_the_policy_places() {
        // A quota of 8 IPUs, where 64 are free.
        let quota = |size: u32| ready(Some(size <= 8));
        assert_eq!(search(64, |_| true, quota, BOUND).await, Some(8));
        assert_eq!(search(64, |size| size <= 4, quota, BOUND).await, Some(4));
        let none = |_: u32| ready(Some(false));
        assert_eq!(search(64, |_| true, none, BOUND).await, Some(0));
    }

    #[tokio::test]
    async fn a_size_about_which_the_policy_does_not_answer_is_not_named() {
        let unknown = |size: u32| ready((size > 16).then_some(false));
        assert_eq!(search(64, |_| true, unknown, BOUND).await, None);
        let no_answer = |_: u32| pending::<Option<bool>>();
        assert_eq!(search(64, |_| true, no_answer, Duration::ZERO).await, None);
        // Nothing is free, so the guest is not called.
        assert_eq!(search(0, |_| true, no_answer, BOUND).await, Some(0));
    }
}
