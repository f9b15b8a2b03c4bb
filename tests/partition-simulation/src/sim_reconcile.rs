//! One reconcile by the operator's executor, one effect at a time: the simulation, the model check
//! and the property tests carry out the effect and give the executor its answer.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ipu_api::ipupartition::{Attempt, ControllerRef, IPUPartition, IPUPartitionStatus};
use ipu_ledger::executor::{Effects, Ended, Reconcile as Core};
use ipu_ledger::observations::{Answer, Intent, Observation, RemoteState, Reply};
use ipu_ledger::step::{Settings, Step};
use ipu_placement::drain::EvictionState;
use jiff::Timestamp;

/// The answer to a step.
#[derive(Clone, Debug)]
pub(crate) enum EffectResult {
    /// What was read, decided, or replied.
    Observed(Observation),
    /// The object was written, and is this now, with its version.
    Wrote(u64, Arc<IPUPartition>),
    /// The finalizer was removed.
    Released,
    /// The step has no effect.
    Nothing,
    /// The decision on a controller follows.
    Undecided,
    /// A request to the API server failed.
    Failed(Failure),
}

/// A failed request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The object was changed meanwhile.
    Conflict,
    /// The outcome is unknown.
    Broken,
}

/// One reconcile of one object.
#[derive(Clone, Debug)]
pub(crate) struct Reconcile {
    /// The version of the object in its API server.
    pub version: u64,
    core: Core,
    /// The step that waits for its answer.
    step: Option<Step>,
}

// The version stands for the object, and the step follows from the rest.
impl Hash for Reconcile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.version, self.core.steps()).hash(state);
    }
}

impl Reconcile {
    pub(crate) fn begin(version: u64, object: Arc<IPUPartition>) -> Self {
        Self {
            version,
            core: Core::begin(object),
            step: None,
        }
    }

    /// The object, as it was read or last written.
    pub(crate) fn object(&self) -> &Arc<IPUPartition> {
        self.core.partition()
    }

    /// The next effect that the executor asks for, or its end.
    pub(crate) fn decide(
        &mut self,
        settings: &Settings,
        renamed: &BTreeMap<String, ControllerRef>,
        now: Timestamp,
    ) -> Step {
        let current = |controller: &ControllerRef| renamed.get(&controller.name).cloned();
        let step = self.core.next(settings, current, now);
        let step = step.expect("broken invariant: every reconcile ends");
        self.step = Some(step.clone());
        let mut effects = OneEffect::new(None);
        // What the executor changes before its first effect, it changes again when it has the
        // answer.
        let mut core = self.core.clone();
        match poll_once(core.carry_out(step, &mut effects)) {
            Poll::Pending => effects.asked.expect("only an effect is waited for"),
            Poll::Ready(Ok(Some(Ended::Done(requeue)))) => Step::Done(requeue),
            Poll::Ready(ended) => unreachable!("{ended:?} without an effect"),
        }
    }

    /// The effect has this answer. Returns how the reconcile ended, if it did.
    pub(crate) fn answer(&mut self, answer: EffectResult) -> Result<Option<Ended>, Failure> {
        let step = self.step.take().expect("a step was decided on");
        if let EffectResult::Wrote(version, _) = &answer {
            self.version = *version;
        }
        let mut effects = OneEffect::new(Some(answer));
        match poll_once(self.core.carry_out(step, &mut effects)) {
            Poll::Ready(ended) => ended,
            Poll::Pending => unreachable!("a step has one effect, and not {:?}", effects.asked),
        }
    }

    /// Adds an observation that no step of this reconcile has asked for.
    pub(crate) fn assume(&mut self, observation: Observation) {
        self.core.observe(observation);
    }

    pub(crate) fn has_worked(&self) -> bool {
        self.core.steps().has_worked()
    }
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The effect of one step: asked for, or answered.
struct OneEffect {
    answer: Option<EffectResult>,
    asked: Option<Step>,
}

impl OneEffect {
    fn new(answer: Option<EffectResult>) -> Self {
        Self {
            answer,
            asked: None,
        }
    }

    /// The answer. Without one, it waits for ever.
    async fn ask(&mut self, effect: impl FnOnce() -> Step) -> EffectResult {
        if let Some(answer) = self.answer.take() {
            return answer;
        }
        self.asked = Some(effect());
        pending().await
    }

