//! The V-IPU user id under which the state of an attempt is read.

use serde_json::json;

use super::*;

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
        let next = with_account(&status, id, Some("second"))?;
        assert_eq!(
            with_account(&next, id, Some("second")),
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
