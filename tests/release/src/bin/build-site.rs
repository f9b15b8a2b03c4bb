//! Writes the sources of the site of the documents into the given folder, for mdBook.

use std::path::PathBuf;

use anyhow::Context;

fn main() -> anyhow::Result<()> {
    let into = std::env::args_os().nth(1).map(PathBuf::from);
    let into = into.context("write the folder of the site after the name of the program")?;
    let pages = release::site::write(release::guests::checkout(), &into)?;
    println!("{} pages", pages.len());
    Ok(())
}
