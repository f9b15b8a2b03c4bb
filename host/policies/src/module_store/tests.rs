//! The states of a version while its source fails, recovers and ends.

use std::time::Duration;

use super::failed::REASON;
use super::signed::{ABSENCE, SIGNER_PERIOD};
use super::*;
use crate::report::Problem;
use crate::source::Signers;

fn version() -> DesiredVersion {
    let spec = serde_json::json!({
        "hook": "Validation", "module": {"image": {"file": "validation.wasm"}},
    });
    DesiredVersion {
        uid: "uid".to_owned(),
        generation: 1,
        spec: serde_json::from_value(spec).unwrap(),
        retry_request: None,
    }
}

fn requested(at: &str) -> DesiredVersion {
    DesiredVersion {
        retry_request: Some(at.to_owned()),
        ..version()
    }
}

fn failure(reason: &str) -> Failure {
    Failure {
        reason: reason.to_owned(),
        is_final: false,
        is_retryable: true,
        signature: None,
    }
}

/// The problem of the version, which has no guest.
fn problem(store: &ModuleStore) -> &Problem {
    match store.versions.get(&("uid".to_owned(), 1)) {
        Some(VersionState::Failed(failed)) => &failed.problem,
        state => panic!("it has not failed: {state:?}"),
    }
}

#[test]
fn a_reason_is_cut_to_fit_into_a_lease() {
    let (mut store, now) = (ModuleStore::default(), Instant::now());
    assert_eq!(store.start_due(vec![version()], now).len(), 1);
    let key = ("uid".to_owned(), 1);
    store.finish(&key, Err(failure(&"é".repeat(1 << 20))), now);
    let reason = &problem(&store).reason;
    assert!(reason.len() <= REASON && reason.ends_with('…'));
}

#[test]
fn an_active_version_loads_until_it_is_ready_or_has_failed() {
    let (mut store, now) = (ModuleStore::default(), Instant::now());
    let DesiredVersion {
        uid,
        generation,
        spec,
        ..
    } = version();
    let enforced = ActiveVersion {
        name: "policy".to_owned(),
        uid,
        generation,
        spec,
        created: None,
        is_enforced: true,
        unreadable: None,
    };
    let shadow = ActiveVersion {
        is_enforced: false,
        ..enforced.clone()
    };
    let active = [enforced];
    assert!(!store.is_loading(&[]), "nothing is active");
    store.start_due(vec![version()], now);
    assert!(store.is_loading(&active));
    assert!(!store.is_loading(&[shadow]), "it decides nothing");
    let key = ("uid".to_owned(), 1);
    store.finish(&key, Err(failure("down")), now);
    assert!(!store.is_loading(&active));
}

#[test]
fn the_retry_delay_of_a_failed_source_grows() {
    let (mut store, mut now) = (ModuleStore::default(), Instant::now());
    let key = ("uid".to_owned(), 1);
    let mut delays = Vec::new();
    for _ in 0..8 {
        assert_eq!(store.start_due(vec![version()], now).len(), 1);
        assert_eq!(
            store.start_due(vec![version()], now).len(),
            0,
            "it is under way"
        );
        store.finish(&key, Err(failure("down")), now);
        let retry_at = store.next_due().unwrap();
        delays.push(retry_at.duration_since(now).as_secs());
        now = retry_at;
    }
    assert_eq!(delays, [2, 4, 8, 16, 32, 60, 60, 60]);
}

/// A failure because the object with the keys is absent.
fn absence() -> Failure {
    Failure {
        is_final: true,
        signature: Some(SignatureFault::KeysAbsent),
        ..failure("the ConfigMap keys does not exist")
    }
}

#[test]
fn absent_keys_refuse_a_version_only_after_a_while() {
    let (mut store, begin) = (ModuleStore::default(), Instant::now());
    let key = ("uid".to_owned(), 1);
    store.start_due(vec![version()], begin);
    // A registry that was down for long does not delay the first retries.
    for _ in 0..8 {
        store.finish(&key, Err(failure("down")), begin);
    }
    let (mut now, mut seconds) = (begin, Vec::new());
    loop {
        store.finish(&key, Err(absence()), now);
        if problem(&store).is_final {
            break;
        }
        now = store.next_due().unwrap();
        seconds.push(now.duration_since(begin).as_secs());
        assert_eq!(store.start_due(vec![version()], now).len(), 1);
    }
    assert_eq!(seconds, [2, 4, 6, 8, 10, 12, 14, 15]);
    for _ in 0..2 {
        let retry_at = store.next_due().unwrap();
        assert!(retry_at <= now + ABSENCE, "it is found soon");
        now = retry_at;
        store.start_due(vec![version()], now);
        store.finish(&key, Err(absence()), now);
        assert!(problem(&store).is_final, "it stays refused");
    }
}

#[test]
fn absent_keys_change_no_earlier_refusal() {
    let (mut store, now) = (ModuleStore::default(), Instant::now());
    let key = ("uid".to_owned(), 1);
    store.start_due(vec![version()], now);
    let refusal = Failure {
        is_final: true,
        signature: Some(SignatureFault::Unsigned),
        ..failure("no key signed it")
    };
    store.finish(&key, Err(refusal), now);
    assert!(problem(&store).is_final);
    store.finish(&key, Err(absence()), now);
    assert!(problem(&store).is_final);
}

