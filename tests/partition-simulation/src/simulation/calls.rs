//! Calls as they take effect on V-IPU controllers.

use ipu_api::ipupartition::ControllerRef;

use super::controllers::{Call, Then, Verb};
use super::coverage::CoveragePoint;
use super::event_queue::Event;
use super::world::World;

impl World {
    /// A call reaches its controller.
    pub(super) fn arrive(&mut self, call: &Call) {
        let id = &call.id;
        if self.controllers[call.controller].is_down {
            self.cover(CoveragePoint::NotSent);
            self.answer_call(call, Err("connection refused".to_owned()), false);
            return;
        }
        if call.is_refused {
            self.cover(CoveragePoint::SaidNo);
            let error = "it refuses (ResourceExhausted)".to_owned();
            self.answer_call(call, Err(error), true);
            return;
        }
        let users = self.users(id);
        let result = self.controllers[call.controller].accept(id, call.verb);
        self.trace.say(self.event_queue.now(), || {
            format!("{:?} of {id}: {result:?}", call.verb)
        });
        if result.is_ok() {
            self.history.took_effect(id, call.verb, &users);
            if call.verb == Verb::Reset {
                self.job_history.reset(id);
            }
            self.check_assigned_once(call);
            self.follow_up(call);
        }
        self.answer_call(call, result.map_err(str::to_owned), true);
        self.check_partition(id);
    }

    /// The effects of a call that was accepted.
    fn follow_up(&mut self, call: &Call) {
        if call.is_late {
            self.cover(CoveragePoint::Late);
        }
        let fails = self.rng.permille(self.fault_rates.failures);
        let (then, most) = match call.verb {
            Verb::Create { .. } if self.history.was_denied(&call.id) => {
                self.cover(CoveragePoint::LateCreate);
                (Then::Formed, 2_000)
            }
            Verb::Create { .. } if fails && self.rng.permille(300) => {
                self.cover(CoveragePoint::FormsNever);
                return;
            }
            Verb::Create { .. } if fails => (Then::FailedToForm, 20_000),
            Verb::Create { .. } => (Then::Formed, self.rng.pick(&[50, 2_000, 60_000])),
            Verb::Remove { .. } if fails => (Then::FailedToGo, 5_000),
            Verb::Remove { .. } => (Then::Gone, self.rng.pick(&[20, 1_000, 15_000])),
            Verb::Reset if fails && self.rng.permille(300) => {
                self.cover(CoveragePoint::ResetsNever);
                return;
            }
            Verb::Reset if fails => (Then::FailedToReset, 20_000),
            Verb::Reset => (Then::WasReset, self.rng.pick(&[20, 1_000, 15_000])),
        };
        match call.verb {
            Verb::Remove { .. } if call.is_late => self.cover(CoveragePoint::LateRemove),
            Verb::Reset if call.is_late => self.cover(CoveragePoint::LateReset),
            _ => {}
        }
        let time = self.rng.between(1, most);
        let (controller, id) = (call.controller, call.id.clone());
        self.event_queue.add(
            time,
            Event::Progress {
                controller,
                id,
                then,
            },
        );
    }

    pub(super) fn progress(&mut self, controller: usize, id: &str, then: Then) {
        if !self.controllers[controller].progress(id, then) {
            return;
        }
        self.trace.say(self.event_queue.now(), || {
            format!("{id} on {controller}: {then:?}")
        });
        match then {
            Then::Formed => self.cover(CoveragePoint::Formed),
            Then::FailedToForm => self.cover(CoveragePoint::FailsToForm),
            Then::FailedToReset => self.cover(CoveragePoint::ResetFails),
            Then::FailedToGo => self.cover(CoveragePoint::RemoveFails),
            Then::WasReset | Then::Gone | Then::Healed => {}
        }
    }

    pub(super) fn controller_index(&self, reference: &ControllerRef) -> usize {
        let now = self.renamed.get(&reference.name).unwrap_or(reference);
        let mut names = self.second_names.iter();
        if let Some((_, index)) = names.find(|(entry, _)| entry == now) {
            return *index;
        }
        let mut all = self.controllers.iter();
        let index = all.position(|one| one.reference == *now);
        index.expect("attempts name controllers of this world")
    }
}
