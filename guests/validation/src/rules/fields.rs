//! Pure: reads fields of JSON that may have any shape, and shows their values in messages.

use guest_sdk::message::shown;
use serde_json::Value;

use super::Violation;

/// The value at a path of keys; none where a step is missing, is null, or is not an object.
pub(super) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter()
        .try_fold(value, |value, key| value.get(*key))
        .filter(|value| !value.is_null())
}

/// The string at a path, where there is one.
pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path).and_then(Value::as_str)
}

/// Whether the job has a launcher Pod, with a command or interactive.
pub(super) fn has_launcher(spec: &Value) -> bool {
    at(spec, &["launcher"]).is_some() || at(spec, &["interactive"]).is_some()
}

/// A violation of `field` with a message that starts with the value found there.
pub(super) fn broken(field: &str, found: &Value, rule: &str) -> Violation {
    Violation {
        field: field.to_owned(),
        message: format!("{} {rule}", shown(found)),
    }
}

/// Reads a field that holds a positive whole number written as a string; none where it is missing.
pub(super) fn number_text(spec: &Value, key: &str) -> Result<Option<u32>, Violation> {
    let Some(value) = at(spec, &[key]) else {
        return Ok(None);
    };
    let field = format!("spec.{key}");
    let Some(digits) = value.as_str() else {
        return Err(broken(
            &field,
            value,
            "is not a string; write the number in quotes, such as \"4\"",
        ));
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(broken(
            &field,
            value,
            "is not a whole number; write digits in quotes, such as \"4\"",
        ));
    }
    match digits.parse() {
        Ok(0) => Err(broken(
            &field,
            value,
            "is too small; it must be at least \"1\"",
        )),
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(broken(
            &field,
            value,
            "is too large; no system has that many",
        )),
    }
}

/// Reads a field that holds a whole number of at least `min`; none where it is missing.
pub(super) fn whole(
    value: &Value,
    path: &[&str],
    field: &str,
    min: u32,
) -> Result<Option<u32>, Violation> {
    let Some(value) = at(value, path) else {
        return Ok(None);
    };
    value
        .as_i64()
        .filter(|number| (i64::from(min)..=i64::from(i32::MAX)).contains(number))
        .and_then(|number| u32::try_from(number).ok())
        .map(Some)
        .ok_or_else(|| {
            let rule = format!(
                "is not a whole number from {min} to {}; correct it",
                i32::MAX
            );
            broken(field, value, &rule)
        })
}
