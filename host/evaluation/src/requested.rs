//! Pure: the IPUPartitions of one job, as the queue and the placement read them.

use std::time::Duration;

use ipu_api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, IPUPartition, IPUPartitionSpec, IPUPartitionStatus,
    OwnerMetadata, PartitionOptions, PartitionOwner, PartitionPhase, WaitingReason,
};
use ipu_api::partition_conditions;
use ipu_placement::drain::{self, Sibling};
use ipu_placement::queue::{self, QueueEntry};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::jobs::Job;
use crate::pool::Block;

/// The IPUPartitions of one job, and the blocks that they have.
#[derive(Debug)]
pub(crate) struct Requested {
    partitions: Vec<IPUPartition>,
    blocks: Vec<Option<Block>>,
}

impl Requested {
    /// Creates the IPUPartitions of job number `index`.
    pub(crate) fn new(index: usize, job: &Job, now: Timestamp) -> Self {
        // The number is padded, so that names order jobs of the same second as the trace does.
        let owner = format!("job-{index:09}");
        let partition = |slot| {
            let name = format!("{owner}-{slot:04}");
            let mut partition = IPUPartition::new(&name, spec(&owner, slot, job));
            partition.metadata.uid = Some(name);
            partition.metadata.creation_timestamp = Some(Time(now));
            partition
        };
        let partitions: Vec<_> = (0..job.gang).map(partition).collect();
        Self {
            blocks: vec![None; partitions.len()],
            partitions,
        }
    }

    /// Returns one of them.
    pub(crate) fn partition(&self, slot: usize) -> &IPUPartition {
        &self.partitions[slot]
    }

    /// Returns how many of the gang have a partition; 0 without a gang, as in the operator.
    pub(crate) fn held(&self, slot: usize) -> u32 {
        let me = &self.partitions[slot];
        if me.spec.options.gang_size.is_none() {
            return 0;
        }
        let all: Vec<_> = self.partitions.iter().map(Sibling::of).collect();
        drain::of_owner(me, &all).held
    }

    /// Returns the entries of those that wait, each with its slot.
    pub(crate) fn entries(&self, now: Timestamp) -> Vec<(usize, QueueEntry)> {
        let entries = queue::entries(self.partitions.iter(), now).into_iter();
        let slotted = entries.filter_map(|entry| {
            let is_it = |one: &IPUPartition| one.metadata.name.as_deref() == Some(&*entry.name);
            let slot = self.partitions.iter().position(is_it)?;
            Some((slot, entry))
        });
        slotted.collect()
    }

    /// Notes that a controller refused a partition.
    pub(crate) fn refuse(&mut self, slot: usize, controller: ControllerRef, now: Timestamp) {
        let attempt = attempt(controller, AttemptOutcome::Refused, now);
        self.status(slot).attempts.push(attempt);
    }

    /// Ends a round of attempts without a partition.
    pub(crate) fn wait(&mut self, slot: usize, mut reasons: Vec<WaitingReason>, now: Timestamp) {
        self.end_round(slot);
        let status = self.status(slot);
        // Policies see only whether there is a reason.
        reasons.truncate(1);
        status.waiting = reasons;
        self.set_ready(slot, false, now);
    }

    /// Ends a round of attempts, of which nothing else is new: in the next one, refusals do not
    /// count.
    pub(crate) fn end_round(&mut self, slot: usize) {
        let is_old = |one: &Attempt| one.outcome != AttemptOutcome::Refused;
        self.status(slot).attempts.retain(is_old);
    }

    /// Gives a partition its block. Returns whether all of the job's partitions have one.
    pub(crate) fn place(
        &mut self,
        slot: usize,
        (controller, block): (ControllerRef, Block),
        now: Timestamp,
    ) -> bool {
        let name = self.partitions[slot].metadata.name.clone();
        let status = self.status(slot);
        status.phase = PartitionPhase::Ready;
        status.partition_id = name;
        status.generation += 1;
        status.waiting.clear();
        status.attempts = vec![attempt(controller, AttemptOutcome::Created, now)];
        self.set_ready(slot, true, now);
        self.blocks[slot] = Some(block);
        self.blocks.iter().all(Option::is_some)
    }

