//! Checks IPUPartitions against the schema of their CRD, as the API server does.

use std::sync::LazyLock;

use jsonschema::Validator;

use crate::crd;
use crate::ipupartition::IPUPartition;

/// The errors with which the API server refuses an IPUPartition.
///
/// # Panics
///
/// Only if the CRD of this package is no schema.
pub fn violations(object: &IPUPartition) -> Vec<String> {
    static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
        let definition = crd::ipupartition();
        let schema = definition.spec.versions[0].schema.clone();
        let schema = schema.and_then(|schema| schema.open_api_v3_schema);
        let schema = serde_json::to_value(schema).expect("a schema is JSON");
        let options = jsonschema::options().should_validate_formats(true);
        options
            .build(&schema)
            .expect("the schema of the CRD is one")
    });
    let object = serde_json::to_value(object).expect("an object is JSON");
    let faults = SCHEMA.iter_errors(&object);
    faults.map(|fault| fault.to_string()).collect()
}
