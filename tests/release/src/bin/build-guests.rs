//! Builds the guests into `dist/guests`.

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let folder = release::guests::build().context("failed to build the guests")?;
    println!("the guests are in {}", folder.display());
    Ok(())
}
