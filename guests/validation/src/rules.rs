//! Pure: every rule of an IPUJob. A violation contains the field, the value, and the fix.

mod fields;
mod init_containers;
mod lifecycle;
mod mounts;
mod names;
mod settings;
mod sizing;
#[cfg(test)]
mod table;
mod template;
mod update;
mod variables;

use serde_json::Value;

pub use guest_sdk::types::Violation;
pub use init_containers::{InitContainer, run_by_launcher};
pub use mounts::{WORKER_VARIABLES, WorkerVariables};
pub use settings::Settings;
pub use sizing::Sizing;

use fields::at;

/// Longest warning, in bytes: what `kubectl` and the API server pass on whole.
const WARNING_MAX: usize = 255;

/// The result of a validation. An object without a violation may be admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Every rule that is broken, not only the first.
    pub violations: Vec<Violation>,
    /// Sentences for the user, each under 256 bytes.
    pub warnings: Vec<String>,
}

impl Verdict {
    fn violate(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.violations.push(Violation {
            field: field.into(),
            message: message.into(),
        });
    }

    fn warn(&mut self, mut warning: String) {
        let mut end = WARNING_MAX.min(warning.len());
        while !warning.is_char_boundary(end) {
            end -= 1;
        }
        warning.truncate(end);
        self.warnings.push(warning);
    }
}

/// Returns all violations of `object`, an IPUJob after defaulting. `old` is the object before an
/// update. It takes any JSON: an object that is no IPUJob violates rules too.
///
/// The admin's limit is for the start: a job that became too large by a stricter one can still be
/// changed, but neither resumed nor scaled up.
pub fn check(object: &Value, old: Option<&Value>, settings: Settings) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(spec) = at(object, &["spec"]).filter(|spec| spec.is_object()) else {
        verdict.violate(
            "spec",
            "is missing or is not an object; describe the job there",
        );
        return verdict;
    };
    let old_spec = old.and_then(|old| at(old, &["spec"]));
    let old_spec = old_spec.filter(|spec| spec.is_object());
    let settings = match old_spec {
        Some(old_spec) if !update::starts(spec, old_spec) => Settings {
            max_ipus_per_job: u32::MAX,
        },
        _ => settings,
    };
    let sizing = match sizing::read(spec, settings) {
        Ok(sizing) => Some(sizing),
        Err(violations) => {
            verdict.violations.extend(violations);
            None
        }
    };
    names::check(object, sizing, &mut verdict);
    lifecycle::check(spec, &mut verdict);
    template::check(spec, sizing, &mut verdict);
    init_containers::check(spec, &mut verdict);
    mounts::check(spec, &mut verdict);
    variables::check(spec, &mut verdict);
    if let Some(old_spec) = old_spec {
        update::check(spec, old_spec, &mut verdict);
    }
    verdict
}

/// Parses the sizing fields of a spec into numbers that meet every rule on sizes, for callers that
/// build objects from them. Returns all violated rules otherwise.
pub fn sizing(spec: &Value, settings: Settings) -> Result<Sizing, Vec<Violation>> {
    sizing::read(spec, settings)
}
