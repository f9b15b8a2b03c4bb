//! Pure: what may change in a job that exists. Fields are compared by their meaning: a quantity in
//! another notation, or an empty list where there was none, is no change.

use guest_sdk::message::shown;
use ipu_pod_template::canonical;
use serde_json::{Value, json};

use super::fields::{at, has_launcher, whole};
use super::{Verdict, sizing};

/// Compares a spec with the one before it.
pub(super) fn check(spec: &Value, old: &Value, verdict: &mut Verdict) {
    check_sizes(spec, old, verdict);
    check_instances(spec, old, verdict);
    if has_launcher(spec) && template(spec) != template(old) {
        verdict.warn(
            "spec.workers.template: a job with a launcher starts again from the beginning when its \
             template changes"
                .to_owned(),
        );
    }
    let is_other = [
        ("launcher", launcher(spec) != launcher(old)),
        ("interactive", differs(spec, old, &["interactive"])),
        ("managedBy", differs(spec, old, &["managedBy"])),
    ];
    for (key, is_other) in is_other {
        if is_other {
            verdict.violate(
                format!("spec.{key}"),
                "was changed, and it is fixed once the job exists; delete the job and create it \
                 again",
            );
        }
    }
}

/// Whether a change starts a job, or more of it: it is resumed, gets more instances, or another
/// size.
pub(super) fn starts(spec: &Value, old: &Value) -> bool {
    let suspended = |spec| at(spec, &["suspend"]).and_then(Value::as_bool) == Some(true);
    let instances = |spec| {
        whole(spec, &["jobInstances"], "spec.jobInstances", 0)
            .ok()
            .flatten()
    };
    let grows = match (instances(spec), instances(old)) {
        (Some(new), Some(old)) => new > old,
        _ => true,
    };
    (suspended(old) && !suspended(spec)) || grows || differs(spec, old, &["ipusPerJobInstance"])
}

/// The meaning of the workers' template.
fn template(spec: &Value) -> Option<Value> {
    at(spec, &["workers", "template"]).map(canonical)
}

/// The meaning of the launcher. Its fields are those of a container, but for the account, which has
/// no default.
fn launcher(spec: &Value) -> Option<Value> {
    let launcher = at(spec, &["launcher"])?;
    Some(canonical(&json!({"spec": {"containers": [launcher]}})))
}

fn differs(spec: &Value, old: &Value, path: &[&str]) -> bool {
    at(spec, path) != at(old, path)
}

fn check_sizes(spec: &Value, old: &Value, verdict: &mut Verdict) {
    let pairs = sizing::amounts(spec).into_iter().zip(sizing::amounts(old));
    for ((key, new), (_, old)) in pairs {
        let (Some(new), Some(old)) = (new, old) else {
            continue;
        };
        if new != old {
            verdict.violate(
                format!("spec.{key}"),
                format!(
                    "was \"{old}\" and is now \"{new}\", but the size of a job is fixed once it \
                     exists, because its partitions are; delete the job and create it again"
                ),
            );
        }
    }
}

fn check_instances(spec: &Value, old: &Value, verdict: &mut Verdict) {
    let path = ["jobInstances"];
    let readable = whole(old, &path, "spec.jobInstances", 0).is_ok();
    if !has_launcher(spec) || !readable || !differs(spec, old, &path) {
        return;
    }
    if let (Some(new), Some(old)) = (at(spec, &path), at(old, &path)) {
        verdict.violate(
            "spec.jobInstances",
            format!(
                "was {} and is now {}, but a job with a launcher cannot be scaled; delete the job \
                 and create it again",
                shown(old),
                shown(new)
            ),
        );
    }
}
