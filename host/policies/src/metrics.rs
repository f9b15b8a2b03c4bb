//! The gauges of the active guests and of the unreadable policies.

use std::collections::BTreeSet;

use ipu_runtime::release::Process;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::active_policies::ActivePolicies;
use super::bound_policy::BoundPolicy;
use super::hooks;

/// Registers the active guests, by name and module, and the number of unreadable policies.
pub fn expose(registry: &mut Registry, process: Process, policies: &ActivePolicies) {
    let gauge: Family<[(&str, String); 4], Gauge> = Family::default();
    for hook in hooks(process) {
        let chain = policies.chain(*hook);
        let enforced = chain.stages.iter().flatten();
        let enforced = enforced.map(|policy| (policy, "enforce"));
        let shadows = chain.shadows.iter();
        let shadows = shadows.map(|shadow| (&shadow.policy, "shadow"));
        let mut seen = BTreeSet::new();
        for (BoundPolicy { name, guest, .. }, mode) in enforced.chain(shadows) {
            let built_in = || policies.host().built_in(*hook);
            let digest = guest.digest().or_else(built_in);
            let digest = digest.map_or_else(|| "none".to_owned(), ToString::to_string);
            if !seen.insert((name.to_string(), mode)) {
                continue;
            }
            let labels = [
                ("hook", hook.world().to_owned()),
                ("policy", name.to_string()),
                ("digest", digest),
                ("mode", mode.to_owned()),
            ];
            gauge.get_or_create(&labels).set(1);
        }
    }
    registry.register("guest_active", "A guest that is active: always 1", gauge);
    let unreadable: Gauge = Gauge::default();
    unreadable.set(i64::try_from(policies.unreadable()).unwrap_or(i64::MAX));
    registry.register(
        "policies_unreadable",
        "IPUPolicies that this version of the operator cannot read",
        unreadable,
    );
}
