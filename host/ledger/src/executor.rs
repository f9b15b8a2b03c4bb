//! One reconcile of one IPUPartition, carried out over its effects: from step to observation,
//! without I/O of its own.
//!
//! The operator gives it the API server and the V-IPU controllers as [`Effects`], the simulation
//! gives it its own.

mod effects;

use std::sync::Arc;

use ipu_api::ipupartition::{ControllerRef, IPUPartition, IPUPartitionStatus};
use jiff::Timestamp;

use super::observations::{Intent, Observation};
use super::reconcile::{StepLimit, Steps};
use super::step::{Requeue, Settings, Step};

pub use self::effects::Effects;

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do for now.
    Done(Requeue),
    /// The finalizer was removed.
    Released,
    /// No permit of the controller was free. The reconcile that returns one triggers the next of
    /// this object.
    Postponed,
}

/// One reconcile, between two of its steps.
#[derive(Clone, Debug)]
pub struct Reconcile {
    partition: Arc<IPUPartition>,
    steps: Steps,
}

impl Reconcile {
    /// Begins with the object as it was read.
    pub fn begin(partition: Arc<IPUPartition>) -> Self {
        Self {
            partition,
            steps: Steps::default(),
        }
    }

    /// The object, as it was read or last written.
    pub fn partition(&self) -> &Arc<IPUPartition> {
        &self.partition
    }

    /// The steps that it has taken, and what it has observed.
    pub fn steps(&self) -> &Steps {
        &self.steps
    }

    /// The next step. `current` returns the entry of a controller in the admin's list.
    pub fn next(
        &mut self,
        settings: &Settings,
        current: impl Fn(&ControllerRef) -> Option<ControllerRef>,
        now: Timestamp,
    ) -> Result<Step, StepLimit> {
        self.steps.next(&self.partition, settings, current, now)
    }

    /// Carries out a step. Returns how the reconcile ended; `None` if it goes on with the next
    /// step.
    pub async fn carry_out<E: Effects>(
        &mut self,
        step: Step,
        effects: &mut E,
    ) -> Result<Option<Ended>, E::Error> {
        if !effects.is_admitted(&self.partition, &step) {
            return Ok(Some(Ended::Postponed));
        }
        effects.check_leadership()?;
        match step {
            Step::Done(requeue) => return Ok(Some(Ended::Done(requeue))),
            Step::AddFinalizer => {
                let written = effects.add_finalizer(&self.partition).await?;
                self.observe_write(written, Observation::Written);
            }
            Step::RemoveFinalizer { abandoned } => {
                effects.release(&self.partition, &abandoned).await?;
                return Ok(Some(Ended::Released));
            }
            Step::Write(status) => self.write(*status, None, effects).await?,
            Step::Record(status, intent) => self.write(*status, Some(intent), effects).await?,
            Step::Place => {
                let has_written = self.steps.has_worked();
                let Some(answer) = effects.place(&self.partition, has_written).await? else {
                    // The pass that decides triggers the next reconcile.
                    return Ok(Some(Ended::Done(Requeue::ForCapacity)));
                };
                self.observe(Observation::Placed(answer));
            }
            step => self.look_or_call(step, effects).await?,
        }
        Ok(None)
    }

    /// Adds an observation.
    pub fn observe(&mut self, observation: Observation) {
        self.steps.observe(observation);
    }

    /// The object was written, and is this now.
    fn observe_write(&mut self, written: Arc<IPUPartition>, observation: Observation) {
        self.partition = written;
        self.steps.observe_write(observation);
    }

    async fn write<E: Effects>(
        &mut self,
        status: IPUPartitionStatus,
        intent: Option<Intent>,
        effects: &mut E,
    ) -> Result<(), E::Error> {
        let partition = &self.partition;
        let written = effects
            .write_status(partition, status, intent.as_ref())
            .await?;
        self.observe_write(
            written,
            intent.map_or(Observation::Written, Observation::Recorded),
        );
        Ok(())
    }

    /// Carries out a step that does not change the object.
    async fn look_or_call<E: Effects>(
        &mut self,
        step: Step,
        effects: &mut E,
    ) -> Result<(), E::Error> {
        let partition = &self.partition;
        let observation = match step {
            Step::Create(attempt) => Observation::Created {
                reply: effects.create(partition, &attempt).await,
                id: attempt.id,
            },
            Step::ReadState(attempt) => Observation::RemoteState {
                remote_state: effects.remote_state(partition, &attempt).await,
                id: attempt.id,
            },
            Step::CountUsers(id) => Observation::Users {
                pods: effects.users(partition, &id).await?,
                id,
            },
            Step::Remove { attempt, force } => Observation::Removed {
                error: effects.remove(partition, &attempt, force).await.err(),
                id: attempt.id,
            },
            Step::Reset(attempt) => Observation::Reset {
                error: effects.reset(partition, &attempt).await.err(),
                id: attempt.id,
            },
            Step::EvaluateEviction => Observation::Eviction(effects.eviction(partition).await),
            Step::AddFinalizer
            | Step::RemoveFinalizer { .. }
            | Step::Write(_)
            | Step::Record(..)
            | Step::Place
            | Step::Done(_) => return Ok(()),
        };
        self.observe(observation);
        Ok(())
    }
}
