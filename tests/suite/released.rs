//! Compares CRDs and chart values with those of the previous release: the additions of an upgrade,
//! and the losses of a rollback.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cluster::files::sha256;
use release::package::archive::{self, Files};
use release::package::previous::Previous;
use release::package::sums;
use serde_json::Value;

use crate::sources::repository;

/// The files of the previous release.
pub(crate) fn texts() -> PathBuf {
    let previous = Previous::locked(&repository()).unwrap();
    previous.texts(&repository())
}

/// A file of the previous release, and the same file of this version.
fn both(name: &str) -> [String; 2] {
    let read = |folder: &Path| {
        let path = folder.join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    [read(&texts()), read(&repository())]
}

#[test]
fn files_of_the_previous_release_are_those_of_its_archive() {
    let listed = fs::read_to_string(texts().join(sums::NAME)).unwrap();
    let mut files = Files::new();
    for folder in ["charts", "crds", "guests", "wit"] {
        archive::add(&mut files, &texts().join(folder), folder).unwrap();
    }
    assert!(files.len() > 5, "{:?}", files.keys());
    for name in files.keys() {
        let sum = sha256(&texts().join(name)).unwrap();
        let line = format!("{sum}  {name}");
        assert!(listed.lines().any(|listed| listed == line), "{line}");
    }
}

/// Rules of the previous release that are gone, or in whose place a rule stands that accepts more.
const WIDENED: [&str; 2] = [
    "[!has(self.onError) || (self.onError == 'Fallback') == (self.hook == 'Placement')]",
    "/imagePullSecrets/items/required/[]",
];

/// With the older CRDs, the API server drops fields that this version adds, so the page about
/// upgrades names each of them. A rule or a required field could also reject existing objects.
#[test]
fn crds_keep_all_fields_of_the_previous_release() {
    let folder = fs::read_dir(texts().join("crds")).unwrap();
    let mut names: Vec<_> = folder
        .map(|entry| format!("crds/{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    names.sort();
    let (mut lost, mut added) = (Vec::new(), Vec::new());
    for name in &names {
        let [older, here] = both(name).map(|text| facts(name, &text));
        let lacking = older.difference(&here);
        lost.extend(lacking.filter(|fact| !is_of_quantity(fact, &here)).cloned());
        // A template and the launcher accept null in each optional field, and numbers of any form.
        let is_of_pod = |fact: &str| {
            let mut parts = ["/template/", "/launcher/properties/env/"].iter();
            parts.any(|part| fact.contains(part))
        };
        let is_wider = |fact: &&String| {
            let is_null = fact.ends_with("/nullable=true");
            is_of_pod(fact) && (is_null || is_of_quantity(fact, &here))
        };
        let additions = here.difference(&older).filter(|fact| !is_wider(fact));
        added.extend(additions.cloned());
    }
    assert_eq!(names.len(), 3, "{names:?}");
    lost.retain(|fact| !WIDENED.iter().any(|rule| fact.contains(rule)));
    assert_eq!(lost, [""; 0], "objects of the previous release need them");
    insta::with_settings!(
        { description => "Each addition is also in charts/ipu-operator/docs/rollback-crds.md." },
        { insta::assert_snapshot!(added.join("\n")) }
    );
}

/// Whether a fact is about the type of a quantity of a template. In 0.1.0 that was an integer or a
/// text; now it is any number or a text of the same pattern.
fn is_of_quantity(fact: &str, here: &BTreeSet<String>) -> bool {
    const OF_TYPE: [&str; 7] = [
        "/anyOf/",
        "/maxItems=",
        "/maxProperties=",
        "/minItems=",
        "/minProperties=",
        "/not/",
        "/x-kubernetes-",
    ];
    let mut ends = OF_TYPE.iter().filter_map(|field| fact.rfind(field));
    ends.any(|end| {
        let untyped = ["x-kubernetes-preserve-unknown-fields=true", "maxItems=0"];
        let mut untyped = untyped.iter().map(|rest| [&fact[..end], rest].join("/"));
        untyped.all(|fact| here.contains(&fact))
    })
}

#[test]
fn values_of_the_previous_release_are_still_accepted() {
    let names = both("charts/ipu-operator/values.schema.json").map(|schema| {
        let mut names = BTreeSet::new();
        add_names(&mut names, "", &serde_json::from_str(&schema).unwrap());
        names
    });
    let [older, here] = names;
    let lost: Vec<_> = older.difference(&here).collect();
    assert!(older.len() > 100, "{older:?}");
    assert_eq!(lost, [""; 0], "add them to old-values.yaml");
}

/// The names of all values in a schema, also those of older versions.
fn add_names(names: &mut BTreeSet<String>, section: &str, schema: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let name = format!("{section}.{name}");
        add_names(names, &name, schema);
        names.insert(name);
    }
}

/// Defaults that an upgrade changes belong in the changelog.
#[test]
fn changed_defaults_of_values_are_listed() {
    let values = "charts/ipu-operator/values.yaml";
    let [older, here] = both(values).map(|text| facts("", &text));
    let before = older.difference(&here).map(|fact| format!("- {fact}"));
    let after = here.difference(&older).map(|fact| format!("+ {fact}"));
    let changes: Vec<_> = before.chain(after).collect();
    insta::assert_snapshot!(changes.join("\n"));
}

/// The content of a CRD without its descriptions. The order of a list has no meaning.
fn facts(name: &str, text: &str) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    add_facts(&mut facts, name, &serde_saphyr::from_str(text).unwrap());
    facts
}

fn add_facts(facts: &mut BTreeSet<String>, path: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            let is_property = path.ends_with("/properties");
            for (field, value) in fields {
                let is_for_people = matches!(field.as_str(), "description" | "message");
                // A property may have such a name. A text counts as a description or message only
                // beside properties.
                if is_property || !(is_for_people && value.is_string()) {
                    add_facts(facts, &format!("{path}/{field}"), value);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item.get("name").and_then(Value::as_str);
                let rule = item.get("rule").and_then(Value::as_str);
                let key = name.or(rule).unwrap_or_default();
                add_facts(facts, &format!("{path}/[{key}]"), item);
            }
        }
        leaf => {
            facts.insert(format!("{path}={leaf}"));
        }
    }
}

#[test]
fn texts_do_not_count_and_fields_do() {
    let facts = |text: &str| facts("a", text);
    let older = facts("{properties: {message: {type: string, description: A}}, enum: [X, Y]}");
    let same = facts("{enum: [Y, X], properties: {message: {description: B, type: string}}}");
    assert_eq!(older, same);
    let newer =
        facts("{properties: {message: {type: integer}}, enum: [X, Y], required: [message]}");
    let added: Vec<_> = newer.difference(&older).cloned().collect();
    let expected = [
        r#"a/properties/message/type="integer""#,
        r#"a/required/[]="message""#,
    ];
    assert_eq!(added, expected);
}
