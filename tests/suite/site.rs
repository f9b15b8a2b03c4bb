//! The site of the documents has each page of the table of contents once, and no link that leads
//! nowhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pulldown_cmark::{Event, Options, Parser, Tag};
use release::site;

use crate::sources::{documents, repository};

/// Relative targets of the links and pictures of a page.
fn targets(text: &str) -> Vec<String> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES);
    let target = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some(dest_url.into_string())
        }
        _ => None,
    };
    let targets = events.filter_map(target);
    targets
        .filter(|target| !target.contains("://") && !target.starts_with(['#', 'm']))
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn the_site_is_complete_and_its_links_lead_to_files_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let pages = site::write(&repository(), folder.path()).unwrap();
    let once: BTreeSet<_> = pages.iter().map(String::as_str).collect();
    assert_eq!(once.len(), pages.len(), "a page is listed twice");
    let docs = Path::new("charts/ipu-operator/docs");
    for (path, _) in documents() {
        let path = path.strip_prefix(repository()).unwrap();
        let is_on_site = once.contains(&*path.to_string_lossy());
        assert!(is_on_site || !path.starts_with(docs), "{}", path.display());
    }
    let source = folder.path().join("src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    assert_eq!(targets(&summary), pages);
    for page in &pages {
        let path = source.join(page);
        for target in targets(&fs::read_to_string(&path).unwrap()) {
            let leads_to = path.parent().unwrap().join(&target);
            assert!(leads_to.is_file(), "{page}: {target}");
        }
    }
}
