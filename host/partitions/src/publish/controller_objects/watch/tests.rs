//! Cordons from the first list on, and without a definition.

use std::convert::Infallible;

use futures::FutureExt;
use ipu_api::vipu_controller::{CordonState, CordonStates, VIPUControllerSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use kube::runtime::watcher::Event;
use vipu_client::Deadlines;
use vipu_client::controllers::KEY;

use super::*;

async fn registry() -> Arc<Registry> {
    let registry = Registry::new(Deadlines::default());
    let list = ConfigMap {
        data: Some([(KEY.to_owned(), "pod1:8090:ipunode=pod1".to_owned())].into()),
        ..ConfigMap::default()
    };
    let objects = futures::stream::iter([Ok::<_, Infallible>(Some(list))]);
    registry.follow(objects).await;
    Arc::new(registry)
}

fn object(cordoned: bool) -> VIPUController {
    let spec = VIPUControllerSpec {
        cordoned,
        ..VIPUControllerSpec::default()
    };
    VIPUController::new("pod1-8090", spec)
}

fn cordoned() -> CordonStates {
    CordonStates::from([("pod1:8090".to_owned(), CordonState::Cordoned)])
}

fn not_found() -> watcher::Error {
    let status = Status {
        code: 404,
        ..Status::default()
    };
    watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
}

#[tokio::test]
async fn nothing_is_known_before_the_first_list_is_complete() {
    let registry = registry().await;
    let (objects, watch) = controller_objects(registry.clone());
    for event in [Event::Init, Event::InitApply(object(true))] {
        watch.apply_event(event);
        assert_eq!(objects.known().now_or_never(), None);
        assert_eq!(objects.all(), None);
    }
    watch.apply_event(Event::InitDone);
    assert_eq!(objects.known().now_or_never(), Some(()));
    assert_eq!(registry.known().cordons, cordoned());
    assert_eq!(objects.all().unwrap().len(), 1);
    watch.apply_event(Event::Apply(object(false)));
    assert_eq!(registry.known().cordons, CordonStates::new());
}

#[tokio::test]
async fn a_list_that_begins_again_lifts_no_cordon() {
    let registry = registry().await;
    let (objects, watch) = controller_objects(registry.clone());
    for event in [
        Event::Init,
        Event::InitApply(object(true)),
        Event::InitDone,
        Event::Init,
    ] {
        watch.apply_event(event);
    }
    watch.apply_error(&watcher::Error::NoResourceVersion);
    assert_eq!(registry.known().cordons, cordoned());
    assert_eq!(objects.known().now_or_never(), Some(()));
    watch.apply_event(Event::InitDone);
    assert_eq!(registry.known().cordons, CordonStates::new(), "it is gone");
}

#[tokio::test]
async fn without_a_definition_the_proxy_goes_on_and_finds_it_later() {
    let registry = registry().await;
    let (objects, watch) = controller_objects(registry.clone());
    watch.apply_error(&watcher::Error::NoResourceVersion);
    assert_eq!(objects.known().now_or_never(), None, "it may come to know");
    watch.apply_error(&not_found());
    assert_eq!(objects.known().now_or_never(), Some(()));
    assert_eq!(objects.all(), None);
    for event in [Event::Init, Event::InitApply(object(true)), Event::InitDone] {
        watch.apply_event(event);
    }
    assert_eq!(registry.known().cordons, cordoned());
    watch.apply_error(&not_found());
    assert_eq!(registry.known().cordons, CordonStates::new());
    assert_eq!(objects.all(), None);
}

#[tokio::test]
async fn only_what_matters_at_once_is_a_change() {
    let registry = registry().await;
    let (objects, watch) = controller_objects(registry);
    watch.apply_event(Event::Init);
    watch.apply_event(Event::InitDone);
    let mut changes = objects.changes();
    let mut has_changed = |event| {
        changes.mark_unchanged();
        watch.apply_event(event);
        changes.has_changed().unwrap()
    };
    assert!(has_changed(Event::Apply(object(false))));
    let mut changed = object(false);
    changed.status = Some(Default::default());
    assert!(!has_changed(Event::Apply(changed)));
    assert!(has_changed(Event::Apply(object(true))));
    assert!(has_changed(Event::Delete(object(true))));
}
