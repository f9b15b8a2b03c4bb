//! `policy diff`: prints the differences between the imports and exports of two components.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use clap::Args;
use ipu_guest_host::{Capabilities, Described, Import, describe};

use super::{PolicyCliError, no_policy};

#[derive(Args, Clone, Debug)]
pub(super) struct DiffArgs {
    /// The component as it was.
    a: PathBuf,
    /// The component as it shall be.
    b: PathBuf,
    /// Fail where world, package, imports or exports differ.
    #[arg(long)]
    exit_code: bool,
}

pub(super) fn run(args: &DiffArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let a = describe(&args.a).map_err(no_policy(&args.a))?;
    let b = describe(&args.b).map_err(no_policy(&args.b))?;
    let changes = changes(&a.capabilities, &b.capabilities);
    out.write_all(heading(&a, &b).as_bytes())?;
    for change in &changes {
        writeln!(out, "{change}")?;
    }
    if changes.is_empty() {
        writeln!(out, "Both import and export the same.")?;
    }
    if args.exit_code && !changes.is_empty() {
        return Err(PolicyCliError::Differ {
            a: args.a.clone(),
            b: args.b.clone(),
        });
    }
    Ok(())
}

/// Formats the differences that every build has.
fn heading(a: &Described, b: &Described) -> String {
    let mut text = String::new();
    let growth =
        i128::try_from(b.size).unwrap_or_default() - i128::try_from(a.size).unwrap_or_default();
    let _ = writeln!(text, "size     {} → {} bytes ({growth:+})", a.size, b.size);
    if a.digest == b.digest {
        let _ = writeln!(text, "digest   {} (the same file)", a.digest);
    } else {
        let _ = writeln!(text, "digest   {} → {}", a.digest, b.digest);
    }
    text
}

/// Returns the differences of imports and exports; empty if there are none.
fn changes(a: &Capabilities, b: &Capabilities) -> Vec<String> {
    let mut changes = Vec::new();
    let world = |one: &Capabilities| one.world.map_or("none", |hook| hook.world());
    if a.world != b.world {
        changes.push(format!("world    {} → {}", world(a), world(b)));
    }
    let package = |one: &Capabilities| one.package.clone().unwrap_or_else(|| "none".to_owned());
    if a.package != b.package {
        changes.push(format!("package  {} → {}", package(a), package(b)));
    }
    let imports = |one: &Capabilities| one.imports.iter().map(import).collect::<Vec<_>>();
    changes.extend(compared("import", &imports(a), &imports(b)));
    changes.extend(compared("export", &exports(a), &exports(b)));
    changes
}

fn import(import: &Import) -> String {
    let mark = if import.allowed { "allowed" } else { "refused" };
    format!("{} ({mark}: it {})", import.name, import.why)
}

/// Returns every function with its interface.
fn exports(one: &Capabilities) -> Vec<String> {
    let mut functions = Vec::new();
    for export in &one.exports {
        let lines = export.functions.iter();
        functions.extend(lines.map(|function| format!("{} {function}", export.name)));
        if export.functions.is_empty() {
            functions.push(export.name.clone());
        }
    }
    functions
}

fn compared(kind: &str, a: &[String], b: &[String]) -> Vec<String> {
    let gone = a.iter().filter(|one| !b.contains(one));
    let new = b.iter().filter(|one| !a.contains(one));
    gone.map(|one| format!("- {kind} {one}"))
        .chain(new.map(|one| format!("+ {kind} {one}")))
        .collect()
}
