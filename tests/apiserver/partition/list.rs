//! The admin's list of controllers while the proxy runs: the watch delivers a change at once.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::wait::{eventually, within};
use ipu_runtime::config_map_watch::watch_config_map;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::util::MapRequestLayer;
use vipu_client::registry::Source;
use vipu_client::{Deadlines, Registry};

use super::fixture::{Fixture, LIST, NAMESPACE};
use super::placement::get;

/// The requests of a client to the API server.
type Requests = Arc<Mutex<Vec<String>>>;

/// A client that records every request.
async fn noting(kubeconfig: &Path) -> (Client, Requests) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options);
    let requests = Requests::default();
    let noted = requests.clone();
    let layer = MapRequestLayer::new(move |request: http::Request<Body>| {
        noted.lock().unwrap().push(request.uri().to_string());
        request
    });
    let builder = ClientBuilder::try_from(config.await.unwrap()).unwrap();
    (builder.with_layer(&layer).build(), requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_arrives_by_the_open_watch_and_by_no_further_request() {
    let fixture = Fixture::without_proxy(&[4, 16]).await;
    let [first, second] = [&fixture.pods[0], &fixture.pods[1]];
    fixture.list_controllers(&[first]).await;
    let registry = Arc::new(Registry::new(Deadlines::default()));
    let (client, requests) = noting(&fixture.kubeconfig).await;
    let events = watch_config_map(client, NAMESPACE, LIST);
    let following = tokio::spawn({
        let registry = registry.clone();
        async move { registry.follow(events).await }
    });
    eventually("the list is read and the watch is open", async || {
        let known = registry.known();
        let requests = requests.lock().unwrap().clone();
        let is_open = requests
            .iter()
            .any(|request| request.contains("watch=true"));
        if known.source == Source::Current && is_open {
            Ok(())
        } else {
            Err(format!("{known:?} {requests:?}"))
        }
    })
    .await;
    let before = requests.lock().unwrap().clone();
    for pods in [&[first, second][..], &[second], &[first]] {
        let begin = Instant::now();
        fixture.list_controllers(pods).await;
        let stored = begin.elapsed();
        let wanted: Vec<String> = pods.iter().map(|pod| pod.address.to_string()).collect();
        eventually("the new list is known", async || {
            let entries = registry.known().entries.clone();
            let names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
            if names == wanted {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
        let known = begin.elapsed();
        println!("written after {stored:.1?}, known after {known:.1?}");
    }
    assert_eq!(
        *requests.lock().unwrap(),
        before,
        "the list was requested again"
    );
    following.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_a_changed_list_at_once() {
    let fixture = Fixture::start(&[4, 16]).await;
    let total = |ipus: u32| format!(r#""total":{{"used":0,"available":{ipus}}}}}"#);
    let shown = async |ipus: u32| {
        eventually(&format!("/stats counts {ipus} IPUs"), async || {
            let answer = get(fixture.port, "/stats").await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.ends_with(&total(ipus)) {
                Ok(())
            } else {
                Err(answer)
            }
        })
        .await;
    };
    shown(20).await;
    fixture.list_controllers(&[&fixture.pods[1]]).await;
    within("users see a changed list", SHOWN, shown(16)).await;
}

/// Median of the time until users see a change of the list.
const SHOWN: Duration = Duration::from_secs(1);

/// The delay that `charts/ipu-operator/docs/install.md` promises.
const DELAY_MAX: Duration = SHOWN.saturating_mul(5);

#[test]
fn the_document_promises_five_times_the_median() {
    let document = include_str!("../../../charts/ipu-operator/docs/install.md");
    let promise = format!("within {} seconds of a change", DELAY_MAX.as_secs());
    assert!(document.contains(&promise), "{promise}");
}
