//! Which callers of the webhooks are certainly the API server: only their reviews roll policies back and promote them.
//!
//! Where callers show a certificate, all of them are. Otherwise anybody who reaches the port may send a review, and an
//! address is known for the API server's once it has sent the review of an IPUJob that is then found in the cluster:
//! nobody else knows the UID of an IPUJob without the right to read it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::ipujob::IPUJob;
use ipu_api::object_names::{is_label, is_subdomain};
use ipu_text::explain;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::request::{AdmissionRequest, Reviewed};

/// How long an address is known, after which it may be another's.
const KNOWN: Duration = Duration::from_hours(24);

/// Time between two looks for the IPUJob of a review, and how long it has to be stored after the review.
const LOOK: Duration = Duration::from_secs(1);

/// Most addresses whose reviews are waiting for a look.
const CLAIMS: usize = 256;

/// Longest UID that is looked for, in bytes.
const UID: usize = 64;

/// Which callers of the webhooks are certainly the API server. Cheap to clone; all clones know the same.
#[derive(Clone, Debug, Default)]
pub struct Callers(Option<Arc<Mutex<State>>>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<IpAddr, Instant>,
    claims: VecDeque<(IpAddr, Claim)>,
}

/// An IPUJob whose review an address has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    namespace: String,
    name: String,
    uid: String,
    since: Instant,
}

impl Callers {
    /// All of them are.
    pub fn certified() -> Self {
        Self(None)
    }

    /// None of them is until it is known.
    pub fn unknown() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether this address is the API server's, for what comes of its review.
    pub fn knows(&self, address: IpAddr, request: &AdmissionRequest) -> bool {
        let Some(state) = &self.0 else {
            return true;
        };
        let now = Instant::now();
        let mut state = locked(state);
        if state.knows(address, now) {
            return true;
        }
        if let Some(claim) = Claim::of(request, now) {
            state.claim(address, claim);
        }
        false
    }

    /// Looks for the IPUJobs of reviews until `stop`, one at a time.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let Some(state) = &self.0 else {
            return;
        };
        while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
            let due = locked(state).due(Instant::now());
            let Some((address, claim)) = due else {
                continue;
            };
            let jobs = Api::<IPUJob>::namespaced(client.clone(), &claim.namespace);
            let Some(found) = stop
                .run_until_cancelled(jobs.get_metadata_opt(&claim.name))
                .await
            else {
                return;
            };
            match found {
                Ok(Some(job)) if job.metadata.uid.as_ref() == Some(&claim.uid) => {
                    locked(state).learn(address, Instant::now());
                    tracing::info!(%address, "reviews of this address count for policies, since it is the API server's");
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(
                    "failed to look for the IPUJob of a review: {}",
                    explain(&error)
                ),
            }
        }
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Every change of it is whole before the next one begins.
    state.lock()
}

impl State {
    fn knows(&self, address: IpAddr, now: Instant) -> bool {
        let since = self.known.get(&address);
        since.is_some_and(|since| now.duration_since(*since) < KNOWN)
    }

    /// Takes in a claim. An address has one at a time, so that many claims of one hold up no other.
    fn claim(&mut self, address: IpAddr, claim: Claim) {
        let has_one = self.claims.iter().any(|(other, _)| *other == address);
        if !has_one && self.claims.len() < CLAIMS {
            self.claims.push_back((address, claim));
        }
    }

    /// The oldest claim, once its IPUJob has had time to be stored.
    fn due(&mut self, now: Instant) -> Option<(IpAddr, Claim)> {
        let (_, claim) = self.claims.front()?;
        let is_due = now.duration_since(claim.since) >= LOOK;
        is_due.then(|| self.claims.pop_front())?
    }

    fn learn(&mut self, address: IpAddr, now: Instant) {
        let is_known = |_: &IpAddr, since: &mut Instant| now.duration_since(*since) < KNOWN;
        self.known.retain(is_known);
        self.known.insert(address, now);
    }
}

