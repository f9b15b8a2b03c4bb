//! The V-IPU user id under which the state of an attempt is read.

use serde_json::json;

use super::*;
use crate::observations::{Observation, Observations, RemoteState};

#[test]
fn what_a_user_was_shown_is_asked_about_as_that_users() {
    let controller = json!({
        "name": "pod1:8090", "host": "pod1", "port": 8090, "labelKey": "a", "labelValue": "b",
    });
    let attempt = |id: &str, account: Option<&str>| json!({"controller": controller, "id": id, "outcome": "created", "account": account});
    let attempts = json!([attempt("p-1", None), attempt("p-2", Some("first"))]);
    let status: IPUPartitionStatus = serde_json::from_value(json!({"attempts": attempts})).unwrap();
    let second = || Some("second".to_owned());
    let accounts = |id: &str| {
        let observations = shown(id, Some("second"));
        let next = with_accounts(&status, &observations)?;
        assert_eq!(
            with_accounts(&next, &observations),
            None,
            "it says so already"
        );
        let accounts = next.attempts.into_iter().map(|one| one.account);
        Some(accounts.collect::<Vec<_>>())
    };
    let first = || Some("first".to_owned());
    assert_eq!(accounts("p-1"), Some(vec![second(), first()]));
    assert_eq!(accounts("p-2"), Some(vec![None, second()]));
    assert_eq!(accounts("p-3"), None);
}

/// The partition was read by this account.
fn shown(id: &str, account: Option<&str>) -> Observations {
    let health = PartitionHealth {
        state: HealthState::Active,
        errors: Vec::new(),
        auto_resets: None,
        first_ipu: None,
        account: account.map(str::to_owned),
    };
    let mut observations = Observations::default();
    observations.observe(Observation::RemoteState {
        id: id.to_owned(),
        remote_state: RemoteState::Present(health),
    });
    observations
}

#[test]
fn a_status_follows_the_entry_of_its_controller() {
    let entry = |name: &str, label: &str| -> ControllerRef {
        serde_json::from_value(json!({
            "name": name, "host": "pod1", "port": 8090, "labelKey": "ipunode", "labelValue": label,
        }))
        .unwrap()
    };
    let attempt =
        |label: &str| json!({"controller": entry("pod1", label), "id": "p", "outcome": "created"});
    let status = |label: &str| -> IPUPartitionStatus {
        let controller = entry("pod1", label);
        serde_json::from_value(json!({"controller": controller, "attempts": [attempt(label)]}))
            .unwrap()
    };
    let listed = |entry: ControllerRef| {
        move |known: &ControllerRef| (known.name == "pod1").then(|| entry.clone())
    };
    let old = status("old");
    assert_eq!(with_current_entries(&old, |_| None), None, "not listed");
    assert_eq!(
        with_current_entries(&old, listed(entry("pod1", "old"))),
        None
    );
    let relabelled = with_current_entries(&old, listed(entry("pod1", "new")));
    assert_eq!(relabelled, Some(status("new")));
    let renamed = with_current_entries(&old, listed(entry("pod7", "old"))).unwrap();
    assert_eq!(renamed.controller.unwrap().name, "pod7");
    assert_eq!(renamed.attempts[0].controller.name, "pod7");
}
