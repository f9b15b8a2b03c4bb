//! Pure: the most IPUs that each V-IPU controller has reported lately, and why a request that no
//! controller can serve now may be served later.
//!
//! A V-IPU server or an IPU-Machine that restarts reports fewer IPUs for minutes, and a typo takes
//! a controller off the admin's list until it is fixed. A rejection is the end for many owners:
//! Kueue deactivates their Workloads. So a request waits as long as such a controller may serve it.

use std::collections::BTreeMap;

use ipu_api::guest::placement::ControllerView;
use ipu_api::ipupartition::WaitingReason;
use jiff::{SignedDuration, Timestamp};

use crate::queue::QueueEntry;

/// Time for which the largest size of a controller counts after it was reported.
const SIZE_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Time for which a controller counts after it has left the list.
const UNLISTED_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The sizes of all controllers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownSizes {
    controllers: BTreeMap<String, KnownSize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownSize {
    /// The most IPUs that it has reported.
    most: u32,
    /// Time of that report.
    reported: Timestamp,
    /// Time at which the controller was last in the list.
    listed: Timestamp,
}

/// What controllers may have again. It is derived once for all requests: usually there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectations {
    /// Controllers that have reported more IPUs lately, or have just left the list, by name.
    controllers: BTreeMap<String, Missing>,
    /// Why the list may lack a controller.
    list_problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Missing {
    /// The most IPUs that it has reported.
    most: u32,
    /// IPUs that it reports now. `None`: it is not in the list.
    total: Option<u32>,
}

impl KnownSizes {
    /// Notes that this controller is in the list, and the number of its IPUs if it answers.
    pub fn listed(&mut self, controller: &str, total: Option<u32>, now: Timestamp) {
        let known = self.controllers.entry(controller.to_owned());
        let known = known.or_insert_with(|| KnownSize {
            most: 0,
            reported: now,
            listed: now,
        });
        known.listed = now;
        let is_old = now.duration_since(known.reported).abs() > SIZE_AGE;
        if let Some(total) = total.filter(|total| *total >= known.most || is_old) {
            (known.most, known.reported) = (total, now);
        }
    }

    /// The most IPUs that this controller has reported. 0: none.
    pub fn most(&self, controller: &str) -> u32 {
        let known = self.controllers.get(controller);
        known.map_or(0, |known| known.most)
    }

    /// The most IPUs of each controller that counts at `now`. Others are forgotten.
    pub fn at(&mut self, now: Timestamp) -> BTreeMap<String, u32> {
        self.controllers.retain(|_, known| {
            now.duration_since(known.listed).abs() < UNLISTED_AGE
                && now.duration_since(known.reported).abs() <= SIZE_AGE
        });
        let sizes = self.controllers.iter();
        sizes
            .map(|(name, known)| (name.clone(), known.most))
            .collect()
    }
}

impl Expectations {
    /// Compares the known sizes with what the controllers of the list have now.
    pub(crate) fn of<'a>(
        sizes: BTreeMap<String, u32>,
        views: impl Iterator<Item = &'a ControllerView>,
        list_problem: Option<String>,
    ) -> Self {
        let totals: BTreeMap<&str, u32> = views
            .map(|view| (view.name.as_str(), view.total_ipus))
            .collect();
        let missing = sizes.into_iter().filter_map(|(name, most)| {
            let total = totals.get(name.as_str()).copied();
            let is_missing = total.is_none_or(|total| total < most);
            is_missing.then_some((name, Missing { most, total }))
        });
        Self {
            controllers: missing.collect(),
            list_problem,
        }
    }

    /// Returns why a request that can never be served now may be served later. Empty: it never can.
    /// `is_reached`: whether its Pods may run on the nodes of a listed controller.
    pub(crate) fn reasons(
        &self,
        is_reached: impl Fn(&str) -> bool,
        me: &QueueEntry,
    ) -> Vec<WaitingReason> {
        // A gang lacks the capacity of all controllers together.
        let lacks = |total: u32, most: u32| total < if me.gang > 1 { most } else { me.ipus };
        let large = self.controllers.iter();
        let large = large.filter(|(_, missing)| missing.most >= me.ipus);
        let missing = large.filter_map(|(name, Missing { most, total })| {
            let reason = match total {
                Some(total) if is_reached(name) && lacks(*total, *most) => format!(
                    "it reports {total} IPUs, and has reported {most} within a day; it may have them again"
                ),
                Some(_) => return None,
                None => format!(
                    "it has {most} IPUs, and has left the admin's list of controllers a moment ago"
                ),
            };
            Some(WaitingReason {
                controller: name.clone(),
                reason,
            })
        });
        let problem = self.list_problem.iter().map(|problem| WaitingReason {
            controller: "the admin's list of controllers".to_owned(),
            reason: problem.clone(),
        });
        missing.chain(problem).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backfill;
    use crate::samples::view;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn me(ipus: u32) -> QueueEntry {
        backfill::new_request(ipus, 1, BTreeMap::new(), at(0))
    }

    fn reasons(sizes: &mut KnownSizes, second: i64, totals: &[(&str, u32)], ipus: u32) -> String {
        let views = totals.iter().map(|(name, total)| view(name, *total, 0));
        let views: Vec<_> = views.collect();
        let expectations = Expectations::of(sizes.at(at(second)), views.iter(), None);
        let reasons = expectations.reasons(|_| true, &me(ipus)).into_iter();
        let reasons = reasons.map(|reason| format!("{}: {}", reason.controller, reason.reason));
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// What is expected of a controller that has had 64 IPUs, and has so many now.
    fn of_64(total: u32) -> Expectations {
        let sizes = [("pod1".to_owned(), 64)].into();
        Expectations::of(sizes, [view("pod1", total, 0)].iter(), None)
    }

    #[test]
    fn a_controller_that_reports_fewer_ipus_than_within_a_day_may_have_them_again() {
        let mut sizes = KnownSizes::default();
        sizes.listed("pod1", Some(64), at(0));
        sizes.listed("pod1", Some(32), at(60));
        assert_eq!(
            reasons(&mut sizes, 60, &[("pod1", 32)], 64),
            "pod1: it reports 32 IPUs, and has reported 64 within a day; it may have them again"
        );
        assert_eq!(reasons(&mut sizes, 60, &[("pod1", 32)], 128), "");
        sizes.listed("pod1", Some(32), at(25 * 3_600));
        assert_eq!(reasons(&mut sizes, 25 * 3_600, &[("pod1", 32)], 64), "");
    }

    #[test]
    fn a_controller_for_other_nodes_is_not_waited_for() {
        let reasons = |is_reached| of_64(0).reasons(|_| is_reached, &me(64));
        assert!(!reasons(true).is_empty() && reasons(false).is_empty());
    }

    #[test]
    fn a_gang_waits_for_a_controller_that_lacks_ipus_for_some_of_its_partitions() {
        for (gang, expected) in [(1, 0), (16, 1)] {
            let me = backfill::new_request(4, gang, BTreeMap::new(), at(0));
            assert_eq!(of_64(32).reasons(|_| true, &me).len(), expected);
        }
    }

    #[test]
    fn a_controller_that_has_just_left_the_list_may_return() {
        let mut sizes = KnownSizes::default();
        sizes.listed("pod1", Some(16), at(0));
        sizes.listed("pod2", Some(64), at(0));
        sizes.listed("pod1", None, at(300));
        let left =
            "pod2: it has 64 IPUs, and has left the admin's list of controllers a moment ago";
        assert_eq!(reasons(&mut sizes, 300, &[("pod1", 16)], 64), left);
        sizes.listed("pod1", Some(16), at(700));
        assert_eq!(reasons(&mut sizes, 700, &[("pod1", 16)], 64), "");
    }

    #[test]
    fn an_invalid_entry_may_be_a_controller_of_any_size() {
        let problem = Some("entry 2 is invalid".to_owned());
        let expectations = Expectations::of(BTreeMap::new(), [].iter(), problem);
        let reasons = expectations.reasons(|_| true, &me(512));
        assert_eq!(reasons[0].reason, "entry 2 is invalid");
    }
}
