//! Asks the placement guest in force, and has the built-in serial walk decide where it gives no answer
//! that can be carried out.

use serde_json::{Value, json};

use super::compare;
use super::guests::{Entry, Guests, Tried, concerned, is_in_share};
use super::matching::Subject;
use super::meter::Compared;
use crate::agent::explain;
use crate::api::ipupolicy::{BUILT_IN, Hook};
use crate::wasm::model::{
    ControllerView, Decision, ModuleDigest, PlaceAttempt, PlaceRequest, Placed,
};
use crate::wasm::{checked_decision, serial_walk};

impl Guests {
    /// Decides what to do next for a wanted partition. There always is a decision.
    pub async fn place(
        &self,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Placed {
        let roster = self.roster(Hook::Placement);
        let about = about(request);
        let subject = Subject {
            namespace_labels: request.facts.namespace.labels.as_ref(),
            object: None,
            old_object: None,
            request: &about,
        };
        let seat = roster.seats.first().map(Vec::as_slice).unwrap_or_default();
        let (policy, digest, checked) = match concerned(seat, &subject) {
            Some((entry, Ok(()))) => {
                let (digest, checked) = self.ask(entry, request, controllers, attempts).await;
                (entry.name.to_string(), digest, checked)
            }
            Some((entry, Err(error))) => (entry.name.to_string(), None, Err(explain(&error))),
            None => (
                BUILT_IN.to_owned(),
                None,
                Err("no guest sits there".to_owned()),
            ),
        };
        let placed = match checked {
            Ok(decision) => Placed {
                decision,
                digest,
                policy,
                overruled: None,
            },
            Err(reason) => {
                tracing::warn!(
                    policy,
                    owner = request.owner,
                    namespace = request.namespace,
                    "the built-in serial walk decides instead of the policy: {reason}"
                );
                if !request.facts.progress.is_question {
                    self.policies().calls().fell_back(&policy);
                }
                Placed {
                    decision: serial_walk(request, controllers, attempts),
                    digest,
                    policy,
                    overruled: Some(reason),
                }
            }
        };
        // Whoever only wants to know asks often, and changes nothing.
        let trials = roster.trials.iter();
        for tried in trials.filter(|_| !request.facts.progress.is_question) {
            let name = format!("{}/{}/{}", request.namespace, request.owner, request.slot);
            if is_in_share(tried.share, &name)
                && tried.entry.matching.concerns(&subject) == Ok(true)
            {
                self.compare_decision(tried, request, controllers, attempts, &placed.decision);
            }
        }
        placed
    }

    /// Asks one guest, and checks that what it answers can be carried out.
    async fn ask(
        &self,
        entry: &Entry,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> (Option<ModuleDigest>, Result<Decision, String>) {
        let policies = self.policies();
        let asked = policies.place(&entry.guest, request, controllers, attempts);
        match asked.await {
            Ok(served) => {
                let checked = checked_decision(served.answer, request, controllers, attempts);
                entry.meter.called(checked.is_err());
                (Some(served.digest), checked)
            }
            Err(error) => {
                if error.is_failure() {
                    entry.meter.called(true);
                }
                (entry.guest.digest().cloned(), Err(explain(&error)))
            }
        }
    }

    fn compare_decision(
        &self,
        tried: &Tried,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
        counts: &Decision,
    ) {
        let meter = tried.entry.meter.clone();
        let Ok(turn) = self.comparing().clone().try_acquire_owned() else {
            meter.compared(Compared::Skipped);
            return;
        };
        let (guests, guest) = (self.clone(), tried.entry.guest.clone());
        let (request, controllers) = (request.clone(), controllers.to_vec());
        let (attempts, counts) = (attempts.to_vec(), counts.clone());
        tokio::spawn(async move {
            let policies = guests.policies();
            let answer = policies
                .place(&guest, &request, &controllers, &attempts)
                .await;
            let checked = answer
                .ok()
                .map(|served| checked_decision(served.answer, &request, &controllers, &attempts));
            meter.compared(match checked {
                Some(Ok(decision)) => compare::decisions(&counts, &decision),
                Some(Err(why)) => {
                    Compared::Different(format!("it would have been overruled: {why}"))
                }
                None => Compared::Failed,
            });
            drop(turn);
        });
    }
}

/// `request` in the conditions of a placement policy.
fn about(request: &PlaceRequest) -> Value {
    json!({
        "namespace": request.namespace,
        "owner": request.owner,
        "slot": request.slot,
        "ipus": request.ipus,
        "gcds": request.gcds,
        "nodeSelector": request.node_selector,
    })
}
