//! Pure: the most IPUs that each V-IPU controller has reported lately, and why a request that no controller can serve now
//! may be served later.
//!
//! A V-IPU server or an IPU-Machine that restarts reports fewer IPUs for minutes, and a typo takes a controller off the
//! admin's list until it is fixed. A rejection is the end for many owners: Kueue deactivates their Workloads. So a
//! request waits as long as such a controller may serve it.

use std::collections::BTreeMap;

use ipu_api::ipupartition::WaitingReason;
use ipu_guest_host::model::ControllerView;
use jiff::{SignedDuration, Timestamp};

use crate::queue::QueueEntry;

/// Time for which the largest size of a controller counts after it was reported.
const SIZE_AGE: SignedDuration = SignedDuration::from_hours(24);

/// Time for which a controller counts after it has left the list.
const UNLISTED_AGE: SignedDuration = SignedDuration::from_mins(10);

/// The sizes of all controllers, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownSizes {
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

/// Reasons why a rejection may be wrong in a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectations {
    /// The most IPUs of each controller that is in the list or has just left it, by name.
    pub sizes: BTreeMap<String, u32>,
    /// Why the list may lack a controller.
    pub list_problem: Option<String>,
}

impl KnownSizes {
    /// Notes that this controller is in the list, and the number of its IPUs if it answers.
    pub(crate) fn listed(&mut self, controller: &str, total: Option<u32>, now: Timestamp) {
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

    /// The most IPUs of each controller that counts at `now`. Others are forgotten.
    pub(crate) fn at(&mut self, now: Timestamp) -> BTreeMap<String, u32> {
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
    /// Returns why a request, which the controllers of these views can never serve, may be served later. Empty: it never
    /// can. `is_reached`: whether its Pods may run on the nodes of a controller.
    pub(crate) fn reasons<'a>(
        &self,
        views: impl Iterator<Item = &'a ControllerView>,
        is_reached: impl Fn(&ControllerView) -> bool,
        me: &QueueEntry,
    ) -> Vec<WaitingReason> {
        let views: BTreeMap<&str, &ControllerView> =
            views.map(|view| (view.name.as_str(), view)).collect();
        // A gang lacks the capacity of all controllers together.
        let lacks = |total: u32, most: u32| total < if me.gang > 1 { most } else { me.ipus };
        let sizes = self.sizes.iter().filter(|(_, most)| **most >= me.ipus);
        let missing = sizes.filter_map(|(name, most)| {
            let reason = match views.get(name.as_str()) {
                Some(view) if is_reached(view) && lacks(view.total_ipus, *most) => format!(
                    "it reports {} IPUs, and has reported {most} within a day; it may have them again",
                    view.total_ipus
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
    use crate::queue;
    use crate::samples::view;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn me(ipus: u32) -> QueueEntry {
        queue::new_request(ipus, 1, BTreeMap::new(), at(0))
    }

    fn reasons(sizes: &mut KnownSizes, second: i64, totals: &[(&str, u32)], ipus: u32) -> String {
        let expectations = Expectations {
            sizes: sizes.at(at(second)),
            list_problem: None,
        };
        let views = totals.iter().map(|(name, total)| view(name, *total, 0));
        let views: Vec<_> = views.collect();
        let reasons = expectations.reasons(views.iter(), |_| true, &me(ipus));
        let reasons = reasons.into_iter();
        let reasons = reasons.map(|reason| format!("{}: {}", reason.controller, reason.reason));
        reasons.collect::<Vec<_>>().join("; ")
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
        let expectations = Expectations {
            sizes: [("pod1".to_owned(), 64)].into(),
            list_problem: None,
        };
        let views = [view("pod1", 0, 0)];
        let reasons = |is_reached| expectations.reasons(views.iter(), |_| is_reached, &me(64));
        assert!(!reasons(true).is_empty() && reasons(false).is_empty());
    }

    #[test]
    fn a_gang_waits_for_a_controller_that_lacks_ipus_for_some_of_its_partitions() {
        let expectations = Expectations {
            sizes: [("pod1".to_owned(), 64)].into(),
            list_problem: None,
        };
        let views = [view("pod1", 32, 0)];
        for (gang, expected) in [(1, 0), (16, 1)] {
            let me = queue::new_request(4, gang, BTreeMap::new(), at(0));
            assert_eq!(
                expectations.reasons(views.iter(), |_| true, &me).len(),
                expected
            );
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
        let expectations = Expectations {
            sizes: BTreeMap::new(),
            list_problem: Some("entry 2 is invalid".to_owned()),
        };
        let reasons = expectations.reasons([].iter(), |_| true, &me(512));
        assert_eq!(reasons[0].reason, "entry 2 is invalid");
    }
}
