//! Pure: the tasks of one sweep, each independent of the failure of others.

use std::collections::VecDeque;

use crate::orphans::RemotePartition;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Task<O> {
    /// Deletes an IPUPartition of an owner that is gone.
    Delete(O),
    /// Removes a partition without an owner, if no live Pod uses it.
    Remove(RemotePartition),
}

/// The remaining tasks of a sweep, and the errors of failed ones.
#[derive(Debug)]
pub(crate) struct Course<O, E> {
    tasks: VecDeque<Task<O>>,
    errors: Vec<E>,
}

impl<O, E> Course<O, E> {
    /// `ownerless` are, for each kind of owner, the IPUPartitions of owners that are gone, or the error of their list;
    /// `due` are the partitions without an owner.
    pub(crate) fn new(
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

    /// Notes a failed task. The others continue, and the next sweep tries it again.
    pub(crate) fn failed(&mut self, error: E) {
        self.errors.push(error);
    }

    /// The errors.
    pub(crate) fn into_errors(self) -> Vec<E> {
        self.errors
    }
}
