//! `policy new`: creates a project for a guest, which builds and passes its cases without a change.
//!
//! A macro generates the bindings from the contract when the project is built. Its version compiles
//! with Rust 1.85 and later.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Args, ValueEnum};
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::CONTRACT;

use super::world::World;
use super::{PolicyCliError, failed_to};

#[derive(Args, Clone, Debug)]
pub(super) struct NewArgs {
    /// Name of the guest and of its folder: lower-case letters, digits and dashes.
    #[arg(value_parser = project_name)]
    name: String,
    /// Hook of the guest.
    #[arg(long)]
    world: World,
    /// Programming language of the guest.
    #[arg(long, default_value = "rust")]
    language: Language,
    /// Folder in which the command creates the folder of the guest.
    #[arg(long, default_value = ".")]
    into: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
}

pub(super) fn run(args: &NewArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let folder = args.into.join(&args.name);
    // Creating the folder checks that it did not exist.
    match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(PolicyCliError::Exists(folder));
        }
        made => made.map_err(failed_to("write", &folder))?,
    }
    let Language::Rust = args.language;
    for (path, text) in files(&args.name, args.world.into()) {
        let file = folder.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(failed_to("write", parent))?;
        }
        fs::write(&file, text).map_err(failed_to("write", &file))?;
    }
    writeln!(
        out,
        "{} is a guest of world {}. Its README.md says how to build and test it.",
        folder.display(),
        Hook::from(args.world).world(),
    )?;
    Ok(())
}

/// A name that is a good one for a crate and for a folder.
fn project_name(name: &str) -> Result<String, String> {
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if starts && name.len() <= 64 && name.chars().all(allowed) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "{name:?} is no name: it starts with a lower-case letter, has only lower-case letters, \
         digits and dashes, and 64 of them at most, such as best-fit"
    ))
}

/// The version of wit-bindgen that the project uses, which is the one of the built-in guests.
const WIT_BINDGEN: &str = "0.61.1";

/// Differences between the worlds.
struct Template {
    shell: &'static str,
    policy: &'static str,
    cases: [(&'static str, &'static str); 2],
}

/// The template of a world, from the files of its folder and the names of its two cases.
macro_rules! template {
    ($world:literal, $one:literal, $other:literal) => {
        Template {
            shell: include_str!(concat!("new/", $world, "/lib.rs")),
            policy: include_str!(concat!("new/", $world, "/policy.rs")),
            cases: [template!(@case $world, $one), template!(@case $world, $other)],
        }
    };
    (@case $world:literal, $case:literal) => {
        (
            concat!("cases/", $case, ".yaml"),
            include_str!(concat!("new/", $world, "/cases/", $case, ".yaml")),
        )
    };
}

fn template(hook: Hook) -> Template {
    match hook {
        Hook::Placement => template!("placement", "fullest-that-fits", "too-large"),
        Hook::Defaulting => template!("defaulting", "adds-labels", "keeps-labels"),
        Hook::Validation => template!("validation", "label-is-missing", "label-is-there"),
    }
}

/// The files of a project, by their path in it.
fn files(name: &str, hook: Hook) -> Vec<(&'static str, String)> {
    let template = template(hook);
    let filled = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{module}}", &name.replace('-', "_"))
            .replace("{{world}}", hook.world())
            .replace("{{hook}}", hook.name())
            .replace("{{wit-bindgen}}", WIT_BINDGEN)
    };
    let mut files = vec![
        ("Cargo.toml", filled(include_str!("new/Cargo.toml.in"))),
        ("README.md", filled(include_str!("new/README.md.in"))),
        (
            ".cargo/config.toml",
            include_str!("new/config.toml.in").to_owned(),
        ),
        (".gitignore", "/target\n*.wasm\n".to_owned()),
        ("wit/policy.wit", CONTRACT.to_owned()),
        ("src/lib.rs", template.shell.to_owned()),
        ("src/policy.rs", template.policy.to_owned()),
    ];
    files.extend(template.cases.map(|(path, text)| (path, text.to_owned())));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        for hook in Hook::ALL {
            for (path, text) in files("my-policy", hook) {
                assert!(!text.contains("{{"), "{hook}: {path}: {text}");
            }
        }
    }

    #[test]
    fn a_project_uses_the_generator_of_the_built_in_guests() {
        let workspace = include_str!("../../../Cargo.toml");
        let ours = format!("\nwit-bindgen = {{ version = \"={WIT_BINDGEN}\"");
        assert!(workspace.contains(&ours), "{ours}");
    }

    #[test]
    fn names_that_would_not_build_are_refused() {
        assert_eq!(project_name("best-fit2"), Ok("best-fit2".to_owned()));
        for wrong in [
            "",
            "2fit",
            "Best",
            "best_fit",
            "../fit",
            "a b",
            &"a".repeat(65),
        ] {
            let error = project_name(wrong).unwrap_err();
            assert!(error.contains("lower-case letter"), "{error}");
        }
    }
}