    async fn write(&mut self, effect: impl FnOnce() -> Step) -> Result<Arc<IPUPartition>, Failure> {
        match self.ask(effect).await {
            EffectResult::Wrote(_, written) => Ok(written),
            EffectResult::Failed(failure) => Err(failure),
            answer => unreachable!("a write is answered with {answer:?}"),
        }
    }

    async fn observe(&mut self, effect: impl FnOnce() -> Step) -> Observation {
        match self.ask(effect).await {
            EffectResult::Observed(observation) => observation,
            answer => unreachable!("a call is answered with {answer:?}"),
        }
    }
}

impl Effects for OneEffect {
    type Error = Failure;

    fn is_admitted(&mut self, _: &IPUPartition, _: &Step) -> bool {
        true
    }

    // A replica that believes to lead acts, even if another one does.
    fn check_leadership(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn add_finalizer(&mut self, _: &IPUPartition) -> Result<Arc<IPUPartition>, Failure> {
        self.write(|| Step::AddFinalizer).await
    }

    async fn release(&mut self, _: &IPUPartition, abandoned: &[Attempt]) -> Result<(), Failure> {
        let abandoned = abandoned.to_vec();
        match self.ask(|| Step::RemoveFinalizer { abandoned }).await {
            EffectResult::Released => Ok(()),
            EffectResult::Failed(failure) => Err(failure),
            answer => unreachable!("a release is answered with {answer:?}"),
        }
    }

    async fn write_status(
        &mut self,
        _: &IPUPartition,
        status: IPUPartitionStatus,
        intent: Option<&Intent>,
    ) -> Result<Arc<IPUPartition>, Failure> {
        let (status, intent) = (Box::new(status), intent.cloned());
        self.write(|| match intent {
            Some(intent) => Step::Record(status, intent),
            None => Step::Write(status),
        })
        .await
    }

    async fn users(&mut self, _: &IPUPartition, id: &str) -> Result<Vec<String>, Failure> {
        match self.ask(|| Step::CountUsers(id.to_owned())).await {
            EffectResult::Observed(Observation::Users { id: of, pods }) if of == id => Ok(pods),
            EffectResult::Failed(failure) => Err(failure),
            answer => unreachable!("the users of {id} are answered with {answer:?}"),
        }
    }

    async fn create(&mut self, _: &IPUPartition, attempt: &Attempt) -> Reply {
        match self.observe(|| Step::Create(attempt.clone())).await {
            Observation::Created { id, reply } if id == attempt.id => reply,
            answer => unreachable!("{} is created: {answer:?}", attempt.id),
        }
    }

    async fn remote_state(&mut self, _: &IPUPartition, attempt: &Attempt) -> RemoteState {
        match self.observe(|| Step::ReadState(attempt.clone())).await {
            Observation::RemoteState { id, remote_state } if id == attempt.id => remote_state,
            answer => unreachable!("{} is read: {answer:?}", attempt.id),
        }
    }

    async fn remove(
        &mut self,
        _: &IPUPartition,
        attempt: &Attempt,
        force: bool,
    ) -> Result<(), String> {
        let attempt = attempt.clone();
        let id = attempt.id.clone();
        match self.observe(|| Step::Remove { attempt, force }).await {
            Observation::Removed { id: of, error } if of == id => error.map_or(Ok(()), Err),
            answer => unreachable!("{id} is removed: {answer:?}"),
        }
    }

    async fn reset(&mut self, _: &IPUPartition, attempt: &Attempt) -> Result<(), String> {
        match self.observe(|| Step::Reset(attempt.clone())).await {
            Observation::Reset { id, error } if id == attempt.id => error.map_or(Ok(()), Err),
            answer => unreachable!("{} is reset: {answer:?}", attempt.id),
        }
    }

    async fn place(&mut self, _: &IPUPartition, _: bool) -> Result<Option<Answer>, Failure> {
        match self.ask(|| Step::Place).await {
            EffectResult::Observed(Observation::Placed(answer)) => Ok(Some(answer)),
            EffectResult::Undecided => Ok(None),
            answer => unreachable!("placement answers {answer:?}"),
        }
    }

    async fn eviction(&mut self, _: &IPUPartition) -> EvictionState {
        match self.observe(|| Step::EvaluateEviction).await {
            Observation::Eviction(state) => state,
            answer => unreachable!("an eviction is answered with {answer:?}"),
        }
    }
}
