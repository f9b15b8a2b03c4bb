//! Identifies the API server among the callers of the webhooks: only its reviews count for
//! rollbacks and promotions.
//!
//! If callers need a certificate, all of them are the API server. Otherwise anyone who reaches the
//! port can send a review. Then an address belongs to the API server once it has sent the review of
//! an IPUJob that exists afterwards: without read access no other client knows the UID of an
//! IPUJob.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipu_api::dns1123::{is_label, is_subdomain};
use ipu_api::ipujob::IPUJob;
use ipu_text::explain;
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::request::{AdmissionRequest, Reviewed};

/// Lifetime of a trusted address, which can move to another Pod.
const TRUST_LIFETIME: Duration = Duration::from_hours(24);

/// Period of the checks, and time in which the API server stores an IPUJob after its review.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Most claims that wait for a check.
const CLAIMS: usize = 256;

/// Longest UID of a claim, in bytes.
const UID: usize = 64;

/// The callers of the webhooks. Cheap to clone; all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Callers(Option<Arc<Mutex<State>>>);

#[derive(Debug, Default)]
struct State {
    trusted: HashMap<IpAddr, Instant>,
    claims: VecDeque<(IpAddr, Claim)>,
}

/// The claim of an address to be the API server: the IPUJob of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    namespace: String,
    name: String,
    uid: String,
    since: Instant,
}

impl Callers {
    /// Every caller is the API server, because the port requires its certificate.
    pub fn certified() -> Self {
        Self(None)
    }

    /// No caller is the API server until a claim proves it.
    pub fn unknown() -> Self {
        Self(Some(Arc::default()))
    }

    /// Whether this address belongs to the API server. If not, its review becomes a claim.
    pub fn is_api_server(&self, address: IpAddr, request: &AdmissionRequest) -> bool {
        let Some(state) = &self.0 else {
            return true;
        };
        let now = Instant::now();
        let mut state = state.lock();
        if state.trusts(address, now) {
            return true;
        }
        if let Some(claim) = Claim::of(request, now) {
            state.claim(address, claim);
        }
        false
    }

    /// Checks the claims until `stop`, one at a time.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let Some(state) = &self.0 else {
            return;
        };
        while stop
            .run_until_cancelled(sleep(CHECK_PERIOD))
            .await
            .is_some()
        {
            let due = state.lock().take_due(Instant::now());
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
                    state.lock().trust(address, Instant::now());
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

impl State {
    fn trusts(&self, address: IpAddr, now: Instant) -> bool {
        let since = self.trusted.get(&address);
        since.is_some_and(|since| now.duration_since(*since) < TRUST_LIFETIME)
    }

    /// Adds a claim. Each address has one at a time, so that it does not delay other addresses.
    fn claim(&mut self, address: IpAddr, claim: Claim) {
        let has_one = self.claims.iter().any(|(other, _)| *other == address);
        if !has_one && self.claims.len() < CLAIMS {
            self.claims.push_back((address, claim));
        }
    }

    /// Takes the oldest claim, once the API server has had time to store its IPUJob.
    fn take_due(&mut self, now: Instant) -> Option<(IpAddr, Claim)> {
        let (_, claim) = self.claims.front()?;
        let is_due = now.duration_since(claim.since) >= CHECK_PERIOD;
        is_due.then(|| self.claims.pop_front())?
    }

    fn trust(&mut self, address: IpAddr, now: Instant) {
        let is_valid =
            |_: &IpAddr, since: &mut Instant| now.duration_since(*since) < TRUST_LIFETIME;
        self.trusted.retain(is_valid);
        self.trusted.insert(address, now);
    }
}

impl Claim {
    /// Returns `None` if the review stores nothing, or its names are invalid.
    fn of(request: &AdmissionRequest, since: Instant) -> Option<Self> {
        let text = |path| request.object.pointer(path).and_then(Value::as_str);
        let (uid, name) = (text("/metadata/uid")?, text("/metadata/name")?);
        let is_storable = request.reviewed == Reviewed::IPUJob
            && !request.dry_run
            && request.sub_resource.is_none()
            && !uid.is_empty()
            && uid.len() <= UID
            && is_subdomain(name)
            && is_label(&request.namespace);
        is_storable.then(|| Self {
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
    use parking_lot::MutexGuard;
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
        callers.0.as_ref().unwrap().lock()
    }

    #[test]
    fn with_certificates_every_caller_is_the_api_server() {
        assert!(Callers::certified().is_api_server(address(1), &review("1")));
        let callers = Callers::unknown();
        for _ in 0..100 {
            assert!(!callers.is_api_server(address(1), &review("1")));
        }
        assert_eq!(state(&callers).claims.len(), 1);
    }

    #[test]
    fn an_address_is_trusted_for_a_while_after_its_claim_is_proven() {
        let (callers, now) = (Callers::unknown(), Instant::now());
        for last in [1, 2] {
            assert!(!callers.is_api_server(address(last), &review("1")));
        }
        assert_eq!(
            state(&callers).take_due(now),
            None,
            "it may not be stored yet"
        );
        let (first, claim) = state(&callers).take_due(now + 2 * CHECK_PERIOD).unwrap();
        assert_eq!((first, &*claim.uid), (address(1), "1"));
        state(&callers).trust(first, now);
        assert!(callers.is_api_server(address(1), &review("1")));
        assert!(!callers.is_api_server(address(2), &review("1")));
        assert!(!state(&callers).trusts(address(1), now + TRUST_LIFETIME));
    }

    #[test]
    fn a_review_that_stores_nothing_is_no_claim() {
        let callers = Callers::unknown();
        let dry_run = AdmissionRequest {
            dry_run: true,
            ..review("1")
        };
        let elsewhere = of("../../api", &json!({"name": "mnist", "uid": "1"}));
        let nameless = of("default", &json!({"name": "a/../b", "uid": "1"}));
        for review in [dry_run, elsewhere, nameless, review("")] {
            assert!(!callers.is_api_server(address(1), &review));
        }
        assert!(state(&callers).claims.is_empty());
    }

    #[test]
    fn the_number_of_claims_is_bounded() {
        let callers = Callers::unknown();
        for number in 0..1_000_u32 {
            let address = IpAddr::from(number.to_be_bytes());
            assert!(!callers.is_api_server(address, &review("1")));
        }
        assert_eq!(state(&callers).claims.len(), CLAIMS);
    }

    #[tokio::test]
    async fn the_address_of_an_existing_ipujob_is_trusted_and_one_with_an_invented_uid_is_not() {
        let api_server = service_fn(|_: Request<Body>| async {
            let found = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "mnist", "namespace": "default", "uid": "1"},
            });
            let found = found.to_string().into_bytes();
            Ok::<_, Infallible>(Response::new(Body::from(found)))
        });
        let (callers, stop) = (Callers::unknown(), CancellationToken::new());
        assert!(!callers.is_api_server(address(2), &review("made up")));
        assert!(!callers.is_api_server(address(1), &review("1")));
        let client = Client::new(api_server, "default");
        let (followed, stopping) = (callers.clone(), stop.clone());
        let following = tokio::spawn(async move { followed.follow(client, stopping).await });
        // The other address came first, and was looked at before.
        let trusted = async {
            while !callers.is_api_server(address(1), &review("1")) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let trusted = tokio::time::timeout(Duration::from_mins(1), trusted).await;
        trusted.expect("the address becomes trusted");
        assert!(!callers.is_api_server(address(2), &review("made up")));
        stop.cancel();
        following.await.unwrap();
    }
}
