//! Builds the guests into `dist/guests`; with `--bindings`, generates their bindings anew instead.

use anyhow::{Context, Result, bail};
use tests::guests::{bindings, build};

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let folder = build().context("failed to build the guests")?;
            println!("the guests are in {}", folder.display());
        }
        ["--bindings"] => write_bindings()?,
        _ => bail!("usage: build-guests [--bindings]"),
    }
    Ok(())
}

fn write_bindings() -> Result<()> {
    for bindings in bindings::all() {
        let (file, source) = (&bindings.file, bindings::generate(&bindings)?);
        std::fs::write(file, source)
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(())
}
