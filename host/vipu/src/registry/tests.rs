//! The list as the ConfigMap comes, changes and goes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Read;

use ipu_api::vipu_controller::CordonState;

use super::*;
use crate::cordon::CordonRequest;

fn config_map(key: &str, text: &str) -> ConfigMap {
    ConfigMap {
        data: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    }
}

fn listed(text: &str) -> ConfigMap {
    config_map(KEY, text)
}

/// The ConfigMap after each change.
fn changes(
    objects: impl IntoIterator<Item = Option<ConfigMap>>,
) -> impl Stream<Item = Result<Option<ConfigMap>, Infallible>> {
    futures::stream::iter(objects.into_iter().map(Ok))
}

async fn after(objects: Vec<Option<ConfigMap>>) -> Known {
    let registry = Registry::new(Deadlines::default());
    registry.follow(changes(objects)).await;
    registry.known().as_ref().clone()
}

fn names(known: &Known) -> Vec<&str> {
    known.entries.iter().map(|entry| &*entry.name).collect()
}

#[tokio::test]
async fn an_edit_replaces_the_list() {
    let known = after(vec![
        Some(listed("pod1:8090:ipunode=pod1")),
        Some(listed("pod2:8090:ipunode=pod2,malformed")),
    ])
    .await;
    assert_eq!(names(&known), ["pod2:8090"]);
    assert_eq!(known.source, Source::Current);
    assert_eq!(known.problems.len(), 1);
}

