//! The package of the previous release: its checksum, and its CRDs, compared with those of this version: the additions
//! of an upgrade, and the losses of a rollback.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use cluster::files::sha256;
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::sources::repository;

/// Every field, value and rule that the CRDs of this version add to those of the previous release. With the older CRDs,
/// the API server drops such fields, so the page about upgrades names each of them. A rule, or a required field, could
/// also refuse existing objects.
const ADDED: &[&str] = &[
    "ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/nullable=true",
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="forming""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="idle""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="resetting""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="restarting""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="running""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="starting""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="suspended""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/enum/[]="waiting""#,
    "ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/nullable=true",
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/current/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/currentRun/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/currentRun/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/forming/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/forming/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/idle/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/idle/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/resetting/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/resetting/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/restarting/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/restarting/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/running/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/running/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/starting/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/starting/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/suspended/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/suspended/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/until/format="date-time""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/until/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/waiting/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/waiting/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/wasted/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/properties/wasted/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/required/[]="until""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/accounting/type="object""#,
    "ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/nullable=true",
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/annotations/additionalProperties/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/annotations/type="object""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/count/format="int32""#,
    "ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/count/nullable=true",
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/count/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/labels/additionalProperties/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/labels/type="object""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/name/default="""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/name/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/nodeSelector/additionalProperties/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/nodeSelector/type="object""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/effect/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/key/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/operator/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/tolerationSeconds/format="int64""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/tolerationSeconds/type="integer""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/properties/value/type="string""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/items/type="object""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/properties/tolerations/type="array""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/items/type="object""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/podSets/type="array""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/properties/reservePartitions/type="boolean""#,
    r#"ipujobs.graphcore.ai.yaml/spec/versions/[v1alpha1]/schema/openAPIV3Schema/properties/status/properties/admission/type="object""#,
];

/// The page about upgrades.
const UPGRADE: &str = "charts/ipu-operator/docs/upgrade.md";

#[test]
fn the_crds_keep_what_was_released_and_add_what_is_listed() {
    let released = released();
    assert_eq!(
        released.len(),
        3,
        "CRDs of the previous release: {released:?}"
    );
    let (mut lost, mut added) = (Vec::new(), Vec::new());
    for (name, older) in released {
        let here = fs::read_to_string(repository().join("crds").join(&name)).unwrap();
        let (older, here) = (facts(&name, &older), facts(&name, &here));
        lost.extend(older.difference(&here).cloned());
        added.extend(here.difference(&older).cloned());
    }
    assert_eq!(
        lost,
        <[String; 0]>::default(),
        "objects of the previous release need them"
    );
    assert_eq!(added, ADDED, "put it into ADDED, and into {UPGRADE}");
}

#[test]
fn the_package_of_the_release_before_is_the_one_that_the_readme_names() {
    let archive = archive();
    let name = archive.file_name().unwrap().to_str().unwrap();
    let sum = format!("SHA-256 {}", sha256(&archive).unwrap());
    let readme = fs::read_to_string(repository().join("tests/README.md")).unwrap();
    let lines: Vec<_> = readme.lines().map(str::trim).collect();
    for line in [name, sum.as_str()] {
        assert!(lines.contains(&line), "tests/README.md has no line {line}");
    }
}

/// The package of the previous release.
fn archive() -> PathBuf {
    let folder = fs::read_dir(repository().join("tests/releases")).unwrap();
    let mut archives: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(archives.len(), 1, "one release is kept: {archives:?}");
    archives.remove(0)
}

/// File name and text of each CRD in the package of the previous release.
fn released() -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(archive()).unwrap()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let parts: Vec<&str> = path.split('/').collect();
        if let [_, "crds", name] = parts.as_slice()
            && name.strip_suffix(".yaml").is_some()
        {
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            found.push(((*name).to_owned(), text));
        }
    }
    found
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
