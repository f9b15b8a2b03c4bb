//! What the coverage-guided targets of `tests/fuzz` call: functions from bytes, which panic where
//! something that must hold of what is read from outside does not. The generated tests ask the same.

use std::sync::LazyLock;

use ipu_api::crd;
use ipu_api::ipupartition::IPUPartition;
use jsonschema::Validator;

use crate::partition::honest::written;
use crate::rest;

/// Bodies of `/query` and of `/partitions`.
pub fn rest_bodies(input: &[u8]) {
    rest::invariants::check_question(input);
    rest::invariants::check_wanted(input);
}

/// An IPUPartition as JSON, in worlds of every kind.
pub fn partition_status(input: &[u8]) {
    let object = serde_json::from_slice::<IPUPartition>(input);
    for case in object.iter().flat_map(written) {
        case.check();
    }
}

/// What the API server has against an IPUPartition, by the schema of its CRD.
pub(crate) fn refused(object: &IPUPartition) -> Vec<String> {
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

#[cfg(test)]
mod tests;
