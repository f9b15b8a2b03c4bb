//! Reviews of one job, whose namespace has labels that the policy selects.

use std::sync::Arc;

use http::{Request, Response};
use ipu_guest_host::GuestHostOptions;
use ipu_policies::active_policies::HookChain;
use ipu_policies::bound_policy::BoundPolicy;
use ipu_policies::matcher::Matcher;
use ipu_policies::namespace_usage::namespaces;
use ipu_runtime::lease::Leadership;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::*;

/// A cluster with the job `mnist` in the namespace `team`.
fn cluster() -> Client {
    let service = service_fn(|_: Request<Body>| async {
        let job = json!({"metadata": {"name": "mnist", "namespace": "team"}, "spec": {}});
        let body = json!({"metadata": {}, "items": [job]}).to_string();
        Ok::<_, BoxError>(Response::new(Body::from(body.into_bytes())))
    });
    Client::new(service, "default")
}

/// A policy for the namespaces of a tier.
fn shadow() -> BoundShadow {
    let selected = json!({"namespaceSelector": {"matchLabels": {"tier": "trial"}}});
    let selected = serde_json::from_value(selected).unwrap();
    let matcher = Matcher::new(Hook::Validation, Some(&selected)).unwrap();
    BoundShadow {
        policy: BoundPolicy {
            matcher: Arc::new(matcher),
            ..BoundPolicy::built_in(Hook::Validation)
        },
        version: ("uid".to_owned(), 1),
        stage: Err(0),
        share_percent: 100,
    }
}

/// The reviewer of a replica that leads, and does not know the labels of any namespace.
async fn reviewer() -> ExistingReviewer {
    let host = GuestHost::open(GuestHostOptions::default()).await.unwrap();
    let active = ActivePolicies::new(host);
    let chain = HookChain {
        shadows: vec![shadow()],
        ..HookChain::default()
    };
    active.set_chain(Hook::Validation, chain);
    let leadership = Leadership::until(Instant::now() + Duration::from_mins(10));
    ExistingReviewer {
        client: cluster(),
        scope: Scope::Cluster,
        has_native_pods: false,
        active,
        namespaces: namespaces().0,
        leading: LeadershipStatus::of(leadership),
    }
}

#[tokio::test]
async fn a_review_without_labels_ends_before_it_counts_an_object_as_failed() {
    let reviewer = reviewer().await;
    let ended = reviewer.review(&shadow(), true).await.unwrap();
    assert!(matches!(ended, Review::Unlabelled(namespace) if namespace == "team"));
}

#[tokio::test]
async fn a_review_that_has_waited_in_vain_names_the_namespace() {
    let reviewer = reviewer().await;
    let ended = reviewer.review(&shadow(), false).await.unwrap();
    let Review::Ended(Reviewed { result, unlabelled }) = ended else {
        panic!("it ends");
    };
    assert_eq!((result.reviewed, result.failed), (0, 1));
    assert_eq!(unlabelled.as_deref(), Some("team"));
}
