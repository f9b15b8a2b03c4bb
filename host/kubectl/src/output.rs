//! The forms of the output.

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use crate::error::KubectlError;
use crate::goodput::{self, Goodput};
use crate::table::table;
use crate::top::Usage;

/// The form of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PageFormat {
    /// Text for people.
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
