//! Compares the dashboard's pictures in the documents with those that a test draws, and with the
//! files.

use std::collections::BTreeSet;
use std::fs;

use tests::pictures::{self, FOLDER};

use crate::sources::{documents, repository};

/// `links.rs` checks that a document shows no picture without a file.
#[test]
fn the_pictures_that_a_test_draws_are_the_files_and_the_documents_show_them() {
    let drawn = pictures::documented();
    let drawn = drawn.map(|(picture, width, scheme)| picture.file(width, scheme));
    let drawn: BTreeSet<String> = drawn.collect();
    let files = fs::read_dir(repository().join(FOLDER)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<_> = names
        .filter(|name| name.starts_with("dashboard-"))
        .collect();
    assert_eq!(
        files, drawn,
        "left: in {FOLDER}; right: drawn, with UPDATE_SCREENSHOTS=1"
    );
    let documents = documents();
    for file in drawn {
        let image = format!("images/{file}");
        let is_shown = documents.iter().any(|(_, text)| text.contains(&image));
        assert!(is_shown, "no document shows {image}");
    }
}
