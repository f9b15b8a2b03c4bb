//! Control planes of the tests: each test has one for itself, without objects of another test.

use cluster::control_plane::ControlPlane;
use cluster::control_plane::pool::{self, Loan};
use cluster::wait::eventually;
use http::Request;
use ipu_api::crd;
use kube::Client;

use crate::definitions::define;

/// A control plane without any objects.
pub(crate) async fn empty() -> Loan {
    pool::lend().await.unwrap()
}

/// A control plane that no other test has used or will use, for tests that remove CRDs: an API
/// server removes a CRD only after it has removed all of its objects, those of an earlier test
/// among them.
pub(crate) async fn own() -> Loan {
    ControlPlane::start().await.unwrap().into()
}

/// A control plane with the CRDs of the operator.
pub(crate) async fn with_definitions() -> Loan {
    let plane = pool::lend_prepared(define_all).await.unwrap();
    once_served(&plane.client().await.unwrap()).await;
    plane
}

async fn define_all(client: Client) {
    for definition in crd::all() {
        define(&client, &definition).await;
    }
    once_served(&client).await;
}

/// Waits until all kinds can be listed.
async fn once_served(client: &Client) {
    for definition in crd::all() {
        let (group, names) = (definition.spec.group, definition.spec.names);
        let version = &definition.spec.versions[0].name;
        let path = format!("/apis/{group}/{version}/{}", names.plural);
        eventually(&format!("{path} is served"), async || {
            let list = Request::get(&path).body(Vec::new()).unwrap();
            client.request_text(list).await
        })
        .await;
    }
}
