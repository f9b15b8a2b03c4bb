//! Invariants of request bodies: each is either valid, or refused with reasons.

use super::problem::{Fault, Problem};
use super::{create_request, query_request};
use ipu_api::crd::violations::violations;

/// Longest answer about one body, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// Longest name of a field in an answer, in characters.
const FIELD_MAX: usize = 256;

/// Longest rule in an answer, in characters: it may quote what a parser says.
const RULE_MAX: usize = 600;

/// Longest value in an answer, in characters, with the sign of truncation.
const VALUE_MAX: usize = 81;

/// A body of `/query`.
pub(crate) fn check_query_request(body: &[u8]) {
    match query_request::read(body) {
        Ok(query) => {
            assert!(query.size.is_power_of_two());
            assert!((1..=query.size).contains(&query.gcds));
            assert!(!query.namespace.is_empty());
        }
        Err(fault) => check_fault(&fault),
    }
}

/// A body of `/partitions`. The API server accepts the object of a valid one.
pub(crate) fn check_create_request(body: &[u8]) {
    match create_request::read(body) {
        Ok(request) => {
            let object = create_request::object(request);
            let name = object.metadata.name.as_deref().unwrap_or_default();
            assert!(create_request::wrong_name(name).is_none(), "{name:?}");
            assert!(object.spec.ipus.is_power_of_two());
            assert!((1..=object.spec.ipus).contains(&object.spec.gcds));
            let faults = violations(&object);
            assert!(faults.is_empty(), "{faults:?} in {object:?}");
        }
        Err(problem) => check_problem(&problem),
    }
}

/// A problem names its faults, and its length is limited.
pub(crate) fn check_problem(problem: &Problem) {
    assert!(!problem.faults.is_empty() && !problem.detail.is_empty());
    problem.faults.iter().for_each(check_fault);
    let answer = serde_json::to_vec(&problem.document("/partitions"));
    let length = answer.map_or(0, |answer| answer.len());
    assert!((1..=ANSWER_MAX).contains(&length), "{length} bytes");
}

fn check_fault(fault: &Fault) {
    assert!(
        !fault.field.is_empty() && !fault.rule.is_empty(),
        "{fault:?}"
    );
    assert!(fault.field.chars().count() <= FIELD_MAX, "{fault:?}");
    assert!(fault.rule.chars().count() <= RULE_MAX, "{fault:?}");
    assert!(fault.value.chars().count() <= VALUE_MAX, "{fault:?}");
}
