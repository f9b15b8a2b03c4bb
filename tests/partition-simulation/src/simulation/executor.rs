//! Carries out the steps of a reconcile: writes to the API server and calls to controllers, with
//! injected faults.

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;
use ipu_ledger::observations::{Intent, Observation};
use ipu_ledger::step::Step;

use super::api_server::{Stored, job_of};
use super::controllers::{Call, Verb};
use super::coverage::CoveragePoint;
use super::event_queue::{Event, Reply, Ticket};
use super::invariants::{Release, StatusWrite};
use super::world::World;
use super::{sim_adapter, trace};

/// The fault of one call to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    Nothing,
    RequestLost,
    ReplyLost,
    Late,
    Duplicated,
    Refused,
}

impl CallFault {
    pub(super) const ALL: [CallFault; 6] = [
        CallFault::Nothing,
        CallFault::RequestLost,
        CallFault::ReplyLost,
        CallFault::Late,
        CallFault::Duplicated,
        CallFault::Refused,
    ];
}

/// The fault of one request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiFault {
    Nothing,
    Before,
    After,
}

impl World {
    /// Executes the step that this reconcile has decided on.
    pub(super) fn send(&mut self, ticket: Ticket) {
        let Some(task) = self.task(ticket) else {
            return;
        };
        let Some(step) = task.step.take() else {
            return;
        };
        let object = task.core.object().clone();
        let stood = std::mem::take(&mut task.stood);
        self.trace.say(self.event_queue.now(), || {
            format!(
                "replica {} on {}: {}",
                ticket.who,
                self.name(ticket.key),
                trace::brief(&step)
            )
        });
        let is_effect = !matches!(
            step,
            Step::ReadState(_) | Step::CountUsers(_) | Step::Place | Step::EvaluateEviction
        );
        if stood && is_effect {
            self.cover(CoveragePoint::ZombieActed);
        }
        let is_last = self.is_last_step(ticket.who);
        self.carry_out(ticket, &object, step, is_last);
        if is_last {
            self.death = None;
            self.kill(ticket.who, 1_000);
        }
    }

