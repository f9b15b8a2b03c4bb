//! Pure: generates the OpenAPI 3.1 document from the descriptions that also generate the routes.

use std::collections::BTreeSet;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::operation::{Body, Description, Parameter, schema_of};
use super::problem::{Kind, PlainError, ProblemDocument};

/// Name of the security scheme.
const TOKEN: &str = "token";

/// The error format of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorFormat {
    /// JSON with `message`, as in Graphcore's proxy.
    Plain,
    /// RFC 9457.
    Problem,
}

impl ErrorFormat {
    /// The media type of an error.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/json",
            Self::Problem => "application/problem+json",
        }
    }
}

/// The document of a port that offers these operations.
pub(super) fn document(operations: &[Description], error_format: ErrorFormat) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations {
        let methods = paths.entry(operation.path).or_insert_with(|| json!({}));
        methods[operation.method] = describe(operation, error_format, &mut generator);
    }
    let mut components = json!({ "schemas": generator.take_definitions(true) });
    if operations.iter().any(|operation| operation.is_guarded) {
        components["securitySchemes"] = json!({ TOKEN: {
            "type": "http",
            "scheme": "bearer",
            "description": "A service account's token for the proxy's audience, as \
                `kubectl create token <service account> --audience ipu-operator` prints it. The \
                account needs the right in RBAC to do the same to ipupartitions.graphcore.ai.",
        }});
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "IPU Operator, V-IPU proxy",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": components,
    })
}

fn describe(
    operation: &Description,
    error_format: ErrorFormat,
    generator: &mut SchemaGenerator,
) -> Value {
    let mut answers = Map::new();
    for answer in std::iter::once(&operation.answer).chain(&operation.otherwise) {
        let response = json!({
            "description": answer.description,
            "content": { "application/json": { "schema": (answer.schema)(generator) } },
        });
        answers.insert(answer.status.to_string(), response);
    }
    let kinds: BTreeSet<Kind> = operation.problems.iter().copied().collect();
    for kind in kinds {
        answers.insert(
            kind.status().to_string(),
            failure(kind, error_format, generator),
        );
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": answers,
    });
    if !operation.details.is_empty() {
        described["description"] = operation.details.into();
    }
    if !operation.parameters.is_empty() {
        let parameters = operation.parameters.iter();
        described["parameters"] = parameters.map(|one| parameter(one, generator)).collect();
    }
    if let Some(Body { schema, .. }) = operation.body {
        described["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema(generator) } },
        });
    }
    if operation.is_guarded {
        described["security"] = json!([{ TOKEN: [] }]);
    }
    described
}

fn parameter(parameter: &Parameter, generator: &mut SchemaGenerator) -> Value {
    json!({
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": (parameter.schema)(generator),
    })
}

fn failure(kind: Kind, error_format: ErrorFormat, generator: &mut SchemaGenerator) -> Value {
    let schema = match error_format {
        ErrorFormat::Plain => schema_of::<PlainError>(generator),
        ErrorFormat::Problem => schema_of::<ProblemDocument>(generator),
    };
    json!({
        "description": kind.title(),
        "content": { error_format.media_type(): { "schema": schema } },
    })
}
