//! Pure: erases the records of the use of partitions that are gone.

use std::collections::BTreeSet;

use ipu_api::naming;

use super::Effects;
use crate::facts::Facts;
use crate::status::postponed;
use crate::validate::ValidJob;

/// Erases the record of the use of each partition that is gone, before the status is built.
///
/// A late watch also lacks a partition that another process has requested, and whose use it has
/// recorded. The version of the job protects only the job. So the API server answers whether a
/// partition is gone, and not the cache.
pub(super) async fn erase_gone<E: Effects>(
    job: &ValidJob,
    effects: &mut E,
    facts: &mut Facts,
) -> Result<(), E::Error> {
    let observed = effects.observed();
    if postponed::after_end(&observed.status, facts.now).is_some() {
        // A later reconcile writes the status.
        return Ok(());
    }
    let seen: BTreeSet<u32> = observed.partitions.iter().map(|found| found.slot).collect();
    let owner = job.partition_owner();
    for (index, used) in std::mem::take(&mut facts.run.used) {
        let is_there = match index.parse() {
            Ok(slot) if seen.contains(&slot) => true,
            Ok(slot) => {
                let partition = naming::partition_object(&owner, slot);
                effects.has_partition(&partition).await?
            }
            Err(_) => false,
        };
        if is_there {
            facts.run.used.insert(index, used);
        }
    }
    Ok(())
}
