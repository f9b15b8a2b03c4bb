//! Pure: the lines of the tracker's summary.

use std::collections::BTreeMap;

use ipu_api::ipupartition::{AttemptOutcome, IPUPartition};
use ipu_placement::drain::attempts;

/// Most bytes of all lines together; a ConfigMap holds 1 MiB.
const BYTES_MAX: usize = 512 << 10;

/// The lines of the summary, without a limit.
#[derive(Default)]
pub(super) struct Lines(BTreeMap<String, String>);

impl Lines {
    /// Adds a line for each partition that this object has on a controller: id, owner, size and
    /// controller.
    pub(super) fn add(&mut self, partition: &IPUPartition) {
        let spec = &partition.spec;
        for attempt in attempts(partition, AttemptOutcome::Created) {
            let line = format!(
                "{} {}/{} slot {}, {} IPUs on {}",
                spec.owner.kind,
                spec.owner.namespace,
                spec.owner.name,
                spec.slot,
                spec.ipus,
                attempt.controller.name
            );
            self.0.insert(attempt.id.clone(), line);
        }
    }

    /// The lines up to the limit, and a line with the number of the others.
    pub(super) fn that_fit(self) -> BTreeMap<String, String> {
        let Self(mut all) = self;
        let (mut free, mut left_out) = (BYTES_MAX, 0);
        all.retain(|id, line| {
            let fits = id.len() + line.len() <= free;
            if fits {
                free -= id.len() + line.len();
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
}
