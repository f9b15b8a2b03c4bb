//! Pure: the lines of the tracker's summary.

use std::collections::BTreeMap;

use crate::api::ipupartition::{AttemptOutcome, IPUPartition};

/// Most bytes of all lines together; a ConfigMap holds 1 MiB.
const BYTES_MAX: usize = 512 << 10;

/// One line for each partition on a controller: its id, and whose it is, how large and where. What
/// does not fit is counted in a line of its own.
pub(super) fn lines(partitions: &[IPUPartition]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for partition in partitions {
        let spec = &partition.spec;
        for attempt in partition.status.iter().flat_map(|status| &status.attempts) {
            if attempt.outcome != AttemptOutcome::Created {
                continue;
            }
            let line = format!(
                "{} {}/{} slot {}, {} IPUs on {}",
                spec.owner.kind,
                spec.owner.namespace,
                spec.owner.name,
                spec.slot,
                spec.ipus,
                attempt.controller.name
            );
            all.insert(attempt.id.clone(), line);
        }
    }
    let mut room = BYTES_MAX;
    let mut left_out = 0;
    all.retain(|id, line| {
        let fits = id.len() + line.len() <= room;
        if fits {
            room -= id.len() + line.len();
        } else {
            left_out += 1;
        }
        fits
    });
    if left_out > 0 {
        let more = format!("{left_out} more; `kubectl get ipupartitions` shows them all");
        all.insert("not-shown".to_owned(), more);
    }
    all
}
