//! The table of values in the chart's README.

use std::fmt::Write as _;

use serde_json::Value;

use super::values::{Entry, OldValues};

/// The text before and after the generated part.
pub(super) const MARKS: [&str; 2] = ["<!-- values: begin -->\n", "<!-- values: end -->\n"];

/// Returns `readme` with the current table.
pub(super) fn with_table(readme: &str, entries: &[Entry], old: &OldValues) -> String {
    let (before, rest) = readme.split_once(MARKS[0]).expect("the table begins");
    let (_, after) = rest.split_once(MARKS[1]).expect("the table ends");
    let table = table(entries, old);
    format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1])
}

fn table(entries: &[Entry], old: &OldValues) -> String {
    let mut text = "| value | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for entry in entries.iter().filter(|entry| !entry.is_section) {
        let default = shown(&entry.default);
        let _ = writeln!(
            text,
            "| `{}` | {default} | {} |",
            entry.name(),
            cell(&entry.text)
        );
    }
    text.push_str(
        "\nNames of older versions, which work as well:\n\n| old name | now |\n| --- | --- |\n",
    );
    for (name, present) in &old.used {
        let _ = writeln!(text, "| `{name}` | `{present}` |");
    }
    text.push_str("\nValues of older versions that are a part of a present value:\n\n");
    text.push_str("| value | use |\n| --- | --- |\n");
    for (name, usage) in &old.combined {
        let _ = writeln!(text, "| `{name}` | {} |", cell(usage));
    }
    text.push_str("\nValues of older versions that have no effect any more:\n\n");
    text.push_str("| value | why |\n| --- | --- |\n");
    for (name, why) in &old.ignored {
        let _ = writeln!(text, "| `{name}` | {} |", cell(why));
    }
    text
}

fn shown(default: &Value) -> String {
    match default {
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) => format!("`{text}`"),
        Value::Object(map) if map.is_empty() => "none".to_owned(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Object(_) | Value::Array(_) => "see values.yaml".to_owned(),
        other => format!("`{other}`"),
    }
}

/// Escapes a text, so that it does not end a table's cell and is not read as HTML.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
