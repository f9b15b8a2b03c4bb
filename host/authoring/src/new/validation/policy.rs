//! The decision: every job has the labels that the settings list.

use serde_json::Value;

/// Settings of the admin: `{"requiredLabels": ["team"]}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    required: Vec<String>,
}

impl Settings {
    /// Reads the settings of the IPUPolicy. Unknown keys are ignored.
    pub fn parse(text: &str) -> Result<Self, String> {
        let settings: Value = serde_json::from_str(text)
            .map_err(|error| format!("the settings are not JSON: {error}"))?;
        let Some(required) = settings.get("requiredLabels") else {
            return Ok(Self::default());
        };
        let keys = required.as_array().map(|keys| {
            let keys = keys.iter().map(|key| key.as_str().map(str::to_owned));
            keys.collect::<Option<Vec<_>>>()
        });
        match keys.flatten() {
            Some(required) => Ok(Self { required }),
            None => Err(format!(
                "requiredLabels is {required}; write a list of strings"
            )),
        }
    }
}

/// Returns each violation: the field, and what the user can do.
pub fn check(object: &Value, settings: &Settings) -> Vec<(String, String)> {
    let missing = settings.required.iter().filter(|key| {
        let label = object["metadata"]["labels"].get(key.as_str());
        label.and_then(Value::as_str).is_none_or(str::is_empty)
    });
    missing
        .map(|key| {
            (
                format!("metadata.labels.{key}"),
                format!("the label {key} is missing; set it"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_missing_label_is_named() {
        let settings = Settings::parse(r#"{"requiredLabels": ["team", "tier"]}"#).unwrap();
        let object = json!({"metadata": {"labels": {"team": "vision"}}});
        let found = check(&object, &settings);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "metadata.labels.tier");
        assert_eq!(check(&object, &Settings::default()), []);
    }

    #[test]
    fn settings_of_another_form_are_refused() {
        for wrong in [
            "",
            r#"{"requiredLabels": "team"}"#,
            r#"{"requiredLabels": [1]}"#,
        ] {
            assert!(Settings::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Settings::parse(r#"{"other": 1}"#), Ok(Settings::default()));
    }
}