impl Claim {
    /// None where nothing will be stored by this review, or nothing by that name can be.
    fn of(request: &AdmissionRequest, since: Instant) -> Option<Self> {
        let text = |path| request.object.pointer(path).and_then(Value::as_str);
        let (uid, name) = (text("/metadata/uid")?, text("/metadata/name")?);
        let can_be = request.reviewed == Reviewed::IPUJob
            && !request.dry_run
            && request.sub_resource.is_none()
            && !uid.is_empty()
            && uid.len() <= UID
            && is_subdomain(name)
            && is_label(&request.namespace);
        can_be.then(|| Self {
            namespace: request.namespace.clone(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            since,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::request;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn of(namespace: &str, metadata: &Value) -> AdmissionRequest {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "a", "namespace": namespace, "operation": "CREATE",
                "kind": {"group": "graphcore.ai", "kind": "IPUJob"},
                "object": {"metadata": metadata},
            },
        });
        request::parse(review.to_string().as_bytes()).unwrap()
    }

    fn review(uid: &str) -> AdmissionRequest {
        of("default", &json!({"name": "mnist", "uid": uid}))
    }

    fn state(callers: &Callers) -> MutexGuard<'_, State> {
        locked(callers.0.as_ref().unwrap())
    }

    #[test]
    fn with_certificates_everybody_is_known_and_without_nobody_is_by_asking() {
        assert!(Callers::certified().knows(address(1), &review("1")));
        let callers = Callers::unknown();
        for _ in 0..100 {
            assert!(!callers.knows(address(1), &review("1")));
        }
        assert_eq!(state(&callers).claims.len(), 1);
    }

    #[test]
    fn an_address_is_known_for_a_while_after_its_object_was_found_and_no_other_is() {
        let (callers, now) = (Callers::unknown(), Instant::now());
        for last in [1, 2] {
            assert!(!callers.knows(address(last), &review("1")));
        }
        assert_eq!(state(&callers).due(now), None, "it may not be stored yet");
        let (first, claim) = state(&callers).due(now + 2 * LOOK).unwrap();
        assert_eq!((first, &*claim.uid), (address(1), "1"));
        state(&callers).learn(first, now);
        assert!(callers.knows(address(1), &review("1")));
        assert!(!callers.knows(address(2), &review("1")));
        assert!(!state(&callers).knows(address(1), now + KNOWN));
    }

    #[test]
    fn what_cannot_be_looked_for_is_no_claim() {
        let callers = Callers::unknown();
        let dry_run = AdmissionRequest {
            dry_run: true,
            ..review("1")
        };
        let elsewhere = of("../../api", &json!({"name": "mnist", "uid": "1"}));
        let nameless = of("default", &json!({"name": "a/../b", "uid": "1"}));
        for review in [dry_run, elsewhere, nameless, review("")] {
            assert!(!callers.knows(address(1), &review));
        }
        assert!(state(&callers).claims.is_empty());
    }

    #[test]
    fn no_more_addresses_are_remembered_than_may_be() {
        let callers = Callers::unknown();
        for number in 0..1_000_u32 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(!callers.knows(address, &review("1")));
        }
        assert_eq!(state(&callers).claims.len(), CLAIMS);
    }

    #[tokio::test]
    async fn the_address_whose_ipujob_is_found_becomes_known_and_one_that_made_a_uid_up_does_not() {
        let api_server = service_fn(|_: Request<Body>| async {
            let found = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "mnist", "namespace": "default", "uid": "1"},
            });
            let found = found.to_string().into_bytes();
            Ok::<_, Infallible>(Response::new(Body::from(found)))
        });
        let (callers, stop) = (Callers::unknown(), CancellationToken::new());
        assert!(!callers.knows(address(2), &review("made up")));
        assert!(!callers.knows(address(1), &review("1")));
        let client = Client::new(api_server, "default");
        let (followed, stopping) = (callers.clone(), stop.clone());
        let following = tokio::spawn(async move { followed.follow(client, stopping).await });
        // The other address came first, and was looked at before.
        let known = async {
            while !callers.knows(address(1), &review("1")) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let known = tokio::time::timeout(Duration::from_mins(1), known).await;
        known.expect("the address becomes known");
        assert!(!callers.knows(address(2), &review("made up")));
        stop.cancel();
        following.await.unwrap();
    }
}
