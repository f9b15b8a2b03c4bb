//! The chart's values with their comments: the only source of values.schema.json and of the
//! README's table.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Map, Value};

use crate::sources::repository;

/// One value of the chart, or a section of several.
pub(super) struct Entry {
    /// Its name, from the outermost section to its own.
    pub(super) path: Vec<String>,
    /// Its comment, on one line.
    pub(super) text: String,
    /// Whether it is a section. The values of a section are separate entries.
    pub(super) is_section: bool,
    /// Its default.
    pub(super) default: Value,
    /// JSON Schema that its comment adds to the type of the default.
    pub(super) rule: Map<String, Value>,
}

/// Names that older versions had.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OldValues {
    /// The current name of each old name that still works.
    pub(super) used: BTreeMap<String, String>,
    /// Use of each old name that is a part of a current value.
    pub(super) combined: BTreeMap<String, String>,
    /// Reason why each of the other old names has no effect.
    pub(super) ignored: BTreeMap<String, String>,
}

impl Entry {
    /// Its name as users write it.
    pub(super) fn name(&self) -> String {
        self.path.join(".")
    }
}

/// A file of the chart.
pub(super) fn file(name: &str) -> String {
    let path = repository().join("charts/ipu-operator").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of older versions.
pub(super) fn old() -> OldValues {
    serde_saphyr::from_str(&file("old-values.yaml")).unwrap()
}

/// Every value, in the order of values.yaml.
pub(super) fn entries() -> Vec<Entry> {
    entries_of("values.yaml")
}

/// Every value in a file of the chart, in its order.
pub(super) fn entries_of(name: &str) -> Vec<Entry> {
    let text = file(name);
    let defaults: Value = serde_saphyr::from_str(&text).unwrap();
    let (mut found, mut comment) = (Vec::<Entry>::new(), Vec::new());
    let mut open: Vec<(usize, String)> = Vec::new();
    for line in text.lines() {
        let inner = line.trim_start();
        if let Some(said) = inner.strip_prefix('#') {
            comment.push(said.strip_prefix(' ').unwrap_or(said));
            continue;
        }
        let said = std::mem::take(&mut comment);
        let Some((key, _)) = inner.split_once(':').filter(|(key, _)| is_key(key)) else {
            continue;
        };
        let indent = line.len() - inner.len();
        open.retain(|(depth, _)| *depth < indent);
        open.push((indent, key.to_owned()));
        let path: Vec<String> = open.iter().map(|(_, key)| key.clone()).collect();
        let inside = |outer: &Entry| !outer.is_section && path.starts_with(&outer.path);
        if !found.iter().any(inside) {
            found.push(entry(path, &said, &defaults));
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())
}

fn entry(path: Vec<String>, said: &[&str], defaults: &Value) -> Entry {
    let default = defaults.pointer(&format!("/{}", path.join("/")));
    let default = default.expect("the text was parsed").clone();
    let rules = said.iter().filter_map(|line| line.strip_prefix("@schema "));
    let rule = rules.fold(Map::new(), |mut all, rule| {
        let rule: Map<String, Value> = serde_saphyr::from_str(rule)
            .unwrap_or_else(|error| panic!("@schema of {}: {error}", path.join(".")));
        all.extend(rule);
        all
    });
    // Indented lines are examples, which the table leaves out.
    let words = said
        .iter()
        .filter(|line| !line.starts_with("  ") && !line.starts_with("@schema"));
    let text = words.copied().collect::<Vec<_>>().join(" ");
    let values = default.as_object().is_some_and(|map| !map.is_empty());
    Entry {
        is_section: values && !rule.contains_key("additionalProperties"),
        path,
        text,
        default,
        rule,
    }
}