#[tokio::test]
async fn malformed_entry_is_logged_and_the_others_are_used() {
    let mut written = tempfile::NamedTempFile::new().unwrap();
    let file = Arc::new(written.reopen().unwrap());
    let log = tracing_subscriber::fmt().with_writer(file);
    let log = tracing::subscriber::set_default(log.finish());
    let known = after(vec![Some(listed(
        "pod9:not-a-port:ipunode=pod9\npod1:8090:ipunode=pod1",
    ))])
    .await;
    drop(log);
    assert_eq!(names(&known), ["pod1:8090"]);
    let mut log = String::new();
    written.read_to_string(&mut log).unwrap();
    for part in ["WARN", "was left out", "pod9:not-a-port:ipunode=pod9"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[tokio::test]
async fn a_cordon_under_its_former_key_is_a_problem_of_no_controller() {
    let mut object = listed("pod1:8090:ipunode=pod1");
    let data = object.data.as_mut().unwrap();
    data.insert("cordon".to_owned(), "pod1:8090".to_owned());
    data.insert("drain".to_owned(), String::new());
    let known = after(vec![Some(object)]).await;
    assert_eq!(names(&known), ["pod1:8090"]);
    assert_eq!(known.cordons, CordonStates::new());
    let keys: Vec<_> = known.problems.iter().map(|one| one.key).collect();
    assert_eq!(keys, ["cordon"]);
}

#[tokio::test]
async fn a_list_that_is_gone_stays_in_use_and_is_called_gone() {
    let ends = [
        (None, Source::ConfigMapGone),
        (
            Some(config_map("controller.yaml", "pod2:8090:a=b")),
            Source::KeyGone,
        ),
        (Some(ConfigMap::default()), Source::KeyGone),
    ];
    for (end, source) in ends {
        let known = after(vec![Some(listed("pod1:8090:ipunode=pod1")), end]).await;
        assert_eq!(names(&known), ["pod1:8090"], "{source:?}");
        assert_eq!(known.source, source);
    }
}

#[tokio::test]
async fn an_empty_list_is_a_list() {
    let known = after(vec![
        Some(listed("pod1:8090:ipunode=pod1")),
        Some(listed("\n# none for now\n")),
    ])
    .await;
    assert_eq!(known.entries, []);
    assert_eq!(known.source, Source::Current);
}

#[tokio::test]
async fn a_missing_config_map_differs_from_an_unread_one() {
    assert_eq!(after(vec![]).await.source, Source::NotRead);
    let known = after(vec![None]).await;
    assert_eq!(known.source, Source::ConfigMapGone);
    assert_eq!(known.entries, []);
}

#[tokio::test]
async fn followers_wake_for_a_change_and_only_for_one() {
    let registry = Registry::new(Deadlines::default());
    let mut follower = registry.subscribe();
    let same = || Some(listed("pod1:8090:ipunode=pod1"));
    registry.follow(changes([same()])).await;
    assert!(follower.has_changed().unwrap());
    follower.mark_unchanged();
    registry.follow(changes([same(), same()])).await;
    assert!(!follower.has_changed().unwrap());
}

#[tokio::test]
async fn a_cordon_counts_whether_the_list_or_the_object_comes_first() {
    let apply = |text| changes([Some(listed(text))]);
    let request = CordonRequest {
        cordon_state: CordonState::Cordoned,
        address: None,
    };
    let requests = CordonRequests::from([("pod1-8090".to_owned(), request)]);
    let expected = CordonStates::from([("pod1:8090".to_owned(), CordonState::Cordoned)]);
    for is_listed_first in [true, false] {
        let registry = Registry::new(Deadlines::default());
        let mut follower = registry.subscribe();
        if is_listed_first {
            registry.follow(apply("pod1:8090:ipunode=pod1")).await;
            registry.set_cordons(requests.clone());
        } else {
            registry.set_cordons(requests.clone());
            assert_eq!(registry.known().cordons, CordonStates::new());
            registry.follow(apply("pod1:8090:ipunode=pod1")).await;
        }
        assert_eq!(registry.known().cordons, expected);
        follower.mark_unchanged();
        registry.set_cordons(requests.clone());
        assert!(!follower.has_changed().unwrap(), "nothing changed");
        registry.follow(changes([None])).await;
        assert_eq!(registry.known().cordons, expected, "the list stays in use");
        follower.mark_unchanged();
        registry.set_cordons(CordonRequests::new());
        assert!(follower.has_changed().unwrap());
        assert_eq!(registry.known().cordons, CordonStates::new());
        assert_eq!(names(&registry.known()), ["pod1:8090"]);
    }
}

#[tokio::test]
async fn a_controller_keeps_its_client_and_one_that_has_left_the_list_still_has_one() {
    let registry = Registry::new(Deadlines::default());
    let apply = |text| changes([Some(listed(text))]);
    registry.follow(apply("pod1:8090:ipunode=pod1")).await;
    let pod1 = registry.known().entries[0].clone();
    let client = registry.client(&pod1).unwrap();
    registry.follow(apply("pod1:8090:ipunode=other")).await;
    let again = registry.client(&pod1).unwrap();
    assert!(Arc::ptr_eq(&again.inner, &client.inner));
    registry.follow(apply("pod2:8090:ipunode=pod2")).await;
    assert_eq!(registry.client(&pod1).unwrap().name(), "pod1:8090");
}

#[tokio::test]
async fn credentials_go_only_where_the_name_of_a_controller_says() {
    let registry = Registry::new(Deadlines::default());
    let list = listed("pod1:8090:ipunode=pod1");
    registry.follow(changes([Some(list)])).await;
    let pod1 = registry.known().entries[0].clone();
    let named = |name: &str, host: &str, port| ControllerRef {
        name: name.to_owned(),
        host: host.to_owned(),
        port,
        ..pod1.clone()
    };
    let listed = named("pod1:8090", "evil.example.org", 1);
    let client = registry.client(&listed).unwrap();
    assert!(Arc::ptr_eq(
        &client.inner,
        &registry.client(&pod1).unwrap().inner
    ));
    assert!(registry.client(&named("[fd00::1]:7", "fd00::1", 7)).is_ok());
    for (name, host, port) in [
        ("pod9:8090", "evil.example.org", 8090),
        ("pod9:8090", "pod9", 1),
        ("pod9", "pod9", 8090),
        ("", "pod9", 8090),
    ] {
        let error = registry.client(&named(name, host, port)).unwrap_err();
        assert!(
            matches!(error, VipuError::UnlistedAddress { .. }),
            "{error:?}"
        );
        let reason = error.reason();
        assert!(reason.contains(&format!("{host}:{port}")), "{reason}");
    }
}

#[tokio::test]
async fn a_second_name_in_the_list_counts_as_renamed() {
    let registry = Registry::new(Deadlines::default());
    let list = |text: &str| registry.take(Some(&listed(text)));
    let renamed = || {
        let known = registry.known();
        let renamed = known.departed.renamed.iter();
        let renamed = renamed.map(|(second, first)| format!("{second}={}", first.name));
        renamed.collect::<Vec<_>>()
    };
    let three = "pod1:8090:a=b,pod2:8090:a=b,10.0.0.7:8090:a=b";
    let second = BTreeMap::from([("10.0.0.7:8090".to_owned(), "pod1:8090".to_owned())]);
    list(three);
    registry.set_duplicates(&second);
    assert_eq!(names(&registry.known()), ["pod1:8090", "pod2:8090"]);
    assert_eq!(renamed(), ["10.0.0.7:8090=pod1:8090"]);
    // An edit of the list does not make it another controller.
    list(&format!("{three},pod3:8090:a=b"));
    assert_eq!(names(&registry.known()).len(), 3);
    // Which name is the first one is found out again.
    list("10.0.0.7:8090:a=b,pod1:8090:a=b");
    assert_eq!(names(&registry.known()), ["10.0.0.7:8090", "pod1:8090"]);
    assert_eq!(renamed(), [""; 0]);
    list(three);
    registry.set_duplicates(&second);
    registry.set_duplicates(&BTreeMap::new());
    assert_eq!(
        names(&registry.known()),
        ["pod1:8090", "pod2:8090", "10.0.0.7:8090"]
    );
    assert_eq!(renamed(), [""; 0]);
    registry.set_duplicates(&second);
    registry.take(None);
    assert_eq!(names(&registry.known()).len(), 2, "the last list stays");
    list("10.0.0.7:8090:a=b");
    assert_eq!(names(&registry.known()), ["10.0.0.7:8090"]);
}
