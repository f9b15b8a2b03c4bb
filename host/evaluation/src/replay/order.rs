//! Pure: the order in which waiting requests are served.

use ipu_placement::queue::{self, QueueEntry};

use super::{Order, Run, timestamp};

impl<P> Run<'_, P> {
    /// Sorts the waiting requests into the order in which they are served.
    pub(super) fn sort_queue(&mut self) {
        match self.settings.order {
            Order::Creation => queue::in_order(&mut self.queue),
            Order::FairShare => self.sort_by_share(),
        }
    }

    /// Sorts by the IPUs of the namespaces. The placement reads from the positions which requests
    /// are earlier, so they get new ones. All partitions of a gang have the same one.
    fn sort_by_share(&mut self) {
        let (jobs, slots, usages) = (self.jobs, &self.slots, &self.usages);
        let share = |entry: &QueueEntry| {
            let (job, slot) = slots[&entry.name];
            (usages.placed_ipus(&jobs[job].namespace), job, slot)
        };
        self.queue.sort_by_cached_key(share);
        let (mut position, mut last) = (0, None);
        for entry in &mut self.queue {
            let (job, _) = slots[&entry.name];
            if last != Some(job) {
                (position, last) = (position + 1, Some(job));
            }
            entry.position.created = timestamp(position);
        }
    }
}