    /// Releases the partitions that have waited for the others of the gang for this long. Returns
    /// their blocks.
    pub(crate) fn release_late(&mut self, patience: Duration, now: Timestamp) -> Vec<Block> {
        if self.blocks.iter().all(Option::is_some) {
            return Vec::new();
        }
        let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
        let mut released = Vec::new();
        for slot in 0..self.partitions.len() {
            let since = partition_conditions::ready_since(self.status(slot));
            let is_late = since.is_some_and(|since| now.duration_since(since) >= patience);
            if let Some(block) = self.blocks[slot].take_if(|_| is_late) {
                let status = self.status(slot);
                status.phase = PartitionPhase::Pending;
                status.partition_id = None;
                for attempt in &mut status.attempts {
                    attempt.outcome = AttemptOutcome::Removed;
                }
                self.set_ready(slot, false, now);
                released.push(block);
            }
        }
        released
    }

    /// Returns the blocks of all partitions.
    pub(crate) fn into_blocks(self) -> Vec<Block> {
        self.blocks.into_iter().flatten().collect()
    }

    fn status(&mut self, slot: usize) -> &mut IPUPartitionStatus {
        self.partitions[slot].status.get_or_insert_default()
    }

    /// Sets the condition with the time that the queue and the patience of gangs read.
    fn set_ready(&mut self, slot: usize, is_ready: bool, now: Timestamp) {
        let reason = if is_ready { "Ready" } else { "Waiting" };
        let status = std::mem::take(self.status(slot));
        *self.status(slot) =
            partition_conditions::ready(status, is_ready, reason, String::new(), now);
    }
}

fn spec(owner: &str, slot: u32, job: &Job) -> IPUPartitionSpec {
    IPUPartitionSpec {
        owner: PartitionOwner {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            namespace: job.namespace.to_string(),
            name: owner.to_owned(),
            uid: owner.to_owned(),
        },
        slot,
        ipus: job.ipus,
        gcds: 1,
        options: PartitionOptions {
            gang_size: (job.gang > 1).then_some(job.gang),
            ..PartitionOptions::default()
        },
        owner_metadata: OwnerMetadata::default(),
        reset_generation: 0,
    }
}

fn attempt(controller: ControllerRef, outcome: AttemptOutcome, now: Timestamp) -> Attempt {
    Attempt {
        id: String::new(),
        controller,
        outcome,
        reason: None,
        exhausted: None,
        started: Some(Time(now)),
        decided_by: None,
        account: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buddy::BlockChoice;
    use crate::controllers::Controller;
    use crate::pool::Pool;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn gang() -> Requested {
        let job = Job {
            namespace: "vision".into(),
            arrival: 5,
            ipus: 4,
            gang: 2,
            duration: 60,
        };
        Requested::new(3, &job, at(5))
    }

    #[test]
    fn a_gang_has_one_position_in_the_queue() {
        let mut gang = gang();
        let entries = gang.entries(at(6));
        let slots: Vec<_> = entries.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [0, 1]);
        assert_eq!(entries[0].1.position, entries[1].1.position);
        assert_eq!((entries[1].1.ipus, entries[1].1.gang), (4, 2));
        assert_eq!(entries[1].1.since, at(5));
        gang.wait(0, Vec::new(), at(8));
        assert_eq!(gang.entries(at(9))[0].1.since, at(8));
    }

    #[test]
    fn a_part_of_a_gang_is_released_after_the_patience() {
        let mut pool = Pool::new(&[Controller {
            name: "pod1".to_owned(),
            ipus: 16,
        }]);
        let controller = pool.refs()[0].clone();
        let mut gang = gang();
        let block = pool.create("pod1", 4, BlockChoice::Smallest).unwrap();
        assert!(!gang.place(0, (controller.clone(), block), at(10)));
        assert_eq!((gang.held(0), gang.held(1)), (1, 1));
        assert_eq!(gang.entries(at(11)).len(), 1);
        let patience = Duration::from_mins(2);
        assert_eq!(gang.release_late(patience, at(129)), []);
        assert_eq!(gang.release_late(patience, at(130)), [block]);
        assert_eq!(gang.entries(at(130)).len(), 2);
        for slot in [0, 1] {
            let block = pool.create("pod1", 4, BlockChoice::Smallest).unwrap();
            assert_eq!(
                gang.place(slot, (controller.clone(), block), at(140)),
                slot == 1
            );
        }
        assert_eq!(gang.release_late(patience, at(1_000)), []);
        assert_eq!(gang.into_blocks().len(), 2);
    }
}
