//! The rules of an IPUPolicy that apply to every writer: the API server itself checks them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;

/// Regular expression of the references to modules in a registry. The operator's parser of
/// references has a test that it accepts the same ones.
pub const REFERENCE: &str = concat!(
    // The host: with a dot or a port, or `localhost`.
    "^(localhost|[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)+|",
    "[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*:[1-9][0-9]{0,4})",
    // The repository.
    "(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)+",
    // The tag, the digest, or both.
    "(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$",
);

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
    [
        of_the_hook(),
        of_the_module(),
        of_the_registry(),
        of_its_effect(),
    ]
    .concat()
}

fn of_the_hook() -> Vec<ValidationRule> {
    vec![rule(
        "self.hook == oldSelf.hook",
        Some(".hook"),
        "hook cannot change, because a guest is written for one hook; make another IPUPolicy",
    )]
}

/// Rules of what its answers do.
fn of_its_effect() -> Vec<ValidationRule> {
    vec![
        rule(
            "!has(self.onError) || (self.onError in ['Fallback', 'Wait']) == (self.hook == 'Placement')",
            Some(".onError"),
            "onError is Fail or Ignore for Defaulting and Validation, and Fallback or Wait for Placement",
        ),
        rule(
            "self.hook != 'Placement' || !has(self.match) || !has(self.match.objectSelector)",
            Some(".match"),
            "match.objectSelector has no meaning for Placement, which sees no object; use \
             namespaceSelector or matchConditions",
        ),
        rule(
            "!has(self.untilActive) || self.hook == 'Validation'",
            Some(".untilActive"),
            "untilActive is only for Validation: nothing waits for other guests to become active; remove it",
        ),
        rule(
            "!has(self.shadow) || self.mode == 'Shadow'",
            Some(".shadow"),
            "shadow has the options of mode Shadow, so it needs that mode",
        ),
    ]
}

/// Rules of where the module comes from.
fn of_the_module() -> Vec<ValidationRule> {
    vec![
        rule(
            "[has(self.module.configMap), has(self.module.image), has(self.module.oci)]\
             .filter(it, it).size() == 1",
            Some(".module"),
            "module needs exactly one of configMap, image and oci",
        ),
        rule(
            "has(self.module.image) || has(self.module.digest)",
            Some(".module"),
            "module.digest is missing: it says which module is loaded, whatever the source holds; \
             `ipu-operator policy inspect` prints it",
        ),
    ]
}

/// Rules of a module in a registry.
fn of_the_registry() -> Vec<ValidationRule> {
    vec![
        rule(
            &format!("!has(self.module.oci) || self.module.oci.reference.matches('{REFERENCE}')"),
            Some(".module.oci.reference"),
            "reference has the host of a registry (with a dot or a port: none is assumed), a repository in \
             lower case, and a tag or the digest of a manifest, such as \
             registry.example.com/team/policy:1.2",
        ),
        rule(
            "!has(self.module.oci) || !has(self.module.oci.certificateAuthorities) \
             || [has(self.module.oci.certificateAuthorities.pem), \
             has(self.module.oci.certificateAuthorities.configMap), \
             has(self.module.oci.certificateAuthorities.secret)].filter(it, it).size() == 1",
            Some(".module.oci.certificateAuthorities"),
            "certificateAuthorities needs exactly one of pem, configMap and secret",
        ),
        rule(
            "!has(self.module.oci) || !has(self.module.oci.certificateAuthorities) \
             || !has(self.module.oci.plainHttp) || !self.module.oci.plainHttp",
            Some(".module.oci.plainHttp"),
            "plainHttp has no certificate that certificateAuthorities could vouch for; leave one of them out",
        ),
        rule(
            "!has(self.module.oci) || !has(self.module.oci.signature) \
             || self.module.oci.signature.keys.all(one, \
             [has(one.pem), has(one.configMap), has(one.secret)].filter(it, it).size() == 1)",
            Some(".module.oci.signature.keys"),
            "each of keys needs exactly one of pem, configMap and secret",
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
