//! Asks the active placement guest, and has the built-in serial walk decide where it gives no answer
//! that can be carried out.

use std::sync::Arc;

use ipu_api::ipupolicy::{BUILT_IN, Hook};
use ipu_guest_host::model::{
    ControllerView, Decision, ModuleDigest, PlaceAttempt, PlaceRequest, Placed,
};
use ipu_guest_host::{GuestError, checked_decision, serial_walk};
use ipu_runtime::panics::caught;
use ipu_text::explain;
use serde_json::{Value, json};

use super::compare;
use super::guests::{Entry, Guests, Tried, is_in_share};
use super::judging::Purpose;
use super::matching::{Seen, Subject};
use super::meter::Compared;

impl Guests {
    /// Decides what to do next for a wanted partition. There always is a decision.
    pub async fn place(
        &self,
        request: &PlaceRequest,
        controllers: &[ControllerView],
        attempts: &[PlaceAttempt],
    ) -> Placed {
        let roster = self.roster(Hook::Placement);
        let seen = seen(request);
        let subject = subject(request, &seen);
        let seat = roster.seats.first().map(Vec::as_slice).unwrap_or_default();
        let purpose = if request.facts.progress.dry_run {
            Purpose::Question
        } else {
            Purpose::Decision
        };
        let concerned = self.judges().concerned(seat, &subject, purpose).await;
        let (policy, digest, checked) = match concerned {
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
                if !request.facts.progress.dry_run {
                    tracing::warn!(
                        policy,
                        owner = request.owner,
                        namespace = request.namespace,
                        "the built-in serial walk decides instead of the policy: {reason}"
                    );
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
        for tried in trials.filter(|_| !request.facts.progress.dry_run) {
            let name = format!("{}/{}/{}", request.namespace, request.owner, request.slot);
            if is_in_share(tried.share, &name) && tried.entry.matching.selects(&subject) == Ok(true)
            {
                let asked = (request, controllers, attempts);
                self.compare_decision(tried, &seen, asked, &placed.decision);
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
        let dry_run = request.facts.progress.dry_run;
        let asked = async {
            loop {
                let asked = policies.place(&entry.guest, request, controllers, attempts);
                match asked.await {
                    // A decision waits: nobody else decides because a queue is long.
                    Err(GuestError::Busy { .. }) if !dry_run => {}
                    answered => return answered,
                }
            }
        };
        // Anybody may ask questions, and nobody's questions roll a policy back.
        let count = |failed| {
            if !dry_run {
                entry.meter.called(failed, true);
            }
        };
        match asked.await {
            Ok(served) => {
                let checked = checked_decision(served.answer, request, controllers, attempts);
                count(checked.is_err());
                (Some(served.digest), checked)
            }
            Err(error) => {
                if error.is_failure() {
                    count(true);
                }
                (entry.guest.digest().cloned(), Err(explain(&error)))
            }
        }
    }

    fn compare_decision(
        &self,
        tried: &Tried,
        seen: &Seen,
        (request, controllers, attempts): (&PlaceRequest, &[ControllerView], &[PlaceAttempt]),
        counts: &Decision,
    ) {
        let meter = tried.entry.meter.clone();
        let Ok(turn) = self.comparing().clone().try_acquire_owned() else {
            meter.compared(Compared::Skipped);
            return;
        };
        let (guests, seen) = (self.clone(), seen.clone());
        let (guest, matching) = (tried.entry.guest.clone(), tried.entry.matching.clone());
        let (request, controllers) = (request.clone(), controllers.to_vec());
        let (attempts, counts) = (attempts.to_vec(), counts.clone());
        tokio::spawn(caught(async move {
            let subject = subject(&request, &seen);
            if guests
                .judges()
                .concerns(&matching, &subject, Purpose::Decision)
                .await
                != Ok(true)
            {
                return;
            }
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
        }));
    }
}

/// What the conditions of a placement policy see.
fn seen(request: &PlaceRequest) -> Seen {
    let about: Value = json!({
        "namespace": request.namespace,
        "owner": request.owner,
        "slot": request.slot,
        "ipus": request.ipus,
        "gcds": request.gcds,
        "nodeSelector": request.node_selector,
    });
    Seen {
        request: Arc::new(about),
        ..Seen::default()
    }
}

fn subject<'a>(request: &'a PlaceRequest, seen: &'a Seen) -> Subject<'a> {
    Subject {
        namespace_labels: request.facts.namespace.labels.as_ref(),
        seen,
    }
}
