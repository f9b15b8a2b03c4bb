//! Checks the links of all documents: each relative link leads to a file, and to a heading of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::sources::{documents, repository};

#[test]
fn every_relative_link_of_a_document_leads_somewhere() {
    let (mut seen, mut broken) = (0, Vec::new());
    for (path, text) in documents() {
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            if let Err(why) = follow(&path, &link) {
                broken.push(format!("{}: {link}: {why}", path.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A page names a test by a link with the name of its function.
#[test]
fn a_file_of_code_contains_the_function_whose_name_is_the_text_of_its_link() {
    let mut seen = 0;
    for (path, text) in documents() {
        let parts = text.split("[`").skip(1);
        let named = parts.filter_map(|part| part.split(".rs)").next()?.split_once("`]("));
        for (name, file) in named.filter(|(name, file)| !name.contains(')') && !file.contains(')'))
        {
            seen += 1;
            let file = path.with_file_name(format!("{file}.rs"));
            let code = fs::read_to_string(&file).unwrap();
            let has_function = code.contains(&format!("fn {name}("));
            assert!(
                has_function,
                "{}: {} has no function `{name}`",
                path.display(),
                file.display()
            );
        }
    }
    assert!(seen > 40, "only {seen} functions are named");
}

/// The table of contents.
const CONTENTS: &str = "charts/ipu-operator/docs/README.md";

/// Notes on a folder for contributors, which are not in the table of contents.
const FOLDER_NOTES: [&str; 12] = [
    "charts/README.md",
    "guests/README.md",
    "guests/cel/README.md",
    "guests/defaulting/README.md",
    "guests/fragmentation/README.md",
    "guests/sdk/README.md",
    "guests/serial-walk/README.md",
    "guests/validation/README.md",
    "host/README.md",
    "tests/README.md",
    "tests/attacks.md",
    "tests/evaluation/README.md",
];

#[test]
fn the_table_of_contents_lists_every_document_once() {
    let absolute = |path: &str| repository().join(path).canonicalize().unwrap();
    let contents = absolute(CONTENTS);
    // Only rows of the tables count. The text around them may repeat links.
    let text = fs::read_to_string(&contents).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let listed = rows.flat_map(links).filter(|link| !link.contains("://"));
    let listed: Vec<PathBuf> = listed
        .map(|link| contents.with_file_name(link).canonicalize().unwrap())
        .collect();
    let mut once = BTreeSet::new();
    let twice: Vec<_> = listed.iter().filter(|path| !once.insert(*path)).collect();
    assert!(twice.is_empty(), "listed twice: {twice:#?}");
    let mut others: BTreeSet<_> = FOLDER_NOTES.map(absolute).into();
    others.insert(contents);
    let every = documents().into_iter();
    let every = every.map(|(path, _)| path.canonicalize().unwrap());
    let missing: Vec<_> = every
        .filter(|path| !others.contains(path) && !once.contains(path))
        .collect();
    assert!(missing.is_empty(), "not listed in {CONTENTS}: {missing:#?}");
}

/// Users who read the reference do not know names of the code.
#[test]
fn the_reference_of_the_fields_names_no_path_of_the_code() {
    let text = fs::read_to_string(repository().join("crds/REFERENCE.md")).unwrap();
    let paths: Vec<_> = text.lines().filter(|line| line.contains("::")).collect();
    assert!(paths.is_empty(), "{paths:#?}");
}

#[test]
fn headings_are_named_as_the_pages_of_a_repository_name_them() {
    let text = "# One `two`, three\n\n## Report a bug\n\n## Report a bug\n";
    let expected = ["one-two-three", "report-a-bug", "report-a-bug-1"];
    assert_eq!(anchors(text), BTreeSet::from(expected.map(String::from)));
}

fn links(text: &str) -> Vec<String> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES);
    let link = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    };
    events.filter_map(link).collect()
}

/// Finds the target of a link.
fn follow(from: &Path, link: &str) -> Result<(), String> {
    let (file, anchor) = match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link, None),
    };
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        from.parent().expect("a file is in a folder").join(file)
    };
    let target: PathBuf = target.canonicalize().map_err(|error| error.to_string())?;
    if !target.starts_with(
        repository()
            .canonicalize()
            .expect("the repository is there"),
    ) {
        return Err("it leads out of the repository".to_owned());
    }
    let Some(anchor) = anchor else {
        return Ok(());
    };
    let text = fs::read_to_string(&target).map_err(|error| error.to_string())?;
    let known = anchors(&text);
    if known.contains(anchor) {
        Ok(())
    } else {
        Err(format!("no such heading; there are {known:?}"))
    }
}

/// The names by which the headings of a document can be reached.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = slug(&heading.take().unwrap_or_default());
                let again = (1..).map(|count| format!("{name}-{count}"));
                let free = std::iter::once(name.clone())
                    .chain(again)
                    .find(|name| !found.contains(name));
                found.extend(free);
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    found
}

fn slug(heading: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let lower = heading.to_lowercase();
    lower
        .chars()
        .filter(is_kept)
        .collect::<String>()
        .replace(' ', "-")
}
