//! What a tried guest is compared with, and what it is held to, as the one that counts is.

use ipu_admission::hook_chain::Chain;
use ipu_admission::request::AdmissionRequest;
use ipu_api::ipupolicy::{CallCounts, Hook, ShadowCounts};
use ipu_guest_host::Terms;
use ipu_guest_host::model::Slot;
use ipu_policies::guests::{Entry, Guests, Roster, Tried};
use serde_json::json;
use tests::guests::hostile::{self, REFUSE, TAKE_ALL};
use tests::review;
use tests::wait::{Seen, eventually};

use super::{create, open, options};

/// A request about a job of more than 4,096 bytes, for which hostile guests wait.
fn request() -> AdmissionRequest {
    let spec = json!({"jobInstances": 1, "ipusPerJobInstance": "2"});
    review::creating("large", 5_000, &spec).unwrap()
}

async fn entry(guests: &Guests, body: &str) -> Entry {
    let terms = Terms {
        settings: "{}".to_owned(),
        ..Terms::default()
    };
    let bytes = hostile::defaulting(body);
    let prepared = guests.policies().prepare(Slot::Defaulting, bytes, terms);
    Entry {
        name: "tried".into(),
        guest: prepared.await.unwrap(),
        ..Entry::built_in(Hook::Defaulting)
    }
}

/// Counts of the one comparison of a request that `counts` answers and `tried` is tried on.
async fn compared(counts: Option<&str>, tried: Option<&str>) -> ShadowCounts {
    let guests = Guests::new(open(options(&[Slot::Defaulting])).await);
    let of = async |body: Option<&str>| match body {
        Some(body) => entry(&guests, body).await,
        None => Entry::built_in(Hook::Defaulting),
    };
    let (counts, tried) = (of(counts).await, of(tried).await);
    let meter = tried.meter.clone();
    guests.put(
        Hook::Defaulting,
        Roster {
            seats: vec![vec![counts]],
            trials: vec![Tried {
                entry: tried,
                seat: Ok(0),
                share: 100,
            }],
        },
    );
    let request = request();
    Chain::new(&guests, &request, create()).defaulted().await;
    eventually("the comparison ends", async || {
        let ShadowCounts {
            equal,
            different,
            failed,
            ..
        } = meter.counts().shadow;
        Seen::when(meter.counts().shadow, |_| equal + different + failed == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tried_guest_that_changes_what_is_not_its_own_has_failed() {
    let shadow = compared(None, Some(TAKE_ALL)).await;
    assert_eq!((shadow.failed, shadow.different), (1, 0), "{shadow:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_compared_too() {
    let shadow = compared(Some(REFUSE), None).await;
    assert_eq!(
        shadow.samples,
        ["the request was refused; it would have been admitted"]
    );
    let shadow = compared(Some(REFUSE), Some(REFUSE)).await;
    assert_eq!((shadow.equal, shadow.different), (1, 0), "{shadow:?}");
}

#[tokio::test]
async fn what_anybody_may_have_asked_is_not_compared_and_rolls_nothing_back() {
    let guests = Guests::new(open(options(&[Slot::Defaulting])).await);
    let counts = entry(&guests, REFUSE).await;
    let tried = Entry::built_in(Hook::Defaulting);
    let meters = [counts.meter.clone(), tried.meter.clone()];
    guests.put(
        Hook::Defaulting,
        Roster {
            seats: vec![vec![counts]],
            trials: vec![Tried {
                entry: tried,
                seat: Ok(0),
                share: 100,
            }],
        },
    );
    let request = request();
    let chain = Chain::new(&guests, &request, create()).counting(false);
    chain.defaulted().await;
    let [counts, tried] = meters.map(|meter| meter.counts());
    assert_eq!(counts.calls.answered, 1);
    assert_eq!(counts.recent, CallCounts::default());
    assert_eq!(tried.shadow, ShadowCounts::default());
}