#[test]
fn a_refused_signature_is_returned_once_until_the_version_is_ready() {
    let (mut store, now) = (ModuleStore::default(), Instant::now());
    let key = ("uid".to_owned(), 1);
    let unsigned = || Failure {
        is_final: true,
        signature: Some(SignatureFault::Unsigned),
        ..failure("no key signed it")
    };
    store.start_due(vec![version()], now);
    for other in [failure("down"), absence()] {
        store.finish(&key, Err(other), now);
        assert_eq!(store.take_unsigned(&key), None);
    }
    for _ in 0..2 {
        store.finish(&key, Err(unsigned()), now);
        assert_eq!(store.take_unsigned(&key), Some("no key signed it"));
        for retried in [failure("down"), unsigned(), absence()] {
            store.finish(&key, Err(retried), now);
            assert_eq!(store.take_unsigned(&key), None);
        }
        store.finish(&key, Ok(ready(None)), now);
        assert_eq!(store.take_unsigned(&key), None);
    }
}

#[test]
fn each_new_request_retries_a_failed_version_once() {
    for is_retryable in [true, false] {
        let (mut store, now) = (ModuleStore::default(), Instant::now());
        let key = ("uid".to_owned(), 1);
        let start = |store: &mut ModuleStore, desired| store.start_due(vec![desired], now).len();
        let fail = |store: &mut ModuleStore| {
            let failure = Failure {
                is_retryable,
                ..failure("down")
            };
            store.finish(&key, Err(failure), now);
        };
        assert_eq!(start(&mut store, requested("before the first attempt")), 1);
        fail(&mut store);
        assert_eq!(start(&mut store, requested("before the first attempt")), 0);
        assert_eq!(start(&mut store, requested("now")), 1);
        assert_eq!(start(&mut store, requested("again")), 0, "it is under way");
        fail(&mut store);
        assert_eq!(start(&mut store, requested("again")), 1);
        store.finish(&key, Ok(ready(None)), now);
        assert_eq!(start(&mut store, requested("once more")), 0, "it is ready");
    }
}

#[test]
fn an_unreadable_version_is_a_missing_guest_at_its_hook() {
    let mut store = ModuleStore::default();
    let mut spec = version().spec;
    spec.on_error = Some(OnError::Ignore);
    let active = [ActiveVersion {
        name: "policy".to_owned(),
        uid: "uid".to_owned(),
        generation: 1,
        spec,
        created: None,
        is_enforced: true,
        unreadable: Some("cannot read spec.mode".to_owned()),
    }];
    let active_set = crate::active_set::active_set(&active, Hook::Validation);
    let chain = store.hook_chain(
        &active_set,
        &active,
        Hook::Validation,
        Timestamp::UNIX_EPOCH,
    );
    let bound = chain.stages.iter().flatten();
    let policy = bound.last().expect("the policy has a stage");
    assert_eq!(
        (&*policy.name, policy.on_error),
        ("policy", OnError::Ignore)
    );
    assert_eq!(
        format!("{:?}", policy.guest),
        "missing: cannot read spec.mode"
    );
    assert!(!store.is_loading(&active));
}

fn ready(signed: Option<Signed>) -> Ready {
    Ready {
        guest: Guest::missing("a test"),
        digest: "sha256:1".to_owned(),
        matcher: Arc::new(Matcher::of_selectors(None)),
        on_error: OnError::Fail,
        stats: Arc::default(),
        serving_since: None,
        signed,
    }
}

#[test]
fn the_signers_of_a_ready_version_are_checked_within_a_minute() {
    let (mut store, begin) = (ModuleStore::default(), Instant::now());
    let (key, desired) = (("uid".to_owned(), 1), [version()]);
    let signers: Signers = ["sha256:key".to_owned()].into();
    store.start_due(desired.to_vec(), begin);
    assert!(store.start_checks(&desired, begin).is_empty(), "it loads");
    let signed = Signed::at(begin, signers.clone());
    store.finish(&key, Ok(ready(Some(signed))), begin);
    let mut now = begin;
    for _ in 0..2 {
        assert!(store.start_checks(&desired, now).is_empty());
        now = store.next_due().unwrap();
        let started = store.start_checks(&desired, now);
        let [(started, signed)] = started.as_slice() else {
            panic!("{started:?}");
        };
        assert_eq!((started, signed.signers()), (&version(), &signers));
        assert!(store.start_checks(&desired, now).is_empty(), "it runs");
        store.finish_check(&key, Ok(Signed::at(now, signers.clone())), now);
    }
    assert!(now.duration_since(begin) < Duration::from_mins(1));
    now = store.next_due().unwrap();
    store.start_checks(&desired, now);
    store.finish_check(&key, Err(failure("no key signed it")), now);
    assert_eq!(problem(&store).reason, "no key signed it");
    let retry_at = store.next_due().unwrap();
    assert_eq!(store.start_due(desired.to_vec(), retry_at).len(), 1);
}

#[test]
fn the_signers_of_all_versions_are_checked_together() {
    let (mut store, begin) = (ModuleStore::default(), Instant::now());
    let second = DesiredVersion {
        generation: 2,
        ..version()
    };
    let desired = [version(), second];
    store.start_due(desired.to_vec(), begin);
    let later = begin + SIGNER_PERIOD / 2;
    for (generation, loaded_at) in [(1, begin), (2, later)] {
        let signed = Signed::at(loaded_at, ["sha256:key".to_owned()].into());
        let key = ("uid".to_owned(), generation);
        store.finish(&key, Ok(ready(Some(signed))), loaded_at);
    }
    let now = store.next_due().unwrap();
    assert_eq!(store.start_checks(&desired, now).len(), 2);
    assert_eq!(store.next_due(), None, "both run");
}

#[test]
fn a_version_without_keys_is_never_checked() {
    let (mut store, now) = (ModuleStore::default(), Instant::now());
    store.start_due(vec![version()], now);
    store.finish(&("uid".to_owned(), 1), Ok(ready(None)), now);
    assert_eq!(store.next_due(), None);
}
