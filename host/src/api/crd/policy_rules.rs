//! The rules of an IPUPolicy that hold whoever writes it: the API server checks them itself.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

/// Rules of the whole object.
pub(super) fn of_the_object() -> Vec<ValidationRule> {
    vec![rule(
        "self.metadata.name != 'built-in'",
        None,
        "an IPUPolicy cannot be called built-in, because the built-in guest of each hook is called \
         that; give it another name",
    )]
}

/// Rules of the spec.
pub(super) fn of_the_spec() -> Vec<ValidationRule> {
    vec![
        rule(
            "self.hook == oldSelf.hook",
            Some(".hook"),
            "hook cannot change, because a guest is written for one hook; make another IPUPolicy",
        ),
        rule(
            "has(self.module.configMap) != has(self.module.image)",
            Some(".module"),
            "module needs exactly one of configMap and image",
        ),
        rule(
            "has(self.module.image) || has(self.module.digest)",
            Some(".module"),
            "module.digest is missing: it says which module is loaded, whatever the source holds; \
             `ipu-operator policy inspect` prints it",
        ),
        rule(
            "!has(self.onError) || (self.onError == 'Fallback') == (self.hook == 'Placement')",
            Some(".onError"),
            "onError is Fail or Ignore for Defaulting and Validation, and Fallback for Placement: a \
             job never waits for a broken policy",
        ),
        rule(
            "self.hook != 'Placement' || !has(self.match) || !has(self.match.objectSelector)",
            Some(".match"),
            "match.objectSelector has no meaning for Placement, which sees no object; use \
             namespaceSelector or matchConditions",
        ),
        rule(
            "!has(self.shadow) || self.mode == 'Shadow'",
            Some(".shadow"),
            "shadow says how a guest is tried, so it needs mode Shadow",
        ),
    ]
}

fn rule(rule: &str, field: Option<&str>, message: &str) -> ValidationRule {
    ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        field_path: field.map(str::to_owned),
        reason: Some("FieldValueInvalid".to_owned()),
        ..ValidationRule::default()
    }
}
