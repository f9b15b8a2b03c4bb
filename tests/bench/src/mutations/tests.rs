//! Checks the list of mutations: the code contains each text, because a mutation without its text
//! has no effect.

use std::fs;

use release::guests::checkout;

use super::{FoundBy, all};

#[test]
fn every_mutation_still_finds_its_text_once() {
    for mutation in all() {
        let text = fs::read_to_string(checkout().join(mutation.file)).unwrap();
        assert_eq!(
            text.matches(mutation.text).count(),
            1,
            "`{}` replaces a text that {} does not contain exactly once; correct tests/bench/src/mutations",
            mutation.name,
            mutation.file
        );
        assert_ne!(mutation.text, mutation.instead, "{}", mutation.name);
    }
}

#[test]
fn every_bound_that_is_to_find_a_mutation_exists() {
    let path = checkout().join("tests/partition-simulation/src/model/bounds.rs");
    let bounds = fs::read_to_string(path).unwrap();
    for mutation in all() {
        if let FoundBy::Bound(bound) = mutation.found_by {
            assert!(
                bounds.contains(&format!("name: \"{bound}\",")),
                "`{}` names the bound `{bound}`, which does not exist; correct tests/bench/src/mutations",
                mutation.name
            );
        }
    }
}
