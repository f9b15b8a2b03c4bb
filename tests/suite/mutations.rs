//! Checks the list of mutations: the code contains each text, because a mutation without its text has no effect, and the
//! model check has each bound.

use std::fs;

use tests::mutations::{self, FoundBy};

use crate::sources::repository;

#[test]
fn every_mutation_still_finds_its_text_once() {
    for mutation in mutations::all() {
        let text = fs::read_to_string(repository().join(mutation.file)).unwrap();
        assert_eq!(
            text.matches(mutation.text).count(),
            1,
            "`{}` replaces a text that {} does not contain exactly once; correct tests/src/mutations",
            mutation.name,
            mutation.file
        );
        assert_ne!(mutation.text, mutation.instead, "{}", mutation.name);
    }
}

#[test]
fn every_bound_that_is_to_find_a_mutation_exists() {
    let path = repository().join("host/partitions/src/model/bounds.rs");
    let bounds = fs::read_to_string(path).unwrap();
    for mutation in mutations::all() {
        if let FoundBy::Bound(bound) = mutation.found_by {
            assert!(
                bounds.contains(&format!("name: \"{bound}\",")),
                "`{}` names the bound `{bound}`, which does not exist; correct tests/src/mutations",
                mutation.name
            );
        }
    }
}
