//! Pure: the results of the checks of a node, in the form of the annotation that ipu-node writes
//! and `kubectl ipu` reads.

use serde::{Deserialize, Serialize};

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Name of the check. Names are stable.
    pub check: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// What was found, and what to do if that is needed.
    pub message: String,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The node meets the requirement.
    Ok,
    /// It does not.
    Failed,
    /// It could not be found out.
    Unknown,
    /// The release has no such requirement, or another check that failed comes first.
    Skipped,
}

impl Outcome {
    /// The word for users, which is that of the JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_word_of_an_outcome_is_that_of_its_json() {
        let all = [
            Outcome::Ok,
            Outcome::Failed,
            Outcome::Unknown,
            Outcome::Skipped,
        ];
        for outcome in all {
            assert_eq!(json!(outcome), json!(outcome.word()));
        }
    }
}
