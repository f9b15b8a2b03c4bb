//! Pure: variables of a user that replace those of the job's own partition.

use guest_sdk::message::shown;
use serde_json::Value;

use super::Verdict;
use super::fields::{at, text};
use super::mounts::VARIABLES_MAX;
use super::template::CONTAINERS_MAX;

/// The variables that name the partition. A template that was copied from a running Pod has those
/// of another job.
const OF_PARTITION: [&str; 3] = [
    "IPUOF_VIPU_API_HOST",
    "IPUOF_VIPU_API_PARTITION_ID",
    "IPUOF_VIPU_API_PORT",
];

/// Warns of the first such variable in each list. The user's variables take precedence, so the
/// program would use a partition of somebody else, or one that is gone.
pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    for kind in ["initContainers", "containers"] {
        let list = at(spec, &["workers", "template", "spec", kind]).and_then(Value::as_array);
        for (index, container) in list.into_iter().flatten().take(CONTAINERS_MAX).enumerate() {
            let field = format!("spec.workers.template.spec.{kind}[{index}].env");
            warn(&field, at(container, &["env"]), verdict);
        }
    }
    warn("spec.launcher.env", at(spec, &["launcher", "env"]), verdict);
}

fn warn(field: &str, env: Option<&Value>, verdict: &mut Verdict) {
    let env = env.and_then(Value::as_array).into_iter().flatten();
    let mut named = env.take(VARIABLES_MAX).filter_map(|variable| {
        let name = text(variable, &["name"])?;
        OF_PARTITION.contains(&name).then_some((name, variable))
    });
    if let Some((name, variable)) = named.next() {
        let value = at(variable, &["value"]).map_or_else(|| "set".to_owned(), shown);
        verdict.warn(format!(
            "{field}: {name} is {value}, and replaces that of the job's own partition; leave it out"
        ));
    }
}
