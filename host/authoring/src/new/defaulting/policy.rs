//! The decision: every job gets the labels of the settings that it lacks.

use serde_json::{Map, Value, json};

/// Settings of the admin: `{"labels": {"team": "vision"}}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    labels: Map<String, Value>,
}

impl Settings {
    /// Reads the settings of the IPUPolicy. Unknown keys are ignored.
    pub fn parse(text: &str) -> Result<Self, String> {
        let settings: Value = serde_json::from_str(text)
            .map_err(|error| format!("the settings are not JSON: {error}"))?;
        let labels = match settings.get("labels") {
            None => Map::new(),
            Some(Value::Object(labels)) if labels.values().all(Value::is_string) => labels.clone(),
            Some(other) => {
                return Err(format!("labels is {other}; write an object of texts"));
            }
        };
        Ok(Self { labels })
    }
}

/// Sets the labels that the user did not set.
pub fn apply(object: &mut Value, settings: &Settings) {
    if settings.labels.is_empty() {
        return;
    }
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for (key, value) in &settings.labels {
        if labels.get(key).is_none() {
            labels[key] = value.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_added_and_never_changed() {
        let settings = Settings::parse(r#"{"labels": {"team": "vision", "tier": "a"}}"#).unwrap();
        let mut object = json!({"metadata": {"labels": {"team": "audio"}}});
        apply(&mut object, &settings);
        let labels = json!({"team": "audio", "tier": "a"});
        assert_eq!(object, json!({"metadata": {"labels": labels}}));
    }

    #[test]
    fn settings_of_another_form_are_refused() {
        for wrong in ["", r#"{"labels": ["team"]}"#, r#"{"labels": {"team": 1}}"#] {
            assert!(Settings::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Settings::parse(r#"{"other": 1}"#), Ok(Settings::default()));
    }
}
