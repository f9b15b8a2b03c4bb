//! Pure: the results of the checks as text for admins.

use ipu_api::node_check::{CheckResult, Outcome};
use ipu_text::sanitize;

/// Longest message, in bytes.
const MESSAGE_MAX: usize = 2_048;

/// A line for each check: its outcome, its name, and what to do.
pub fn text(results: &[CheckResult]) -> String {
    let width = results.iter().map(|result| result.check.len()).max();
    let width = width.unwrap_or(0);
    let line = |result: &CheckResult| {
        let (outcome, message) = (
            result.outcome.word(),
            sanitize(&result.message, MESSAGE_MAX),
        );
        format!("{outcome:7}   {:width$}   {message}\n", result.check)
    };
    results.iter().map(line).collect()
}

/// The names of the checks that failed.
pub fn failed(results: &[CheckResult]) -> Vec<&str> {
    let failed = results
        .iter()
        .filter(|result| result.outcome == Outcome::Failed);
    failed.map(|result| result.check.as_str()).collect()
}
