//! Pure: the tasks of one sweep and their order, each independent of the failure of others. The
//! sweep, its simulation and its model share it. The latter two perform all tasks in one course.

pub mod orphans;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use crate::sweep::orphans::RemotePartition;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task<O> {
    /// Deletes an IPUPartition of an owner that is gone.
    Delete(O),
    /// Counts the live Pods that use a partition without an owner.
    Count(RemotePartition),
    /// Removes a partition without an owner, which no live Pod used a moment ago.
    Remove(RemotePartition),
}

/// Tasks of a sweep that remain to be performed in order, the errors of failed ones, and the
/// removals without an answer.
#[derive(Clone, Debug, Hash)]
pub struct Course<O, E> {
    tasks: VecDeque<Task<O>>,
    errors: Vec<E>,
    unanswered: Vec<RemotePartition>,
    in_use: BTreeSet<RemotePartition>,
}

impl<O, E> Course<O, E> {
    /// `ownerless` are, for each kind of owner, the IPUPartitions of owners that are gone, or the
    /// error of their list; `due` are the partitions without an owner.
    pub fn new(
        ownerless: impl IntoIterator<Item = Result<Vec<O>, E>>,
        due: Vec<RemotePartition>,
    ) -> Self {
        let (mut known, mut errors) = (Vec::new(), Vec::new());
        for of_kind in ownerless {
            match of_kind {
                Ok(of_kind) => known.extend(of_kind),
                Err(error) => errors.push(error),
            }
        }
        let ownerless = known.into_iter().map(Task::Delete);
        let due = due.into_iter().map(Task::Count);
        Course {
            tasks: ownerless.chain(due).collect(),
            errors,
            unanswered: Vec::new(),
            in_use: BTreeSet::new(),
        }
    }

    /// The same in courses that run concurrently: one for the IPUPartitions of owners that are
    /// gone, and one for each controller. A controller that does not answer removals delays neither
    /// other controllers nor deletions.
    pub fn concurrent(
        ownerless: impl IntoIterator<Item = Result<Vec<O>, E>>,
        due: Vec<RemotePartition>,
    ) -> Vec<Self> {
        let mut of_controllers: BTreeMap<String, Vec<RemotePartition>> = BTreeMap::new();
        for partition in due {
            let of_controller = of_controllers.entry(partition.0.clone());
            of_controller.or_default().push(partition);
        }
        let deletions = Self::new(ownerless, Vec::new());
        let removals = of_controllers.into_values().map(|due| Self::new([], due));
        iter::once(deletions).chain(removals).collect()
    }

    /// The next task.
    pub fn next_task(&mut self) -> Option<Task<O>> {
        self.tasks.pop_front()
    }

    /// Notes how many live Pods use a partition. An unused one is removed next: each later task
    /// gives a Pod more time to begin to use it. If its controller has not answered another removal
    /// meanwhile, it is left to the next sweep.
    pub fn counted(&mut self, partition: RemotePartition, users: usize) {
        let mut unanswered = self.unanswered.iter();
        if users > 0 {
            self.in_use.insert(partition);
        } else if !unanswered.any(|(controller, _)| *controller == partition.0) {
            self.tasks.push_front(Task::Remove(partition));
        }
    }

    /// Returns the partitions without an owner that Pods use.
    pub fn take_in_use(&mut self) -> BTreeSet<RemotePartition> {
        std::mem::take(&mut self.in_use)
    }

    /// Notes a removal without an answer. The next sweep continues with its controller: here, each
    /// other task on it may take as long.
    pub fn unanswered(&mut self, partition: RemotePartition) {
        let controller = &partition.0;
        self.tasks.retain(|task| match task {
            Task::Delete(_) => true,
            Task::Count((name, _)) | Task::Remove((name, _)) => name != controller,
        });
        self.unanswered.push(partition);
    }

    /// Returns the partitions whose removal had no answer.
    pub fn take_unanswered(&mut self) -> Vec<RemotePartition> {
        std::mem::take(&mut self.unanswered)
    }

    /// Notes a failed task. The others continue, and the next sweep tries it again.
    pub fn failed(&mut self, error: E) {
        self.errors.push(error);
    }

    /// Notes an error that ends the course.
    pub fn stopped(&mut self, error: E) {
        self.tasks.clear();
        self.errors.push(error);
    }

    /// The errors.
    pub fn into_errors(self) -> Vec<E> {
        self.errors
    }
}
