//! Pure: settings as a word of the command line.

use serde_json::{Map, Value};

/// Reads settings. A guest never gets a value that is not a JSON object.
pub(super) fn settings(text: &str) -> Result<String, String> {
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!(
            "settings are a JSON object, such as {{\"maxIpusPerJob\": 64}}: {error}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::settings;

    #[test]
    fn only_an_object_is_taken() {
        assert_eq!(settings(r#"{"a": 1}"#), Ok(r#"{"a": 1}"#.to_owned()));
        for wrong in ["", "[]", "{", "a", r#"{"a": 1} x"#] {
            let error = settings(wrong).unwrap_err();
            assert!(error.contains("such as {\"maxIpusPerJob\": 64}"), "{error}");
        }
    }
}
