//! Gauge of the active guests.

use std::collections::BTreeSet;

use ipu_guest_host::metrics::hook;
use ipu_guest_host::model::Slot;
use ipu_runtime::release::Process;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::guests::{Entry, Guests};
use super::hooks;

/// Registers the active guests, by name and module.
pub fn expose(now: &mut Registry, process: Process, guests: &Guests) {
    let asked: Family<[(&str, String); 4], Gauge> = Family::default();
    for at in hooks(process) {
        let (roster, slot) = (guests.roster(*at), Slot::from(*at));
        let entries = roster
            .seats
            .iter()
            .flatten()
            .map(|entry| (entry, "enforce"));
        let tried = roster.trials.iter().map(|tried| (&tried.entry, "shadow"));
        let mut seen = BTreeSet::new();
        for (Entry { name, guest, .. }, mode) in entries.chain(tried) {
            let built_in = || guests.policies().built_in(slot);
            let digest = guest.digest().or_else(built_in);
            let digest = digest.map_or_else(|| "none".to_owned(), ToString::to_string);
            if !seen.insert((name.to_string(), mode)) {
                continue;
            }
            let labels = [
                ("hook", hook(slot).to_owned()),
                ("policy", name.to_string()),
                ("digest", digest),
                ("mode", mode.to_owned()),
            ];
            asked.get_or_create(&labels).set(1);
        }
    }
    now.register("guest_active", "A guest that is active: always 1", asked);
}