    fn carry_out(&mut self, ticket: Ticket, object: &IPUPartition, step: Step, is_last: bool) {
        let call_fault = match self.death {
            Some(death) if is_last => Some(death.call_fault),
            _ => None,
        };
        match step {
            Step::Done(_) => {}
            Step::AddFinalizer => {
                self.cover(CoveragePoint::FinalizerAdded);
                self.write(ticket, Observation::Written, |object| {
                    let mut all = object.metadata.finalizers.take().unwrap_or_default();
                    all.push(labels::PARTITION_FINALIZER.to_owned());
                    object.metadata.finalizers = Some(all);
                });
            }
            Step::RemoveFinalizer { abandoned } => self.release(ticket, object, &abandoned),
            Step::Write(status) => {
                self.cover(CoveragePoint::StatusWritten);
                self.write_status(ticket, object, *status, Observation::Written);
            }
            Step::Record(status, intent) => {
                self.cover(match intent {
                    Intent::Create(_) => CoveragePoint::CreateRecorded,
                    Intent::Reset(_) => CoveragePoint::ResetRecorded,
                });
                self.write_status(ticket, object, *status, Observation::Recorded(intent));
            }
            Step::Create(attempt) => {
                self.cover(CoveragePoint::CreateSent);
                self.history.create_sent(&attempt, ticket);
                let ipus = object.spec.ipus;
                self.call(ticket, &attempt, Verb::Create { ipus }, call_fault);
            }
            Step::Remove { attempt, force } => {
                self.cover(CoveragePoint::RemoveSent);
                if force {
                    self.cover(CoveragePoint::RemoveForced);
                }
                self.call(ticket, &attempt, Verb::Remove { force }, call_fault);
            }
            Step::Reset(attempt) => {
                self.cover(CoveragePoint::ResetSent);
                self.history.reset_sent(&attempt.id, ticket);
                self.call(ticket, &attempt, Verb::Reset, call_fault);
            }
            Step::ReadState(attempt) => self.read_state(ticket, attempt),
            Step::CountUsers(id) => self.count_users(ticket, id),
            Step::EvaluateEviction => {
                let eviction_state = self.evaluate_eviction(ticket.who, object);
                self.observe(ticket, Observation::Eviction(eviction_state));
            }
            Step::Place => self.place(ticket, object),
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let delay = self.latency();
        self.event_queue.add(delay, Event::Reply(ticket, reply));
    }

    pub(super) fn observe(&mut self, ticket: Ticket, observation: Observation) {
        self.answer(ticket, Reply::observed(observation));
    }

    fn read_state(&mut self, ticket: Ticket, attempt: Attempt) {
        self.cover(CoveragePoint::StateRead);
        let controller = self.controller_index(&attempt.controller);
        let is_lost = self.rng.permille(self.fault_rates.calls / 4);
        let is_listed = self.is_listed(controller, &attempt.controller);
        let remote_state = if is_lost || !self.is_reached(controller, &attempt.controller) {
            if !is_listed {
                self.cover(CoveragePoint::NotListed);
            }
            sim_adapter::without_answer("connection refused", false, is_listed)
        } else if self.controllers[controller].denies {
            sim_adapter::without_answer("permission denied", true, is_listed)
        } else {
            let state = self.controllers[controller].state(&attempt.id);
            if state.is_none() {
                self.missing.denied(&attempt.id, self.event_queue.now());
                self.history.denied(&attempt.id);
            }
            sim_adapter::shown_to(self.account(), sim_adapter::remote_state(state.as_ref()))
        };
        self.note(|| format!("    {} is {remote_state:?}", attempt.id));
        let id = attempt.id;
        self.observe(ticket, Observation::RemoteState { id, remote_state });
    }

    fn count_users(&mut self, ticket: Ticket, id: String) {
        self.cover(CoveragePoint::UsersCounted);
        let reply = if self.api_fault() == ApiFault::Nothing {
            let pods = self.live_pods(&id);
            if !pods.is_empty() {
                self.cover(CoveragePoint::HeldUpByPods);
            } else if self.rng.permille(300) {
                // The worst moment for the start of a Pod is just after its check.
                let (job, pause) = (job_of(ticket.key), self.rng.between(0, 10));
                self.schedule_owner(job, pause);
            }
            Reply::observed(Observation::Users { pods, id })
        } else {
            self.cover(CoveragePoint::ReadFailed);
            Reply::Broken
        };
        self.answer(ticket, reply);
    }

    /// Sends a call, and schedules its result for the caller.
    fn call(&mut self, ticket: Ticket, attempt: &Attempt, verb: Verb, planned: Option<CallFault>) {
        let call_fault = planned.unwrap_or_else(|| self.call_fault());
        self.note(|| format!("    {verb:?} meets {call_fault:?}"));
        let call = Call {
            controller: self.controller_index(&attempt.controller),
            verb,
            id: attempt.id.clone(),
            caller: Some(ticket),
            is_late: false,
            is_refused: call_fault == CallFault::Refused,
        };
        let (way, patience) = (self.latency(), self.patience());
        if self.renamed.contains_key(&attempt.controller.name) {
            self.answer_call(&call, Err("no such host".to_owned()), false);
            return;
        }
        let deaf = Call {
            caller: None,
            ..call.clone()
        };
        match call_fault {
            CallFault::Nothing | CallFault::Refused => {
                self.event_queue.add(way, Event::Arrive(call));
            }
            CallFault::RequestLost => {
                self.cover(CoveragePoint::RequestLost);
                self.time_out(&call, patience);
            }
            CallFault::ReplyLost => {
                self.cover(CoveragePoint::ReplyLost);
                self.event_queue.add(way.min(patience), Event::Arrive(deaf));
                self.time_out(&call, patience);
            }
            CallFault::Late => {
                self.time_out(&call, patience);
                let most = self.rng.pick(&[50, 2_000, 120_000]);
                let delay = patience + self.rng.between(1, most);
                let late = Call {
                    is_late: true,
                    ..deaf
                };
                self.event_queue.add(delay, Event::Arrive(late));
            }
            CallFault::Duplicated => {
                self.cover(CoveragePoint::Duplicated);
                // A reset counts as done after its reply: only its id could distinguish a
                // second delivery from the first, so that one is possible only before the reply.
                let pause = match verb {
                    Verb::Reset => 0,
                    Verb::Create { .. } | Verb::Remove { .. } => self.rng.between(0, 60_000),
                };
                let second = Call {
                    is_late: pause > 0,
                    ..deaf
                };
                self.event_queue.add(way, Event::Arrive(call));
                self.event_queue.add(way + pause, Event::Arrive(second));
            }
        }
    }

    /// The call times out for the caller.
    fn time_out(&mut self, call: &Call, patience: u64) {
        let error = Err("deadline exceeded".to_owned());
        if let Some(ticket) = call.caller {
            let reply = Reply::observed(call.observation(error, false));
            self.event_queue.add(patience, Event::Reply(ticket, reply));
        }
    }

    /// The caller receives the result of a call.
    pub(super) fn answer_call(&mut self, call: &Call, result: Result<(), String>, was_sent: bool) {
        if let Some(ticket) = call.caller {
            self.observe(ticket, call.observation(result, !was_sent));
        }
    }

    fn release(&mut self, ticket: Ticket, object: &IPUPartition, abandoned: &[Attempt]) {
        self.cover(CoveragePoint::FinalizerRemoved);
        let key = ticket.key;
        let is_at = self.api.get(key).map(|stored| stored.version);
        let task = self.task(ticket);
        let was = task.as_ref().map(|task| task.core.version);
        let evidence = task.map(|task| task.evidence.clone()).unwrap_or_default();
        let api_fault = self.api_fault();
        if api_fault != ApiFault::Before && is_at == was {
            let annotations = object.metadata.annotations.iter().flatten();
            let is_forced = annotations
                .into_iter()
                .any(|(name, value)| name == labels::FORCE_ANNOTATION && value == "true");
            let controllers = &self.controllers;
            let is_there = |id: &str| controllers.iter().any(|one| one.made.contains_key(id));
            let release = Release {
                object,
                abandoned,
                is_forced,
                evidence: &evidence,
            };
            self.history.released(key, &release, is_there);
            if !abandoned.is_empty() {
                self.cover(CoveragePoint::Abandoned);
            }
        }
        let result = self.store(ticket, api_fault, |object| {
            let finalizers = object.metadata.finalizers.iter_mut();
            for all in finalizers {
                all.retain(|name| name != labels::PARTITION_FINALIZER);
            }
        });
        let reply = result.map_or_else(|reply| reply, |_| Reply::Released);
        self.answer(ticket, reply);
    }

    fn write_status(
        &mut self,
        ticket: Ticket,
        before: &IPUPartition,
        status: IPUPartitionStatus,
        observation: Observation,
    ) {
        let before = before.status.clone().unwrap_or_default();
        let after = status.clone();
        let intent = match &observation {
            Observation::Recorded(intent) => Some(intent.clone()),
            _ => None,
        };
        let took_place = self.write(ticket, observation, |object| object.status = Some(status));
        if !took_place {
            return;
        }
        if sim_adapter::releases(&before, &after) {
            self.capacity_released(ticket.who);
        }
        let grace = self.settings.grace.as_millis();
        let grace = grace.try_into().expect("a grace is short");
        self.missing
            .check(&before, &after, grace, self.event_queue.now());
        let task = self.replicas[ticket.who].tasks.get(&ticket.key);
        if let Some(task) = task {
            for id in &task.evidence.unreachable {
                self.missing.mark_unread(id);
            }
            let written = StatusWrite {
                ticket,
                intent: intent.as_ref(),
                before: &before,
                after: &after,
                evidence: &task.evidence,
            };
            self.history.status_written(&written);
            super::outcomes::count(&written, &mut self.coverage);
        }
        self.check_slot(ticket.key);
    }

    /// A write with the version that was read. Returns whether it succeeded.
    fn write(
        &mut self,
        ticket: Ticket,
        observation: Observation,
        change: impl FnOnce(&mut IPUPartition),
    ) -> bool {
        let api_fault = self.api_fault();
        let (took_place, reply) = match self.store(ticket, api_fault, change) {
            Ok(Some(stored)) => (
                true,
                Reply::Wrote(stored.version, stored.object, Box::new(observation)),
            ),
            Ok(None) => (true, Reply::Broken),
            Err(reply) => (
                api_fault == ApiFault::After && matches!(reply, Reply::Broken),
                reply,
            ),
        };
        self.answer(ticket, reply);
        took_place
    }

    fn store(
        &mut self,
        ticket: Ticket,
        api_fault: ApiFault,
        change: impl FnOnce(&mut IPUPartition),
    ) -> Result<Option<Stored>, Reply> {
        if api_fault == ApiFault::Before {
            self.cover(CoveragePoint::WriteFailed);
            return Err(Reply::Broken);
        }
        let version = self.task(ticket).map_or(0, |task| task.core.version);
        let Ok(stored) = self.api.replace(ticket.key, version, change) else {
            self.cover(CoveragePoint::Conflicted);
            return Err(Reply::Conflict);
        };
        if api_fault == ApiFault::After {
            self.cover(CoveragePoint::WriteReplyLost);
            return Err(Reply::Broken);
        }
        Ok(stored)
    }

    pub(super) fn api_fault(&mut self) -> ApiFault {
        if self.is_api_down() || self.rng.permille(self.fault_rates.requests) {
            return ApiFault::Before;
        }
        if self.rng.permille(self.fault_rates.requests) {
            return ApiFault::After;
        }
        ApiFault::Nothing
    }
}
