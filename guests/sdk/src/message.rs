//! Pure: violations and values in messages.

use std::fmt;

use serde_json::Value;

use crate::types::Violation;

/// Longest value in a message, in characters.
const SHOWN_MAX: usize = 60;

/// Returns the value as JSON, truncated if it is long, so that a message stays readable.
pub fn shown(value: &Value) -> String {
    let json = value.to_string();
    match json.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &json[..end]),
        None => json,
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_value_is_truncated_between_characters() {
        assert_eq!(shown(&json!({"a": [1]})), r#"{"a":[1]}"#);
        let (fits, long) = ("é".repeat(58), "é".repeat(59));
        assert_eq!(shown(&json!(fits)), format!("\"{fits}\""));
        assert_eq!(shown(&json!(long)), format!("\"{long}…"));
    }

    #[test]
    fn a_violation_begins_with_its_field() {
        let violation = Violation {
            field: "spec.suspend".to_owned(),
            message: "is missing".to_owned(),
        };
        assert_eq!(violation.to_string(), "spec.suspend: is missing");
    }
}
