//! `policy inspect`: prints the imports and exports of a file, without running it.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_guest_host::{Capabilities, Described, describe};
use serde_json::json;

use super::{PolicyCliError, no_policy, write_json};

#[derive(Args, Clone, Debug)]
pub(super) struct InspectArgs {
    /// The component, such as my-placement.wasm.
    file: PathBuf,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InspectArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let described = describe(&args.file).map_err(no_policy(&args.file))?;
    if args.json {
        let mut value = json!(described.capabilities);
        value["digest"] = json!(described.digest);
        value["size"] = json!(described.size);
        value["accepted"] = json!(described.capabilities.is_linkable());
        return Ok(write_json(&value, out)?);
    }
    Ok(out.write_all(report(&described).as_bytes())?)
}

/// Formats the description of a component.
fn report(described: &Described) -> String {
    let found = &described.capabilities;
    let mut text = format!(
        "world    {}\npackage  {}\nsize     {} bytes\ndigest   {}\n",
        found.world.map_or("none", |hook| hook.world()),
        found.package.as_deref().unwrap_or("none"),
        described.size,
        described.digest,
    );
    text.push_str("imports\n");
    for import in &found.imports {
        let mark = if import.allowed { "allowed" } else { "refused" };
        let _ = writeln!(text, "  {mark}  {}  {}", import.name, import.why);
    }
    if found.imports.is_empty() {
        text.push_str("  nothing\n");
    }
    text.push_str("exports\n");
    for export in &found.exports {
        let _ = writeln!(text, "  {}", export.name);
        for function in &export.functions {
            let _ = writeln!(text, "    {function}");
        }
    }
    if found.exports.is_empty() {
        text.push_str("  nothing\n");
    }
    text.push_str(&conclusion(found));
    text
}

/// Formats whether the operator would link it, and why not.
fn conclusion(found: &Capabilities) -> String {
    if found.is_linkable() {
        return "The operator would link it; `policy check` tries it on a request.\n".to_owned();
    }
    let mut text = String::from("The operator would refuse it:\n");
    for import in found.imports.iter().filter(|import| !import.allowed) {
        let _ = writeln!(text, "  {} {}", import.name, import.why);
    }
    for missing in &found.missing_exports {
        let _ = writeln!(text, "  {missing}");
    }
    if found.world.is_none() {
        text.push_str(
            "  it exports no interface of ipu:policy; `ipu-operator policy contract` prints the \
             worlds\n",
        );
    }
    text
}
