//! Tests of the capacity for waiting requests: none is missed that its own decision would serve.

use ipu_api::guest::placement::ControllerView;
use proptest::prelude::*;

use super::*;
use crate::backfill::{Assigned, capacity_for};
use crate::queue::in_order;
use crate::samples::{self, view};
use std::collections::BTreeMap;

const LIMIT: SignedDuration = SignedDuration::from_mins(10);

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn request(number: usize, ipus: u32, minutes: i64) -> QueueEntry {
    let created = now() - SignedDuration::from_mins(minutes);
    let name = format!("p-{number:02}");
    samples::waiting(&name, ipus, created)
        .with(|request| request.owner = Uid::of(&format!("owner-{}", number % 6)))
}

fn bound(entry: QueueEntry, pod: usize) -> QueueEntry {
    let selector = BTreeMap::from([("ipunode".to_owned(), format!("pod{pod}"))]);
    entry.with(|request| request.requirements = Requirements::labels(selector).into())
}

prop_compose! {
    fn any_request(number: usize)(
        exponent in 0_u32..5,
        minutes in prop_oneof![0_i64..30, Just(1_500), Just(30_000)],
        pod in proptest::option::weighted(0.3, 1_usize..4),
        is_expected in any::<bool>(),
        is_refused in any::<bool>(),
        is_stalled in proptest::bool::weighted(0.1),
    ) -> QueueEntry {
        let entry = request(number, 1 << exponent, minutes);
        let entry = pod.map_or(entry.clone(), |pod| bound(entry, pod));
        QueueEntry { is_expected, is_stalled, is_refused, ..entry }
    }
}

fn any_queue() -> impl Strategy<Value = Vec<QueueEntry>> {
    let requests: Vec<_> = (0..12).map(any_request).collect();
    requests.prop_map(|mut entries| {
        in_order(&mut entries);
        entries
    })
}

fn any_controllers() -> impl Strategy<Value = Vec<ControllerView>> {
    let used = prop::collection::vec(0_u32..=16, 3);
    used.prop_map(|used| {
        let numbered = used.iter().zip(1..);
        let views = numbered.map(|(used, number)| view(&format!("pod{number}"), 16, *used));
        views.collect()
    })
}

/// Whether the decision on this request finds a controller that serves it.
fn is_served(me: &QueueEntry, entries: &[QueueEntry], views: &[ControllerView]) -> bool {
    let assigned: [Assigned; 0] = [];
    let capacity = capacity_for(me, entries, &assigned, 0, views.to_vec(), LIMIT, now());
    let mut views = capacity.views.iter();
    views.any(|view| view.largest_free >= me.ipus && me.suits(view))
}

proptest! {
    #[test]
    fn each_request_that_a_controller_would_serve_may_fit(
        entries in any_queue(),
        views in any_controllers(),
    ) {
        let mut stages = CapacityStages::new(views.clone(), &entries, LIMIT, now());
        let owners: Vec<Uid> = entries.iter().map(|entry| entry.owner).collect();
        for entry in &entries {
            let found = stages.may_fit(entry, &StandingRefusals::default());
            let served = is_served(entry, &entries, &views);
            prop_assert!(found || !served, "{entry:?}");
            let is_alone = owners.iter().filter(|owner| **owner == entry.owner).count() == 1;
            if is_alone && !stages.reserving.contains(&entry.owner) {
                prop_assert_eq!(found, served);
            }
        }
    }
}

#[test]
fn nothing_is_left_behind_a_reservation() {
    let entries = [
        request(0, 4, 20),
        request(1, 16, 15),
        request(2, 4, 5),
        request(3, 16, 1),
    ];
    let mut stages = CapacityStages::new(vec![view("pod1", 16, 8)], &entries, LIMIT, now());
    let found = entries
        .each_ref()
        .map(|entry| stages.may_fit(entry, &StandingRefusals::default()));
    assert_eq!(found, [true, false, false, false]);
}
