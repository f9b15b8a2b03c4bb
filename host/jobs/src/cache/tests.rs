//! State of a job's objects, event by event.

use std::sync::LazyLock;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::*;

fn pod(name: &str, version: u64) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("uid-of-{name}"),
            "resourceVersion": version.to_string(),
            "labels": {"graphcore.ai/run": "2", "else": "not read"},
            "ownerReferences": [{
                "apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob",
                "name": "job", "uid": "job-uid",
            }],
        },
        "spec": {"containers": [{"name": "main", "image": "large"}]},
    }))
    .unwrap()
}

fn at(second: u64) -> Instant {
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    *BEGINNING + Duration::from_secs(second)
}

fn names(cache: &mut Cache<Pod>, now: Instant) -> Option<Vec<String>> {
    let pods = cache.of(job_uid("n", "job-uid"), now)?.into_iter();
    let mut names: Vec<_> = pods.map(|pod| pod.object.name().to_owned()).collect();
    names.sort();
    Some(names)
}

fn listed(pods: &[Pod]) -> Cache<Pod> {
    let mut cache = Cache::new(Arc::default());
    cache.apply_event(Event::Init);
    for pod in pods {
        cache.apply_event(Event::InitApply(pod.clone()));
    }
    cache.apply_event(Event::InitDone);
    cache
}

#[test]
fn nothing_is_known_before_the_first_list_is_complete() {
    let mut cache = Cache::new(Arc::default());
    cache.apply_event(Event::Init);
    cache.apply_event(Event::InitApply(pod("a", 1)));
    assert_eq!(names(&mut cache, at(0)), None);
    cache.apply_event(Event::InitDone);
    assert_eq!(names(&mut cache, at(0)).unwrap(), ["a"]);
    assert!(cache.of(job_uid("n", "another"), at(0)).unwrap().is_empty());
}

#[test]
fn a_pod_that_was_made_is_waited_for() {
    let mut cache = listed(&[]);
    cache.expect_update(&pod("a", 5), at(0));
    assert_eq!(names(&mut cache, at(1)), None);
    assert_eq!(cache.apply_event(Event::Apply(pod("a", 5))).len(), 1);
    assert_eq!(names(&mut cache, at(1)).unwrap(), ["a"]);
}

#[test]
fn a_watch_that_was_faster_than_the_answer_is_not_waited_for() {
    let mut cache = listed(&[pod("a", 7)]);
    cache.expect_update(&pod("a", 5), at(0));
    assert_eq!(names(&mut cache, at(0)).unwrap(), ["a"]);
}

#[test]
fn an_older_version_will_not_do() {
    let mut cache = listed(&[pod("a", 1)]);
    cache.expect_update(&pod("a", 5), at(0));
    cache.apply_event(Event::Apply(pod("a", 4)));
    assert_eq!(names(&mut cache, at(1)), None);
}

#[test]
fn what_was_removed_at_once_is_waited_for_until_it_is_gone() {
    let mut cache = listed(&[pod("a", 1)]);
    cache.expect_delete(job_uid("n", "job-uid"), "uid-of-a", at(0));
    cache.apply_event(Event::Apply(pod("a", 2)));
    assert_eq!(names(&mut cache, at(1)), None);
    cache.apply_event(Event::Delete(pod("a", 3)));
    assert_eq!(names(&mut cache, at(1)).unwrap(), [""; 0]);
}

#[test]
fn what_is_gone_before_the_answer_arrives_is_not_waited_for() {
    let mut cache = listed(&[pod("a", 1), pod("b", 1)]);
    cache.apply_event(Event::Delete(pod("a", 3)));
    cache.expect_update(&pod("a", 2), at(0));
    cache.apply_event(Event::Delete(pod("b", 4)));
    cache.expect_delete(job_uid("n", "job-uid"), "uid-of-b", at(0));
    assert_eq!(names(&mut cache, at(0)).unwrap(), [""; 0]);
}

#[test]
fn the_wait_for_an_event_of_a_watch_ends() {
    let mut cache = listed(&[]);
    cache.expect_update(&pod("a", 5), at(0));
    assert_eq!(names(&mut cache, at(119)), None);
    assert_eq!(names(&mut cache, at(120)).unwrap(), [""; 0]);
}

