//! Policies that this version of the operator cannot read.

use super::*;

const REASON: &str = "this version of the operator cannot read spec.mode: unknown variant";

fn unreadable() -> Cluster {
    let mut cluster = Cluster::new(&validation());
    cluster.unreadable = Some(REASON.to_owned());
    cluster
}

fn versions(cluster: &Cluster) -> Vec<crate::active_set::ActiveVersion> {
    active_versions([&cluster.observed()].into_iter())
}

#[test]
fn a_spec_that_cannot_be_read_is_refused_and_its_guest_is_missing() {
    let mut cluster = unreadable();
    assert_eq!(cluster.reconcile(), (PolicyPhase::Refused, None));
    let message = &cluster.status().message;
    for part in [REASON, "spec.onError decides", "Upgrade the operator"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let [version] = versions(&cluster).try_into().unwrap();
    assert_eq!(version.unreadable.as_deref(), Some(REASON));
    assert!(version.is_enforced);
}

#[test]
fn a_spec_that_cannot_be_read_leaves_the_active_version() {
    let mut cluster = Cluster::new(&validation());
    cluster.activate(1);
    cluster.policy.metadata.generation = Some(2);
    cluster.unreadable = Some(REASON.to_owned());
    // A newer replica can read it.
    cluster.prepare(0, 2);
    cluster.prepare(1, 2);
    assert_eq!(cluster.reconcile(), (PolicyPhase::Refused, Some(1)));
    assert!(
        cluster
            .status()
            .message
            .contains("the previous version stays active")
    );
    let [version] = versions(&cluster).try_into().unwrap();
    assert_eq!((version.generation, version.unreadable), (1, None));
}

#[test]
fn an_active_version_that_cannot_be_read_is_a_missing_guest() {
    let mut cluster = Cluster::new(&validation());
    cluster.activate(1);
    let status = cluster.policy.status.as_mut().unwrap();
    let active = status.active.as_mut().unwrap();
    active.spec.insert("mode".to_owned(), json!("Audit"));
    let [version] = versions(&cluster).try_into().unwrap();
    let reason = version.unreadable.expect("it cannot be read");
    assert!(
        reason.contains("spec.mode") && reason.contains("`Audit`"),
        "{reason}"
    );
    assert!(version.is_enforced);
    cluster.reconcile();
    let active = cluster.status().active.as_ref().expect("it is kept");
    assert_eq!(active.spec["mode"], "Audit", "a newer version can read it");
}
