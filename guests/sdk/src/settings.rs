//! Pure: the admin's settings, which several guests may share.
//!
//! The functions are inlined: otherwise the code that parses and drops JSON would be in a guest
//! twice, once for each crate.

use serde_json::Value;

const NO_OBJECT: &str = "the settings are not a JSON object; write {} for none";

/// Accepts any object, for a guest without settings: all keys are those of other guests.
#[inline]
pub fn ignore(settings: &str) -> Result<(), String> {
    match serde_json::from_str(settings) {
        Ok(Value::Object(_)) => Ok(()),
        _ => Err(NO_OBJECT.to_owned()),
    }
}

/// Parses the settings.
#[inline]
pub fn parse(settings: &str) -> Result<Value, String> {
    serde_json::from_str(settings).map_err(|error| format!("the settings are not JSON: {error}"))
}

/// Parses the settings, which must be an object.
#[inline]
pub fn parse_object(settings: &str) -> Result<Value, String> {
    let settings = parse(settings)?;
    if settings.is_object() {
        Ok(settings)
    } else {
        Err(NO_OBJECT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_an_object() {
        for settings in [json!({}), json!({"any": []})] {
            assert_eq!(ignore(&settings.to_string()), Ok(()));
            assert_eq!(parse_object(&settings.to_string()), Ok(settings));
        }
        for (settings, expected) in [
            ("", "the settings are not JSON: EOF"),
            (
                "[]",
                "the settings are not a JSON object; write {} for none",
            ),
            (
                "null",
                "the settings are not a JSON object; write {} for none",
            ),
        ] {
            let error = parse_object(settings).unwrap_err();
            assert!(error.starts_with(expected), "{settings}: {error}");
            assert_eq!(ignore(settings), Err(NO_OBJECT.to_owned()));
        }
    }
}