#[test]
fn what_a_new_list_does_not_name_is_gone_and_its_job_is_looked_at() {
    let mut cache = listed(&[pod("a", 1), pod("b", 2)]);
    cache.apply_event(Event::Init);
    cache.apply_event(Event::InitApply(pod("b", 2)));
    assert_eq!(
        names(&mut cache, at(0)).unwrap(),
        ["a", "b"],
        "the old view holds"
    );
    let touched = cache.apply_event(Event::InitDone);
    assert_eq!(&*touched[0].name, "job");
    assert_eq!(names(&mut cache, at(0)).unwrap(), ["b"]);
}

/// The list may be of a moment before the Pod was made, however long it takes to come.
#[test]
fn what_is_made_while_a_list_is_on_its_way_is_waited_for() {
    let mut cache = listed(&[]);
    cache.apply_event(Event::Init);
    cache.expect_update(&pod("a", 105), at(0));
    cache.apply_event(Event::InitDone);
    assert_eq!(names(&mut cache, at(1)), None);
    cache.apply_event(Event::Apply(pod("a", 105)));
    assert_eq!(names(&mut cache, at(1)).unwrap(), ["a"]);
}

#[test]
fn what_was_made_before_a_list_and_is_not_in_it_is_gone() {
    let mut cache = listed(&[]);
    cache.expect_update(&pod("a", 5), at(0));
    cache.apply_event(Event::Init);
    cache.apply_event(Event::InitDone);
    assert_eq!(names(&mut cache, at(1)).unwrap(), [""; 0]);
    assert!(!cache.contains(job_uid("n", "job-uid")));
}

#[test]
fn what_was_known_and_is_not_in_a_list_is_gone_whatever_was_written_to_it_meanwhile() {
    let mut cache = listed(&[pod("a", 1), pod("b", 1)]);
    cache.apply_event(Event::Init);
    cache.expect_update(&pod("a", 5), at(0));
    cache.expect_delete(job_uid("n", "job-uid"), "uid-of-b", at(0));
    cache.apply_event(Event::InitDone);
    assert_eq!(names(&mut cache, at(1)).unwrap(), [""; 0]);
}

#[test]
fn a_pod_without_a_uid_is_left_out_and_the_others_are_kept() {
    let mut odd = pod("b", 2);
    odd.metadata.uid = None;
    let mut cache = listed(&[pod("a", 1), odd, pod("c", 3)]);
    assert_eq!(names(&mut cache, at(0)).unwrap(), ["a", "c"]);
}

#[test]
fn caches_share_the_references_to_jobs_that_exist() {
    let jobs = JobRefs::default();
    let job = |number: u32| JobRef {
        namespace: "n".into(),
        name: format!("job-{number}").into(),
        uid: Uid::of(&number.to_string()),
    };
    let kept = jobs.shared(job(0));
    assert!(Arc::ptr_eq(&kept, &jobs.shared(job(0))));
    let others: Vec<_> = (1..1_000).map(|number| jobs.shared(job(number))).collect();
    let last = Arc::downgrade(&others[998]);
    drop(others);
    // Until the table is full.
    for number in 1_000.. {
        jobs.shared(job(number));
        if last.upgrade().is_none() {
            break;
        }
    }
    assert!(Arc::ptr_eq(&kept, &jobs.shared(job(0))));
}

#[test]
fn a_pod_of_another_namespace_belongs_to_no_job_whose_uid_it_names() {
    let mut foreign = pod("b", 1);
    foreign.metadata.namespace = Some("m".to_owned());
    let mut cache = listed(&[foreign.clone(), pod("a", 1)]);
    assert_eq!(names(&mut cache, at(0)).unwrap(), ["a"]);
    let changed = cache.apply_event(Event::Delete(foreign));
    assert_eq!(changed.len(), 1);
    assert_eq!(&*changed[0].namespace, "m");
}

#[test]
fn a_pod_that_loses_its_owner_reference_no_longer_belongs_to_the_job() {
    let orphaned = || {
        let mut pod = pod("a", 2);
        pod.metadata.owner_references = None;
        let labels = pod.metadata.labels.as_mut().unwrap();
        labels.insert(labels::JOB_UID_LABEL.to_owned(), "job-uid".to_owned());
        pod
    };
    let mut cache = listed(&[pod("a", 1)]);
    // A write is under way.
    cache.expect_update(&pod("a", 3), at(0));
    let changed = cache.apply_event(Event::Apply(orphaned()));
    assert_eq!(changed.len(), 1, "its job is reconciled");
    assert_eq!(names(&mut cache, at(0)).unwrap(), [""; 0]);
    cache.expect_update(&orphaned(), at(0));
    cache.apply_event(Event::Delete(orphaned()));
    assert_eq!(names(&mut cache, at(0)).unwrap(), [""; 0]);
}
