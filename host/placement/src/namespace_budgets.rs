//! Pure: how long a pass decides on the requests of each namespace, so that a slow placement policy
//! does not stop all others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::requests::Order;

/// Maximum time that a pass spends on the requests of one namespace.
const BUDGET: Duration = Duration::from_secs(1);

/// The time that each namespace has used in this pass, and where it continues.
///
/// The next round continues with the first request that found the budget used. If it began with the
/// first request of all, which asks again and again, the last ones would never be decided.
#[derive(Debug, Default)]
pub struct NamespaceBudgets {
    /// The round of this pass: a long round takes several passes.
    round: Option<u64>,
    spent: BTreeMap<String, Duration>,
    /// Start of this round, by namespace.
    first: BTreeMap<String, Order>,
    /// Start of the next round, by namespace.
    next: BTreeMap<String, Order>,
}

impl NamespaceBudgets {
    /// A pass over the requests of this round begins.
    pub fn begin_pass(&mut self, round: u64) {
        self.spent.clear();
        if self.round != Some(round) {
            self.first = std::mem::take(&mut self.next);
        }
        self.round = Some(round);
    }

    /// Whether the request at this position of the queue is decided in this pass. The others of its
    /// namespace come first.
    pub fn is_due(&mut self, namespace: &str, order: &Order) -> bool {
        if self.first.get(namespace).is_some_and(|first| order < first) {
            return false;
        }
        if self
            .spent
            .get(namespace)
            .is_none_or(|spent| *spent <= BUDGET)
        {
            return true;
        }
        let next = self.next.entry(namespace.to_owned());
        let next = next.or_insert_with(|| order.clone());
        if order < next {
            next.clone_from(order);
        }
        false
    }

    /// Counts the time of a decision.
    pub fn spend(&mut self, namespace: &str, time: Duration) {
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
        let name: std::sync::Arc<str> = second.to_string().into();
        let position = QueuePosition {
            created,
            name: name.clone(),
        };
        (position, name)
    }

    /// The requests on which a pass decides, of those at these places.
    fn pass(
        budgets: &mut NamespaceBudgets,
        namespace: &str,
        time: Duration,
        places: &[i64],
    ) -> Vec<i64> {
        let is_due = |second: &&i64| {
            let is_due = budgets.is_due(namespace, &order(**second));
            if is_due {
                budgets.spend(namespace, time);
            }
            is_due
        };
        places.iter().filter(is_due).copied().collect()
    }

    #[test]
    fn every_request_of_a_slow_policy_is_decided_within_some_rounds() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_millis(600));
        let all = [1, 2, 3, 4, 5];
        let mut rounds = Vec::new();
        for round in 0..4 {
            budgets.begin_pass(round);
            rounds.push(pass(&mut budgets, "slow", slow, &all));
            let others = pass(&mut budgets, "fast", Duration::from_millis(1), &all);
            assert_eq!(others, all);
        }
        assert_eq!(rounds, [vec![1, 2], vec![3, 4], vec![5], vec![1, 2]]);
    }

    #[test]
    fn a_round_of_several_passes_does_not_change_where_the_next_one_continues() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_secs(2));
        budgets.begin_pass(1);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 2, 3]), [1]);
        budgets.begin_pass(1);
        assert_eq!(pass(&mut budgets, "other", slow, &[1]), [1]);
        budgets.begin_pass(2);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 2, 3]), [2]);
    }

    #[test]
    fn a_round_begins_anew_if_the_requests_with_which_it_would_continue_are_gone() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_secs(2));
        budgets.begin_pass(1);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 2]), [1]);
        budgets.begin_pass(2);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1]), Vec::<i64>::new());
        budgets.begin_pass(3);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1]), [1]);
    }

    #[test]
    fn the_earliest_late_request_is_the_first_of_the_next_round() {
        let (mut budgets, slow) = (NamespaceBudgets::default(), Duration::from_secs(2));
        budgets.begin_pass(1);
        // The request at 2 comes while the pass runs.
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 3, 2]), [1]);
        budgets.begin_pass(2);
        assert_eq!(pass(&mut budgets, "slow", slow, &[1, 2, 3]), [2]);
    }
}
