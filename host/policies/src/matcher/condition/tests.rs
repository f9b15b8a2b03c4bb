//! Conditions that are refused at load, because no request could satisfy them.

use super::*;

fn load(hook: Hook, expression: &str) -> Result<(), MatchError> {
    let condition = MatchCondition {
        name: "mine".to_owned(),
        expression: expression.to_owned(),
    };
    compile(hook, &condition).map(drop)
}

fn undeclared(hook: Hook, expression: &str) -> Option<Undeclared> {
    match load(hook, expression) {
        Ok(()) => None,
        Err(MatchError::Undeclared { undeclared, .. }) => Some(undeclared),
        Err(other) => panic!("{expression}: {other}"),
    }
}

#[test]
fn an_undeclared_name_is_refused_wherever_it_is() {
    let variable = |name: &str| Undeclared::Variable(name.to_owned());
    let function = |name: &str| Undeclared::Function(name.to_owned());
    for (expression, expected) in [
        ("team == 'a'", variable("team")),
        ("false && objet.spec.jobInstances > 1", variable("objet")),
        ("true || objet.spec.jobInstances > 1", variable("objet")),
        ("[1].all(x, x > y)", variable("y")),
        ("[1].all(x, true) && x > 1", variable("x")),
        ("size([params]) > 0", variable("params")),
        ("{'a': variables.b} == {}", variable("variables")),
        (
            "object.metadata.name.lowerAscii() == 'a'",
            function("lowerAscii"),
        ),
        ("false && quantity('1Gi') == 1", function("quantity")),
        ("isURL('a')", function("isURL")),
        (
            "authorizer.group('').resource('pods').check('create').allowed()",
            Undeclared::Authorizer,
        ),
    ] {
        let found = undeclared(Hook::Validation, expression);
        assert_eq!(found, Some(expected), "{expression}");
    }
}

#[test]
fn a_field_that_no_request_has_is_refused() {
    for (hook, expression, path) in [
        (
            Hook::Validation,
            "request.options.dryRun",
            "request.options",
        ),
        (
            Hook::Defaulting,
            "false && request.userInfo.uid == 'a'",
            "request.userInfo.uid",
        ),
        (
            Hook::Validation,
            "request['operations'] == 'CREATE'",
            "request.operations",
        ),
        (
            Hook::Validation,
            "namespaceObject.spec.finalizers == []",
            "namespaceObject.spec",
        ),
        (
            Hook::Placement,
            "request.operation == 'CREATE'",
            "request.operation",
        ),
    ] {
        let found = undeclared(hook, expression);
        let Some(Undeclared::Field { path: found, .. }) = &found else {
            panic!("{expression}: {found:?}");
        };
        assert_eq!(found, path, "{expression}");
    }
}

#[test]
fn an_expression_that_fails_for_every_sample_is_refused() {
    for (hook, expression) in [
        (Hook::Validation, "'yes'"),
        (Hook::Validation, "object.metadata.name"),
        (Hook::Validation, "object.metadata.name > 5"),
        (Hook::Placement, "object.spec.jobInstances > 1"),
    ] {
        let loaded = load(hook, expression);
        assert!(
            matches!(loaded, Err(MatchError::Unevaluable { .. })),
            "{expression}: {loaded:?}"
        );
    }
}

#[test]
fn what_kubernetes_documents_and_objects_may_have_is_loaded() {
    for (hook, expression) in [
        (Hook::Validation, "request.resource.resource == 'pods'"),
        (
            Hook::Validation,
            "request.kind.kind == 'IPUJob' && request.kind.group != ''",
        ),
        (Hook::Validation, "request.requestKind == request.kind"),
        (Hook::Validation, "request.subResource == null"),
        (
            Hook::Validation,
            "!has(request.options) || request.options.dryRun",
        ),
        (
            Hook::Validation,
            "namespaceObject.metadata.labels.tier == 'prod'",
        ),
        (Hook::Placement, "namespaceObject.metadata.name != 'a'"),
        (Hook::Placement, "request.nodeSelector['pool'] == 'a'"),
        (Hook::Placement, "object == null"),
        (Hook::Validation, "oldObject.spec.jobInstances > 1"),
        (Hook::Validation, "object.spec.launcher.command[3] == 'a'"),
        (Hook::Validation, "type(object.spec) == map"),
        (
            Hook::Validation,
            "object.metadata.labels.map(request, request + 'a').size() > 0",
        ),
        (Hook::Validation, "int(object.spec.ipusPerJobInstance) > 4"),
    ] {
        let loaded = load(hook, expression);
        assert!(loaded.is_ok(), "{expression}: {}", loaded.unwrap_err());
    }
}

#[test]
fn the_message_names_condition_expression_and_remedy() {
    let expression = "request.user == 'jane'";
    let message = load(Hook::Validation, expression).unwrap_err().to_string();
    for part in [
        "spec.match.matchConditions: mine",
        "request.user,",
        "userInfo",
        "use one of these",
        expression,
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
