//! Pure: how long a pass decides on the requests of each namespace, so that a slow placement policy does not stop all others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement_queue::Order;

/// So long, at most, a pass decides on the requests of one namespace.
const BUDGET: Duration = Duration::from_secs(1);

/// The time that each namespace has used in this pass, and where it continues.
///
/// The next pass continues with the first request that found the budget used. If it began with the first request of all, which
/// asks again and again, the last ones would never be decided.
#[derive(Debug, Default)]
pub(super) struct NamespaceBudgets {
    spent: BTreeMap<String, Duration>,
    /// Where this pass continues, by namespace.
    first: BTreeMap<String, Order>,
    /// Where the next pass continues, by namespace.
    next: BTreeMap<String, Order>,
}

/// Whether a request has a turn in this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnStatus {
    /// It is decided now.
    Due,
    /// An earlier pass has decided it: later ones of its namespace come first.
    DecidedBefore,
    /// The time of its namespace is used. It is decided in a later pass.
    Late,
}

impl NamespaceBudgets {
    /// A pass begins.
    pub(super) fn begin_pass(&mut self) {
        self.spent.clear();
        self.first = std::mem::take(&mut self.next);
    }

    /// Whether the request at this place of the queue has a turn. Requests are given in the order of the queue.
    pub(super) fn turn(&mut self, namespace: &str, order: &Order) -> TurnStatus {
        if self.first.get(namespace).is_some_and(|first| order < first) {
            return TurnStatus::DecidedBefore;
        }
        if self
            .spent
            .get(namespace)
            .is_none_or(|spent| *spent <= BUDGET)
        {
            return TurnStatus::Due;
        }
        let next = self.next.entry(namespace.to_owned());
        next.or_insert_with(|| order.clone());
        TurnStatus::Late
    }

    /// Counts the time of a decision.
    pub(super) fn spend(&mut self, namespace: &str, time: Duration) {
        *self.spent.entry(namespace.to_owned()).or_default() += time;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::queue::QueuePosition;

    fn order(second: i64) -> Order {
        let created = Timestamp::from_second(second).unwrap();
        let name = second.to_string();
        let position = QueuePosition {
            created,
            name: name.clone(),
        };
        (position, name)
    }

    /// The requests that a pass decides on, of those at these places.
    fn pass(
        budgets: &mut NamespaceBudgets,
        namespace: &str,
        time: Duration,
        of: &[i64],
    ) -> Vec<i64> {
        let is_due = |second: &&i64| {
            let is_due = budgets.turn(namespace, &order(**second)) == TurnStatus::Due;
            if is_due {
                budgets.spend(namespace, time);
            }
            is_due
        };
        of.iter().filter(is_due).copied().collect()
    }

    #[test]
    fn every_request_of_a_slow_policy_is_decided_within_some_passes() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_millis(600));
        let all = [1, 2, 3, 4, 5];
        let mut passes = Vec::new();
        for _ in 0..4 {
            budgets.begin_pass();
            passes.push(pass(&mut budgets, "slow", slow, &all));
            let others = pass(&mut budgets, "fast", Duration::from_millis(1), &all);
            assert_eq!(others, all);
        }
        assert_eq!(passes, [vec![1, 2], vec![3, 4], vec![5], vec![1, 2]]);
    }

    #[test]
    fn a_pass_begins_anew_after_the_requests_from_which_it_would_continue_are_gone() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_secs(2));
        budgets.begin_pass();
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 2]), [1]);
        budgets.begin_pass();
        assert_eq!(budgets.turn("slow", &order(1)), TurnStatus::DecidedBefore);
        budgets.begin_pass();
        assert_eq!(pass(&mut budgets, "slow", slow, &[1]), [1]);
        assert_eq!(budgets.turn("slow", &order(3)), TurnStatus::Late);
    }
}
