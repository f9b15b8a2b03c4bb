//! Collects the state of the V-IPU controllers for their objects.

use std::collections::{BTreeMap, BTreeSet};

use ipu_placement::backfill::Assigned;
use ipu_runtime::clock;
use jiff::SignedDuration;
use vipu_client::controllers;

use super::fit::{self, Fit, Queue};
use super::plan::{self, Object};
use super::status::{Listed, Observed};
use crate::controllers::ControllerState;
use crate::controllers::summary::{self, OursByController, Summary};
use crate::leader::Context;

/// State of the listed controllers, also under a second name, and of unlisted ones that certainly
/// or possibly have partitions of this release, or whose object this release manages.
pub(super) async fn observe(
    context: &Context,
    objects: &BTreeMap<String, Object>,
    release: &str,
) -> Vec<Observed> {
    let pool = &context.pool;
    let states = pool.states().await;
    let mut fits = fits(context, &states);
    let (of_all, unsettled, of_release) = context.watched.read(|cache| {
        let of_all = summary::ours(cache.allocations().held());
        let unsettled = summary::ours(cache.unsettled());
        let requests = cache.briefs().flat_map(|(brief, _)| &brief.requested);
        let requests = requests.map(|one| &*one.controller);
        let of_release = cache.held().map(|(name, _)| name).chain(requests);
        let of_release: BTreeSet<String> = of_release.map(str::to_owned).collect();
        (of_all, unsettled, of_release)
    });
    let known = pool.registry().known();
    let count = |all: &OursByController, address: &str| {
        let here = all.get(address);
        here.map_or(0, |ours| ours.partitions)
    };
    let listed = |summary: Summary| Observed {
        address: summary.name.clone(),
        partitions: count(&of_all, &summary.name),
        unsettled: count(&unsettled, &summary.name),
        is_used: of_release.contains(&summary.name),
        duplicate_of: None,
        listed: Some(Listed {
            nodes: pool.nodes().count(&summary.label_key, &summary.label_value),
            last_failure: pool.last_failure(&summary.name),
            fit: fits.remove(&summary.name).unwrap_or_default(),
            summary,
        }),
    };
    let summaries = summary::summaries(states, &of_all).into_iter();
    let mut observed: Vec<Observed> = summaries.map(listed).collect();
    let is_listed = |name: &String| observed.iter().any(|one| one.address == *name);
    // Statuses can be edited by hand, so an invalid name is ignored.
    let is_address = |name: &String| controllers::unlisted(name).is_some();
    let left: BTreeSet<String> = plan::addresses(objects, release)
        .chain(of_release.iter())
        .chain(known.duplicates.keys())
        .filter(|name| !is_listed(name) && is_address(name))
        .cloned()
        .collect();
    observed.extend(left.into_iter().map(|address| Observed {
        partitions: count(&of_all, &address),
        unsettled: count(&unsettled, &address),
        is_used: of_release.contains(&address),
        duplicate_of: known.duplicates.get(&address).cloned(),
        address,
        listed: None,
    }));
    observed
}

/// The largest new request that fits on each uncordoned controller, by name. This updates the
/// stalled requests for readers of the queue.
fn fits(context: &Context, states: &[ControllerState]) -> BTreeMap<String, Fit> {
    let now = clock::now();
    let open = states.iter().filter(|state| state.cordon_state.is_none());
    let mut open: Vec<_> = open.map(|state| state.view.clone()).collect();
    context.pool.limit_to_unrefused(&mut open);
    let backfill_limit = context.settings.backfill_limit;
    let entries = context.queue_state.entries(&context.watched, now);
    let stalled = entries.iter().filter(|one| one.is_stalled);
    let stalled = stalled.map(|one| one.uid).collect();
    context.watched.set_stalled(stalled);
    let assigned: Vec<Assigned> = context
        .queue_state
        .requests()
        .assignments()
        .map(|assignment| Assigned {
            controller: assignment.controller,
            ipus: assignment.ipus,
            count: 1,
        })
        .collect();
    let queue = Queue {
        entries: &entries,
        assigned: &assigned,
        limit: SignedDuration::try_from(backfill_limit).unwrap_or(SignedDuration::MAX),
    };
    fit::fits(open, queue, now)
}
