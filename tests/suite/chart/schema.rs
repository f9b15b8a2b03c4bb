//! values.schema.json, generated from the chart's values: strict, and with the names of older
//! versions.

use serde_json::{Map, Value, json};

use super::values::{Entry, OldValues};

/// Sections in which a parent chart may put values for others.
const OPEN: [&str; 1] = ["global"];

/// JSON Schema that several values share.
const DEFINITIONS: &str = include_str!("definitions.yaml");

/// The schema, as in the file.
pub(super) fn render(entries: &[Entry], old: &OldValues) -> String {
    let mut root = section("Values of the ipu-operator chart", true);
    for entry in entries {
        let path: Vec<&str> = entry.path.iter().map(String::as_str).collect();
        let schema = of_entry(entry);
        let is_needed = !takes_null(&schema);
        insert(&mut root, &path, schema);
        if is_needed {
            require(&mut root, &path);
        }
    }
    for (name, present) in &old.used {
        let path: Vec<&str> = present.split('.').collect();
        let mut schema = at(&root, &path).clone();
        optional(&mut schema);
        accept_empty_map(&mut schema);
        schema["description"] = format!("Old name of {present}.").into();
        schema["deprecated"] = true.into();
        insert(&mut root, &name.split('.').collect::<Vec<_>>(), schema);
    }
    for (name, usage) in &old.combined {
        let schema =
            json!({ "description": format!("Of older versions: {usage}."), "deprecated": true });
        insert(&mut root, &name.split('.').collect::<Vec<_>>(), schema);
    }
    for (name, why) in &old.ignored {
        let schema = json!({ "description": format!("Has no effect: {why}."), "deprecated": true });
        insert(&mut root, &name.split('.').collect::<Vec<_>>(), schema);
    }
    define(&mut root);
    explain_cut_lists(&mut root);
    format!("{root:#}\n")
}

fn of_entry(entry: &Entry) -> Value {
    if entry.is_section {
        return section(&entry.text, !OPEN.contains(&entry.name().as_str()));
    }
    let types = match &entry.default {
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("integer"),
        Value::String(_) => json!(["string", "null"]),
        Value::Array(_) => json!(["array", "null"]),
        Value::Object(_) => json!(["object", "null"]),
        Value::Null => panic!("{} has no default", entry.name()),
    };
    let mut schema = Map::new();
    schema.insert("description".to_owned(), entry.text.as_str().into());
    if !entry.rule.contains_key("enum") {
        schema.insert("type".to_owned(), types);
    }
    schema.extend(entry.rule.clone());
    Value::Object(schema)
}

fn section(text: &str, is_strict: bool) -> Value {
    let mut schema = json!({ "description": text, "type": "object", "properties": {} });
    if is_strict {
        schema["additionalProperties"] = false.into();
    }
    schema
}

/// Whether a value may be removed, as Helm does for null.
fn takes_null(schema: &Value) -> bool {
    let types = schema["type"].as_array();
    types.is_some_and(|types| types.contains(&"null".into()))
}

fn insert(root: &mut Value, path: &[&str], schema: Value) {
    let (into, name) = inside(root, path);
    into["properties"][name] = schema;
}

/// The error names a value that is missing because of null, or because of `--reuse-values` from an
/// older chart.
fn require(root: &mut Value, path: &[&str]) {
    let (into, name) = inside(root, path);
    let section = into.as_object_mut().expect("a section is an object");
    let needed = section.entry("required").or_insert_with(|| json!([]));
    let needed = needed.as_array_mut().expect("it is a list");
    needed.push(name.into());
}

/// The section that a value is in, and its name there.
fn inside<'a, 'n>(root: &'a mut Value, path: &[&'n str]) -> (&'a mut Value, &'n str) {
    let (name, outer) = path.split_last().expect("a value has a name");
    let mut into = root;
    for name in outer {
        let values = into["properties"].as_object_mut();
        let values = values.expect("a section has values");
        into = values
            .entry(*name)
            .or_insert_with(|| section("Values of older versions.", true));
    }
    (into, name)
}

/// Removes `required`, because an old name may set a part of a section.
fn optional(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("required");
    let values = object.get_mut("properties").and_then(Value::as_object_mut);
    values
        .into_iter()
        .flat_map(Map::values_mut)
        .for_each(optional);
}

/// Accepts `{}` for an empty list, as the documents of alpha-5 write it.
fn accept_empty_map(schema: &mut Value) {
    if schema["type"] == json!(["array", "null"]) {
        schema["type"] = json!(["array", "object", "null"]);
        schema["maxProperties"] = 0.into();
    }
}

fn at<'a>(root: &'a Value, path: &[&str]) -> &'a Value {
    let found = path.iter().try_fold(root, |at, name| {
        at.get("properties").and_then(|values| values.get(name))
    });
    found.unwrap_or_else(|| panic!("old-values.yaml names {path:?}, which is no value"))
}

/// Adds the shared definitions to which values refer.
fn define(root: &mut Value) {
    let definitions: Value = serde_saphyr::from_str(DEFINITIONS)
        .unwrap_or_else(|error| panic!("definitions.yaml: {error}"));
    root["definitions"] = definitions;
}

/// Helm splits a list of V-IPU controllers on the command line at its commas, and reads the rest as
/// values whose names contain a colon, as a tree if the host has dots. The schema accepts these,
/// because a template explains them. It refuses every other unknown value.
fn explain_cut_lists(root: &mut Value) {
    let values = root["properties"].as_object().expect("there are values");
    let known: Map<String, Value> = values
        .keys()
        .map(|name| (name.clone(), true.into()))
        .collect();
    let schema = root.as_object_mut().expect("a schema is an object");
    schema.remove("additionalProperties");
    let draft = "http://json-schema.org/draft-07/schema#";
    schema.insert("$schema".to_owned(), draft.into());
    schema["definitions"]["cutList"] = json!({
        "type": "object",
        "minProperties": 1,
        "patternProperties": { ":": true },
        "additionalProperties": { "$ref": "#/definitions/cutList" },
    });
    let no_cut_list = json!({
        "properties": known,
        "patternProperties": { ":": false },
        "additionalProperties": { "not": { "$ref": "#/definitions/cutList" } },
    });
    schema.insert("if".to_owned(), no_cut_list);
    let strict = json!({ "properties": known, "additionalProperties": false });
    schema.insert("then".to_owned(), strict);
}
