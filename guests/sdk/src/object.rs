//! Pure: the objects of a request. The functions are inlined for the reason that `settings` has.

use serde_json::Value;

/// Parses the object.
#[inline]
pub fn parse(object: &str) -> Result<Value, String> {
    named("object", object)
}

/// Parses the object as it was before, which only an update has.
#[inline]
pub fn parse_old(object: Option<&str>) -> Result<Option<Value>, String> {
    object.map(|object| named("old object", object)).transpose()
}

#[inline]
fn named(name: &str, object: &str) -> Result<Value, String> {
    serde_json::from_str(object).map_err(|error| format!("the {name} is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_is_not_json_is_named() {
        assert_eq!(parse(r#"{"spec": 1}"#), Ok(json!({"spec": 1})));
        assert_eq!(parse_old(Some("{}")), Ok(Some(json!({}))));
        assert_eq!(parse_old(None), Ok(None));
        let error = parse("{").unwrap_err();
        assert!(error.starts_with("the object is not JSON: EOF"), "{error}");
        let error = parse_old(Some("{")).unwrap_err();
        assert!(
            error.starts_with("the old object is not JSON: EOF"),
            "{error}"
        );
    }
}
