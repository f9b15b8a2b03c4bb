//! Pure: entries of the admin's list that name one V-IPU controller a second time, at another
//! address.
//!
//! The protocol has no identity of a controller. But each id that the operator gives a partition is
//! unique, since it contains a hash of a random number, and is requested from one controller. So
//! two controllers that list the same partitions of the operator are one. One id in both lists is
//! not enough: a faulty controller that lists a partition of another one must not end that one's
//! service. Other ids prove nothing: users choose them, and Graphcore's operator computes its own
//! from names.
//!
//! The list of an empty controller proves nothing. Therefore a result stays until the address leads
//! to another controller: for a minute, the first one lists partitions of the operator, and the
//! second one lists none of them.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use ipu_api::uid::Uid;

/// Shortest time between two comparisons of the same controllers.
const PERIOD: Duration = Duration::from_secs(2);

/// Time after which a result is refuted. The two lists are some seconds apart.
const REFUTED_AFTER: Duration = Duration::from_mins(1);

/// The ids that one controller lists.
#[derive(Clone, Debug)]
pub struct ListedIds<'a> {
    /// Name of the controller.
    pub name: &'a str,
    /// Those of the operator. `None`: it has not answered.
    pub ids: Option<HashSet<Uid>>,
}

/// The second names that are known.
#[derive(Debug, Default)]
pub struct Duplicates {
    found: BTreeMap<String, Duplicate>,
    /// Time and controllers of the last comparison.
    compared: Option<(Instant, Vec<String>)>,
}

#[derive(Clone, Debug)]
struct Duplicate {
    /// The name that comes first in the admin's list.
    first: String,
    /// Since when the second one lists nothing of the first one.
    differs_since: Option<Instant>,
}

impl Duplicates {
    /// Whether the last comparison is so old that the next one may follow, or was of other
    /// controllers than `names`.
    pub fn is_due<'a>(&self, names: impl Iterator<Item = &'a str>, now: Instant) -> bool {
        self.compared.as_ref().is_none_or(|(at, before)| {
            now.saturating_duration_since(*at) >= PERIOD
                || !names.eq(before.iter().map(String::as_str))
        })
    }

    /// Compares the lists of all controllers, in the order of the admin's list. Returns the second
    /// names, each with the first one.
    pub fn compare(&mut self, lists: &[ListedIds<'_>], now: Instant) -> BTreeMap<String, String> {
        let names = lists.iter().map(|list| list.name.to_owned());
        self.compared = Some((now, names.collect()));
        let before = std::mem::take(&mut self.found);
        for (index, list) in lists.iter().enumerate() {
            let earlier = &lists[..index];
            let duplicate = match earlier.iter().find(|candidate| candidate.equals(list)) {
                Some(same) => Some(Duplicate {
                    first: self.first_name(same.name),
                    differs_since: None,
                }),
                None => before
                    .get(list.name)
                    .and_then(|duplicate| duplicate.unless_refuted(list, earlier, now)),
            };
            if let Some(duplicate) = duplicate {
                self.found.insert(list.name.to_owned(), duplicate);
            }
        }
        let found = self.found.iter();
        found
            .map(|(name, duplicate)| (name.clone(), duplicate.first.clone()))
            .collect()
    }

    /// The first name of the controller with this name.
    fn first_name(&self, name: &str) -> String {
        let duplicate = self.found.get(name);
        duplicate.map_or_else(|| name.to_owned(), |duplicate| duplicate.first.clone())
    }
}

impl ListedIds<'_> {
    /// Whether both list partitions of the operator, and the same ones.
    fn equals(&self, other: &Self) -> bool {
        let is_known = self.ids.as_ref().is_some_and(|ids| !ids.is_empty());
        is_known && self.ids == other.ids
    }
}

