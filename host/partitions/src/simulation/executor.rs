//! Carries out what a reconcile has decided: writes to the API server and calls to controllers, with
//! all that can go wrong on the way.

use ipu_api::ipupartition::{Attempt, IPUPartition, IPUPartitionStatus};
use ipu_api::labels;

use super::agenda::{Event, Reply, Ticket};
use super::api_server::{Stored, job_of};
use super::controllers::{Call, Verb};
use super::coverage::Sight;
use super::invariants::StatusWrite;
use super::sim_adapter;
use super::trace;
use super::world::World;
use crate::observations::{Intent, Observation};
use crate::step::Step;

/// What goes wrong with one call to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    Nothing,
    RequestLost,
    ReplyLost,
    Late,
    Duplicated,
    Refused,
}

impl Mishap {
    pub(super) const ALL: [Mishap; 6] = [
        Mishap::Nothing,
        Mishap::RequestLost,
        Mishap::ReplyLost,
        Mishap::Late,
        Mishap::Duplicated,
        Mishap::Refused,
    ];
}

/// What goes wrong with one request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    Before,
    After,
}

impl World {
    /// Carries out the step that this reconcile has decided on.
    pub(super) fn send(&mut self, ticket: Ticket) {
        let Some(task) = self.task(ticket) else {
            return;
        };
        let Some(step) = task.step.take() else {
            return;
        };
        let object = task.core.object.clone();
        let stood = std::mem::take(&mut task.stood);
        self.trace.say(self.agenda.now(), || {
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
            self.saw(Sight::ZombieActed);
        }
        let is_last = self.is_last_step(ticket.who);
        self.carry_out(ticket, &object, step, is_last);
        if is_last {
            self.death = None;
            self.kill(ticket.who, 1_000);
        }
    }

    fn carry_out(&mut self, ticket: Ticket, object: &IPUPartition, step: Step, is_last: bool) {
        let mishap = match self.death {
            Some(death) if is_last => Some(death.mishap),
            _ => None,
        };
        match step {
            Step::Done(_) => {}
            Step::AddFinalizer => {
                self.saw(Sight::FinalizerAdded);
                self.write(ticket, Observation::Written, |object| {
                    let mut all = object.metadata.finalizers.take().unwrap_or_default();
                    all.push(labels::PARTITION_FINALIZER.to_owned());
                    object.metadata.finalizers = Some(all);
                });
            }
            Step::RemoveFinalizer { .. } => self.release(ticket, object),
            Step::Write(status) => {
                self.saw(Sight::StatusWritten);
                self.write_status(ticket, object, *status, Observation::Written);
            }
            Step::Record(status, intent) => {
                self.saw(match intent {
                    Intent::Create(_) => Sight::CreateRecorded,
                    Intent::Reset(_) => Sight::ResetRecorded,
                });
                self.write_status(ticket, object, *status, Observation::Recorded(intent));
            }
            Step::Create(attempt) => {
                self.saw(Sight::CreateSent);
                self.ledger.create_sent(&attempt, ticket);
                let ipus = object.spec.ipus;
                self.call(ticket, &attempt, Verb::Create { ipus }, mishap);
            }
            Step::Remove { attempt, force } => {
                self.saw(Sight::RemoveSent);
                if force {
                    self.saw(Sight::RemoveForced);
                }
                self.call(ticket, &attempt, Verb::Remove { force }, mishap);
            }
            Step::Reset(attempt) => {
                self.saw(Sight::ResetSent);
                self.ledger.reset_sent(&attempt.id, ticket);
                self.call(ticket, &attempt, Verb::Reset, mishap);
            }
            Step::ReadState(attempt) => self.read_state(ticket, attempt),
            Step::CountUsers(id) => self.count_users(ticket, id),
            Step::EvaluateEviction => {
                let eviction_state = self.evaluate_eviction(object);
                self.observe(ticket, Observation::Eviction(eviction_state));
            }
            Step::Place => {
                self.saw(Sight::Placed);
                let answer = self.place(ticket.who, object);
                // The poorest random numbers that will do: they differ where the API server has forgotten.
                let nonce = self.restores;
                self.observe(ticket, Observation::Placed(answer, nonce));
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, reply: Reply) {
        let delay = self.latency();
        self.agenda.add(delay, Event::Reply(ticket, reply));
    }

    fn observe(&mut self, ticket: Ticket, observation: Observation) {
        self.answer(ticket, Reply::observed(observation));
    }

    fn read_state(&mut self, ticket: Ticket, attempt: Attempt) {
        self.saw(Sight::TruthAsked);
        let controller = self.controller_index(&attempt.controller);
        let is_lost = self.chance.permille(self.weather.calls / 4);
        let is_listed = self.is_listed(controller, &attempt.controller);
        let remote_state = if is_lost || !self.is_reached(controller, &attempt.controller) {
            if !is_listed {
                self.saw(Sight::NotListed);
            }
            sim_adapter::without_answer("connection refused", false, is_listed)
        } else if self.controllers[controller].denies {
            sim_adapter::without_answer("permission denied", true, is_listed)
        } else {
            let state = self.controllers[controller].state(&attempt.id);
            if state.is_none() {
                self.lacking.denied(&attempt.id, self.agenda.now());
                self.ledger.denied(&attempt.id);
            }
            sim_adapter::remote_state(state.as_ref())
        };
        self.note(|| format!("    {} is {remote_state:?}", attempt.id));
        let id = attempt.id;
        self.observe(ticket, Observation::RemoteState { id, remote_state });
    }

    fn count_users(&mut self, ticket: Ticket, id: String) {
        self.saw(Sight::UsersCounted);
        let reply = if self.fault() == Fault::Nothing {
            let pods = self.users(&id);
            if !pods.is_empty() {
                self.saw(Sight::HeldUpByPods);
            } else if self.chance.permille(300) {
                // The worst moment for a Pod to start is just after it was not there.
                let (job, pause) = (job_of(ticket.key), self.chance.between(0, 10));
                self.agenda.add(pause, Event::Tick(job));
            }
            Reply::observed(Observation::Users { pods, id })
        } else {
            self.saw(Sight::ReadFailed);
            Reply::Broken
        };
        self.answer(ticket, reply);
    }

    /// Sends a call on its way, and says when its caller hears what.
    fn call(&mut self, ticket: Ticket, attempt: &Attempt, verb: Verb, planned: Option<Mishap>) {
        let mishap = planned.unwrap_or_else(|| self.mishap());
        self.note(|| format!("    {verb:?} meets {mishap:?}"));
        let call = Call {
            controller: self.controller_index(&attempt.controller),
            verb,
            id: attempt.id.clone(),
            caller: Some(ticket),
            is_late: false,
            is_refused: mishap == Mishap::Refused,
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
        match mishap {
            Mishap::Nothing | Mishap::Refused => self.agenda.add(way, Event::Arrive(call)),
            Mishap::RequestLost => {
                self.saw(Sight::RequestLost);
                self.give_up(&call, patience);
            }
            Mishap::ReplyLost => {
                self.saw(Sight::ReplyLost);
                self.agenda.add(way.min(patience), Event::Arrive(deaf));
                self.give_up(&call, patience);
            }
            Mishap::Late => {
                self.give_up(&call, patience);
                let most = self.chance.pick(&[50, 2_000, 120_000]);
                let delay = patience + self.chance.between(1, most);
                let late = Call {
                    is_late: true,
                    ..deaf
                };
                self.agenda.add(delay, Event::Arrive(late));
            }
            Mishap::Duplicated => {
                self.saw(Sight::Duplicated);
                // A reset that was answered is taken for done: nothing but its id could tell a
                // second delivery from the first, so that one is possible only before the reply.
                let pause = match verb {
                    Verb::Reset => 0,
                    Verb::Create { .. } | Verb::Remove { .. } => self.chance.between(0, 60_000),
                };
                let second = Call {
                    is_late: pause > 0,
                    ..deaf
                };
                self.agenda.add(way, Event::Arrive(call));
                self.agenda.add(way + pause, Event::Arrive(second));
            }
        }
    }

    /// The caller hears nothing within its deadline.
    fn give_up(&mut self, call: &Call, patience: u64) {
        let error = Err("deadline exceeded".to_owned());
        if let Some(ticket) = call.caller {
            let reply = Reply::observed(call.told(error, false));
            self.agenda.add(patience, Event::Reply(ticket, reply));
        }
    }

    /// The caller of a call hears what came of it.
    pub(super) fn answer_call(&mut self, call: &Call, result: Result<(), String>, was_sent: bool) {
        if let Some(ticket) = call.caller {
            self.observe(ticket, call.told(result, !was_sent));
        }
    }

    fn release(&mut self, ticket: Ticket, object: &IPUPartition) {
        self.saw(Sight::FinalizerRemoved);
        let key = ticket.key;
        let is_at = self.api.get(key).map(|stored| stored.version);
        let was = self.task(ticket).map(|task| task.core.version);
        let fault = self.fault();
        if fault != Fault::Before && is_at == was {
            let annotations = object.metadata.annotations.iter().flatten();
            let is_forced = annotations
                .into_iter()
                .any(|(name, value)| name == labels::FORCE_ANNOTATION && value == "true");
            let controllers = &self.controllers;
            let is_there = |id: &str| controllers.iter().any(|one| one.made.contains_key(id));
            self.ledger.released(key, object, is_forced, is_there);
            let attempts = object.status.iter().flat_map(|status| &status.attempts);
            if attempts.into_iter().any(Attempt::is_held) {
                self.saw(Sight::Abandoned);
            }
        }
        let result = self.store(ticket, fault, |object| {
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
            self.replicas[ticket.who].released_at = self.agenda.now();
        }
        let grace = self.settings.grace.as_millis();
        let grace = grace.try_into().expect("a grace is short");
        self.lacking
            .check(&before, &after, grace, self.agenda.now());
        let task = self.replicas[ticket.who].tasks.get(&ticket.key);
        if let Some(task) = task {
            for id in &task.evidence.unreachable {
                self.lacking.not_asked(id);
            }
            let written = StatusWrite {
                ticket,
                intent: intent.as_ref(),
                before: &before,
                after: &after,
                evidence: &task.evidence,
            };
            self.ledger.status_written(&written);
            super::outcomes::count(&written, &mut self.coverage);
        }
        self.check_slot(ticket.key);
    }

    /// A write with the version that was read. Answers whether it took place.
    fn write(
        &mut self,
        ticket: Ticket,
        observation: Observation,
        change: impl FnOnce(&mut IPUPartition),
    ) -> bool {
        let fault = self.fault();
        let (took_place, reply) = match self.store(ticket, fault, change) {
            Ok(Some(stored)) => (
                true,
                Reply::Wrote(stored.version, stored.object, Box::new(observation)),
            ),
            Ok(None) => (true, Reply::Broken),
            Err(reply) => (
                fault == Fault::After && matches!(reply, Reply::Broken),
                reply,
            ),
        };
        self.answer(ticket, reply);
        took_place
    }

    fn store(
        &mut self,
        ticket: Ticket,
        fault: Fault,
        change: impl FnOnce(&mut IPUPartition),
    ) -> Result<Option<Stored>, Reply> {
        if fault == Fault::Before {
            self.saw(Sight::WriteFailed);
            return Err(Reply::Broken);
        }
        let version = self.task(ticket).map_or(0, |task| task.core.version);
        let Ok(stored) = self.api.replace(ticket.key, version, change) else {
            self.saw(Sight::Conflicted);
            return Err(Reply::Conflict);
        };
        if fault == Fault::After {
            self.saw(Sight::WriteReplyLost);
            return Err(Reply::Broken);
        }
        Ok(stored)
    }

    pub(super) fn fault(&mut self) -> Fault {
        if self.is_api_down() || self.chance.permille(self.weather.requests) {
            return Fault::Before;
        }
        if self.chance.permille(self.weather.requests) {
            return Fault::After;
        }
        Fault::Nothing
    }
}
