//! Pure: mounts of the first container that the launcher's Pod cannot have, because their path
//! names a variable of workers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Verdict;
use super::fields::{at, has_launcher, text};

/// The operator's variables that only workers have.
pub const WORKER_VARIABLES: [&str; 7] = [
    "IPUOF_VIPU_API_GCD_ID",
    "POPDIST_LOCAL_INSTANCE_INDEX",
    "POPDIST_NUM_IPUS_PER_REPLICA",
    "POPDIST_NUM_LOCAL_REPLICAS",
    "POPDIST_NUM_TOTAL_REPLICAS",
    "POPDIST_REPLICA_INDEX_OFFSET",
    "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE",
];

/// Maximum number of mounts that are checked.
const MOUNTS_MAX: usize = 64;

/// Maximum number of variables that are checked, of the template and of the launcher each.
pub(super) const VARIABLES_MAX: usize = 256;

/// The variables that a launcher lacks.
pub struct WorkerVariables<'a>(BTreeSet<&'a str>);

impl<'a> WorkerVariables<'a> {
    /// Reads the names and values of a launcher's variables, in their order. A user can set each of
    /// the operator's variables, and other variables can refer to them.
    pub fn lacked_by(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut lacked = Self(WORKER_VARIABLES.into());
        for (name, value) in variables {
            if lacked.names(value) {
                lacked.0.insert(name);
            } else {
                lacked.0.remove(name);
            }
        }
        lacked
    }

    /// Whether a text, such as the `subPathExpr` of a mount, refers to one of them.
    pub fn names(&self, text: &str) -> bool {
        references(text).any(|name| self.0.contains(name))
    }
}

/// The names to which a text refers as `$(NAME)`. `$$` is a dollar sign.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (_, after) = rest.split_once('$')?;
            if let Some((name, after)) = after
                .strip_prefix('(')
                .and_then(|name| name.split_once(')'))
            {
                rest = after;
                return Some(name);
            }
            rest = after.strip_prefix('$').unwrap_or(after);
        }
    })
}

/// Warns of mounts that the launcher does not have.
pub(super) fn check(spec: &Value, verdict: &mut Verdict) {
    let containers = at(spec, &["workers", "template", "spec", "containers"]);
    let first = containers.and_then(|containers| containers.get(0));
    let Some(first) = first.filter(|_| has_launcher(spec)) else {
        return;
    };
    let variables = [at(first, &["env"]), at(spec, &["launcher", "env"])];
    let variables = variables.into_iter().flatten().filter_map(Value::as_array);
    let variables = variables.flat_map(|list| list.iter().take(VARIABLES_MAX));
    let variables = variables.filter_map(|variable| {
        let value = text(variable, &["value"]).unwrap_or_default();
        Some((text(variable, &["name"])?, value))
    });
    let lacked = WorkerVariables::lacked_by(variables);
    let mounts = at(first, &["volumeMounts"]).and_then(Value::as_array);
    let mounts = mounts.into_iter().flatten().take(MOUNTS_MAX);
    for (index, mount) in mounts.enumerate() {
        let path = text(mount, &["subPathExpr"]);
        if path.is_some_and(|path| lacked.names(path)) {
            verdict.warn(format!(
                "spec.workers.template.spec.containers[0].volumeMounts[{index}].subPathExpr: names a variable that \
                 only workers have, so the launcher gets no such mount; mount the volume a second time if it needs one"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_those_of_kubernetes() {
        for (text, expected) in [
            ("", &[][..]),
            ("a/$(B)/c", &["B"]),
            ("$(A)$(B)", &["A", "B"]),
            ("$$(A)", &[]),
            ("$$$(A)", &["A"]),
            ("$A $(A $", &[]),
            ("$()", &[""]),
        ] {
            assert_eq!(references(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn variables_that_refer_to_those_of_workers_are_lacked_too() {
        let gcd = "IPUOF_VIPU_API_GCD_ID";
        let lacked = WorkerVariables::lacked_by([("MINE", "gcd-$(IPUOF_VIPU_API_GCD_ID)")]);
        assert!(lacked.names("$(MINE)") && lacked.names("x/$(IPUOF_VIPU_API_GCD_ID)"));
        assert!(!lacked.names("$(IPUOF_VIPU_API_HOST)") && !lacked.names("MINE"));
        let own = WorkerVariables::lacked_by([(gcd, "0"), ("MINE", "$(IPUOF_VIPU_API_GCD_ID)")]);
        assert!(!own.names("$(MINE)") && !own.names("$(IPUOF_VIPU_API_GCD_ID)"));
    }
}
