//! The table of parameters in alpha-5's documentation: a values file has every row, and the schema
//! accepts it.

use serde_json::Value;

use super::values;

/// The rows of the table: the name and the default of each parameter, as JSON. An empty cell is an
/// empty string.
const TABLE: &str = include_str!("alpha-5.tsv");

/// The rows, as name and default.
fn rows() -> Vec<(&'static str, Value)> {
    let rows = TABLE.lines().map(|row| {
        let (name, default) = row.split_once('\t').expect("a row has two cells");
        (
            name,
            serde_json::from_str(default).expect("a default is JSON"),
        )
    });
    rows.collect()
}

/// The value of a name in a tree of values.
fn at<'a>(tree: &'a Value, name: &str) -> Option<&'a Value> {
    tree.pointer(&format!("/{}", name.replace('.', "/")))
}

/// Number of leaves of a tree. An empty map is a leaf.
fn leaves(tree: &Value) -> usize {
    match tree.as_object() {
        Some(fields) if !fields.is_empty() => fields.values().map(leaves).sum(),
        _ => 1,
    }
}

#[test]
fn the_values_file_has_every_default_of_the_table() {
    let written: Value =
        serde_saphyr::from_str(&values::file("tests/values/alpha-5.yaml")).unwrap();
    let rows = rows();
    for (name, default) in &rows {
        assert_eq!(at(&written, name), Some(default), "{name}");
    }
    assert_eq!((rows.len(), leaves(&written)), (47, 47));
}

#[test]
fn the_schema_knows_every_name_of_the_table() {
    let schema: Value = serde_json::from_str(&values::file("values.schema.json")).unwrap();
    for (name, _) in rows() {
        let mut at = &schema;
        for part in name.split('.') {
            let Some(inner) = at.pointer(&format!("/properties/{part}")) else {
                // Any value is accepted below an old name without effect.
                assert!(at["deprecated"] == true, "{name}");
                break;
            };
            at = inner;
        }
    }
}
