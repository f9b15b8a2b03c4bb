//! Compares the dashboard's pictures in the documents with those that a test draws, and with the files.

use std::collections::BTreeSet;
use std::fs;

use tests::pictures::{self, FOLDER, SCHEMES};

use crate::sources::{documents, repository};

/// The names of the pictures of the dashboard in a document, in Markdown and in HTML.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let names = text.split("images/").skip(1).map(move |rest| {
        let end = rest.find(|letter| !is_of_name(letter));
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(|name| name.starts_with("dashboard-"))
}

#[test]
fn the_documents_show_the_pictures_that_a_test_draws_and_each_has_a_file() {
    let drawn = pictures::all();
    let drawn = drawn.flat_map(|picture| SCHEMES.map(|scheme| picture.file(scheme)));
    let drawn: BTreeSet<String> = drawn.collect();
    assert_eq!(drawn.len(), pictures::all().count() * SCHEMES.len());

    let documents = documents();
    let shown = documents.iter().flat_map(|(_, text)| named(text));
    let shown: BTreeSet<String> = shown.map(ToOwned::to_owned).collect();
    assert_eq!(
        shown, drawn,
        "left: pictures in the documents; right: pictures that the test draws"
    );

    let files = fs::read_dir(repository().join(FOLDER)).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files
        .filter(|name| name.starts_with("dashboard-"))
        .collect();
    assert_eq!(
        files, drawn,
        "left: in {FOLDER}; right: drawn, with UPDATE_SCREENSHOTS=1"
    );
}

#[test]
fn each_picture_has_the_command_of_kubectl_that_shows_the_same() {
    for picture in pictures::all() {
        let mut texts = picture.texts.iter();
        let has_command = texts.any(|text| text.starts_with("The same with kubectl: kubectl "));
        assert!(has_command, "{picture:?}");
    }
}

#[test]
fn pictures_are_found_in_markdown_and_in_html() {
    let text = "![a](docs/images/dashboard-a-light.png)\n<img src=\"images/dashboard-b-dark.png\">\nimages/plot.svg";
    let found: Vec<_> = named(text).collect();
    assert_eq!(found, ["dashboard-a-light.png", "dashboard-b-dark.png"]);
}
