//! The forms of the output.

use std::io::Write;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use crate::error::KubectlError;
use crate::goodput::{self, Goodput};
use crate::nodes::{self, NodeReport};
use crate::page::Page;
use crate::table::table;
use crate::top::Usage;

/// Clears a terminal, and starts at its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// Text for users.
    #[default]
    Text,
    /// JSON, for programs.
    Json,
    /// YAML, for programs.
    Yaml,
}

/// The form of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON, for programs.
    Json,
    /// YAML, for programs.
    Yaml,
}

/// The form of a sum of IPU-hours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GoodputFormat {
    /// Tables.
    #[default]
    Table,
    /// Tables with more columns.
    Wide,
    /// JSON, for programs.
    Json,
    /// YAML, for programs.
    Yaml,
    /// CSV, for spreadsheets: one line for each period, V-IPU controller, namespace and state.
    Csv,
}

/// The reader of an output that is repeated after changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A person.
    Person,
    /// A program that reads JSON.
    Json,
    /// A program that reads YAML.
    Yaml,
}

impl From<PageFormat> for Reader {
    fn from(format: PageFormat) -> Self {
        match format {
            PageFormat::Text => Self::Person,
            PageFormat::Json => Self::Json,
            PageFormat::Yaml => Self::Yaml,
        }
    }
}

impl From<TableFormat> for Reader {
    fn from(format: TableFormat) -> Self {
        match format {
            TableFormat::Table | TableFormat::Wide => Self::Person,
            TableFormat::Json => Self::Json,
            TableFormat::Yaml => Self::Yaml,
        }
    }
}

/// An output in a sequence. On a terminal it replaces the previous one; for programs it is a
/// document.
pub(crate) fn again(text: &str, reader: Reader, is_terminal: bool) -> String {
    let (before, after) = match reader {
        Reader::Person if is_terminal => (CLEAR, ""),
        Reader::Person => ("", "\n"),
        Reader::Json => ("", ""),
        Reader::Yaml => ("---\n", ""),
    };
    format!("{before}{text}{after}")
}

/// A page in a form. `now` is the time of its ages.
pub(crate) fn page(
    page: &Page,
    format: PageFormat,
    now: Timestamp,
) -> Result<String, KubectlError> {
    match format {
        PageFormat::Text => Ok(page.text(now)),
        PageFormat::Json => json(page),
        PageFormat::Yaml => yaml(page),
    }
}

/// A sum of IPU-hours in a form. `lines`: the same as CSV.
pub(crate) fn goodput(
    report: &Goodput,
    lines: impl FnOnce() -> String,
    format: GoodputFormat,
) -> Result<String, KubectlError> {
    match format {
        GoodputFormat::Table => Ok(goodput::text(report, false)),
        GoodputFormat::Wide => Ok(goodput::text(report, true)),
        GoodputFormat::Json => json(report),
        GoodputFormat::Yaml => yaml(report),
        GoodputFormat::Csv => Ok(lines()),
    }
}

/// The use of IPUs in a form.
pub(crate) fn usage(usage: &Usage, format: TableFormat) -> Result<String, KubectlError> {
    match format {
        TableFormat::Table => Ok(table(usage, false)),
        TableFormat::Wide => Ok(table(usage, true)),
        TableFormat::Json => json(usage),
        TableFormat::Yaml => yaml(usage),
    }
}

/// Nodes in a form. `now` is the time of their ages.
pub(crate) fn nodes(
    reports: &[NodeReport],
    format: TableFormat,
    now: Timestamp,
) -> Result<String, KubectlError> {
    match format {
        TableFormat::Table => Ok(nodes::table(reports, false, now)),
        TableFormat::Wide => Ok(nodes::table(reports, true, now)),
        TableFormat::Json => json(&reports),
        TableFormat::Yaml => yaml(&reports),
    }
}

/// The checks of nodes in a form. `now` is the time of their ages.
pub(crate) fn doctor(
    reports: &[NodeReport],
    format: PageFormat,
    now: Timestamp,
) -> Result<String, KubectlError> {
    match format {
        PageFormat::Text => Ok(nodes::doctor(reports, now)),
        PageFormat::Json => json(&reports),
        PageFormat::Yaml => yaml(&reports),
    }
}

/// A value as JSON, with a line break at its end.
pub(crate) fn json(value: &impl Serialize) -> Result<String, KubectlError> {
    let text = serde_json::to_string_pretty(value).map_err(KubectlError::Json)?;
    Ok(text + "\n")
}

/// A value as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String, KubectlError> {
    serde_saphyr::to_string(value).map_err(KubectlError::Yaml)
}

/// Writes a text at once.
pub(crate) fn write(out: &mut impl Write, text: &str) -> Result<(), KubectlError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(KubectlError::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_takes_the_place_of_the_one_before_only_on_a_terminal() {
        for (reader, is_terminal, expected) in [
            (Reader::from(PageFormat::Text), true, "\x1b[2J\x1b[Ha\n"),
            (Reader::from(PageFormat::Text), false, "a\n\n"),
            (Reader::from(PageFormat::Json), true, "a\n"),
            (Reader::from(PageFormat::Yaml), true, "---\na\n"),
            (Reader::from(TableFormat::Wide), true, "\x1b[2J\x1b[Ha\n"),
            (Reader::from(TableFormat::Table), false, "a\n\n"),
            (Reader::from(TableFormat::Yaml), false, "---\na\n"),
            (Reader::from(TableFormat::Json), false, "a\n"),
        ] {
            let found = again("a\n", reader, is_terminal);
            assert_eq!(found, expected, "{reader:?} {is_terminal}");
        }
    }
}