impl Duplicate {
    /// The same result, if these lists, which are not the same now, do not refute it. `earlier` are
    /// the controllers before it in the admin's list.
    fn unless_refuted(
        &self,
        list: &ListedIds<'_>,
        earlier: &[ListedIds<'_>],
        now: Instant,
    ) -> Option<Self> {
        let first = earlier
            .iter()
            .find(|candidate| candidate.name == self.first)?;
        let differs = match (&first.ids, &list.ids) {
            (Some(of_first), Some(ids)) => !of_first.is_empty() && of_first.is_disjoint(ids),
            (None, _) | (_, None) => false,
        };
        let differs_since = differs.then(|| self.differs_since.unwrap_or(now));
        let is_refuted = differs_since
            .is_some_and(|since| now.saturating_duration_since(since) >= REFUTED_AFTER);
        (!is_refuted).then(|| Self {
            first: self.first.clone(),
            differs_since,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A controller that lists these partitions. `None`: it has not answered.
    fn list<'a>(name: &'a str, ids: Option<&str>) -> ListedIds<'a> {
        let ids = ids.map(|ids| ids.split_whitespace().map(Uid::of).collect());
        ListedIds { name, ids }
    }

    /// The second names, as `second=first`.
    fn compared(known: &mut Duplicates, lists: &[ListedIds<'_>], now: Instant) -> Vec<String> {
        let found = known.compare(lists, now).into_iter();
        found
            .map(|(second, first)| format!("{second}={first}"))
            .collect()
    }

    #[test]
    fn controllers_that_list_the_same_partitions_are_one() {
        let now = Instant::now();
        let cases = [
            ("different ones", [Some("a"), Some("b"), None], vec![]),
            ("empty ones", [Some(""), Some(""), Some("")], vec![]),
            ("two", [Some("a b"), Some("b a"), None], vec!["2=1"]),
            (
                "three",
                [Some("a"), Some("a"), Some("a")],
                vec!["2=1", "3=1"],
            ),
            ("one in common", [Some("a"), Some("b a"), Some("b")], vec![]),
            ("apart", [Some("a"), Some("b"), Some("a")], vec!["3=1"]),
        ];
        for (name, [one, two, three], expected) in cases {
            let lists = [list("1", one), list("2", two), list("3", three)];
            let found = compared(&mut Duplicates::default(), &lists, now);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn a_second_name_stays_one_until_it_is_another_controller() {
        let (mut known, begin) = (Duplicates::default(), Instant::now());
        let pair = |one, two| [list("1", one), list("2", two)];
        let mut after = |seconds, lists: &[ListedIds<'_>]| {
            let now = begin + Duration::from_secs(seconds);
            !compared(&mut known, lists, now).is_empty()
        };
        assert!(after(0, &pair(Some("a"), Some("a"))));
        // It is empty, has not answered, or its list is some seconds older.
        assert!(after(100, &pair(Some(""), Some(""))));
        assert!(after(170, &pair(Some(""), Some(""))));
        assert!(after(200, &pair(Some("b"), None)));
        assert!(after(300, &pair(None, Some("b"))));
        assert!(after(400, &pair(Some("b"), Some(""))));
        assert!(after(402, &pair(Some("b"), Some("b"))));
        assert!(after(500, &pair(Some("b"), Some(""))));
        assert!(after(559, &pair(Some("b"), Some(""))));
        assert!(!after(560, &pair(Some("b"), Some(""))));
        assert!(!after(570, &pair(Some(""), Some(""))));
    }

    #[test]
    fn the_order_of_the_list_decides_which_name_counts() {
        let (mut known, now) = (Duplicates::default(), Instant::now());
        let [one, two] = ["1", "2"].map(|name| list(name, Some("a")));
        assert_eq!(
            compared(&mut known, &[one.clone(), two.clone()], now),
            ["2=1"]
        );
        assert_eq!(compared(&mut known, &[two.clone(), one], now), ["1=2"]);
        assert!(compared(&mut known, &[two], now).is_empty());
    }

    #[test]
    fn equal_lists_of_controllers_are_compared_every_two_seconds() {
        let (mut known, now) = (Duplicates::default(), Instant::now());
        let is_due = |known: &Duplicates, names: &[&str], later| {
            known.is_due(names.iter().copied(), now + later)
        };
        assert!(is_due(&known, &["1"], Duration::ZERO));
        known.compare(&[list("1", None)], now);
        assert!(!is_due(&known, &["1"], Duration::from_secs(1)));
        assert!(is_due(&known, &["1"], PERIOD));
        // A new entry of the list is compared before anything is placed there.
        assert!(is_due(&known, &["1", "2"], Duration::ZERO));
    }
}
