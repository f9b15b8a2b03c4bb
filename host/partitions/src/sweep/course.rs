//! Pure: what one sweep has to remove, one after the other, whatever becomes of each.

use std::collections::VecDeque;

use crate::orphans::Place;

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task<O> {
    /// Deletes an IPUPartition of an owner that is gone.
    Delete(O),
    /// Removes a partition of nobody, once no live Pod uses it.
    Remove(Place),
}

/// The tasks of a sweep that are left, and the errors of those that failed.
#[derive(Debug)]
pub(crate) struct Course<O, E> {
    tasks: VecDeque<Task<O>>,
    errors: Vec<E>,
}

impl<O, E> Course<O, E> {
    /// `ownerless` are, for each kind of owner, the IPUPartitions of owners that are gone, or why that is not known;
    /// `due` are the partitions of nobody.
    pub(crate) fn new(
        ownerless: impl IntoIterator<Item = Result<Vec<O>, E>>,
        due: Vec<Place>,
    ) -> Self {
        let (mut known, mut errors) = (Vec::new(), Vec::new());
        for of_kind in ownerless {
            match of_kind {
                Ok(of_kind) => known.extend(of_kind),
                Err(error) => errors.push(error),
            }
        }
        let ownerless = known.into_iter().map(Task::Delete);
        let due = due.into_iter().map(Task::Remove);
        Course {
            tasks: ownerless.chain(due).collect(),
            errors,
        }
    }

    /// The next task.
    pub(crate) fn next(&mut self) -> Option<Task<O>> {
        self.tasks.pop_front()
    }

    /// A task failed. That keeps no other from being done, and the next sweep tries it again.
    pub(crate) fn failed(&mut self, error: E) {
        self.errors.push(error);
    }

    /// What went wrong.
    pub(crate) fn into_errors(self) -> Vec<E> {
        self.errors
    }
}
