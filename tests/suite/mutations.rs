//! Checks the list of mutations: the code contains each text, because a mutation without its text has no effect.

use std::fs;

use tests::mutations;

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
