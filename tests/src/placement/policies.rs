//! Replays the jobs of a real cluster with the policies of this repository, by the command that authors use.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use ipu_authoring::PolicyCliError;
use ipu_operator::cli::{Arguments, Task};
use release::guests::{self, BuildError, checkout};
use tempfile::TempDir;

use super::{JOBS, LARGE};

/// Failure of a replay.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The guests could not be built.
    #[error("failed to build the guests")]
    Build(#[from] BuildError),
    /// A file cannot be used.
    #[error("failed to use {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The command line is invalid.
    #[error("failed to read the command line of `policy evaluate`")]
    Arguments(#[from] clap::Error),
    /// The command line is not `policy evaluate`.
    #[error("the command line is not about policies")]
    Task,
    /// The replay failed.
    #[error("failed to replay the jobs")]
    Evaluate(#[from] PolicyCliError),
}

/// One replay of all jobs.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The policies: `built-in`, or a file name of `dist/guests` or `dist/policies`.
    pub policies: &'a [&'a str],
    /// The controllers, as the command reads them.
    pub controllers: &'a str,
    /// Other options.
    pub options: &'a [&'a str],
    /// File for the drawing of the replay.
    pub svg: Option<&'a Path>,
}

/// Replays all jobs, and returns the table in Markdown. The names of files in it are those of the policies alone.
pub fn evaluate(run: &Run<'_>) -> Result<String, PolicyError> {
    let folder = prepared(run)?;
    let jobs = checkout().join(JOBS);
    let at = |path: &Path| path.to_string_lossy().into_owned();
    let mut arguments: Vec<String> = ["ipu-operator", "policy", "evaluate"]
        .map(ToOwned::to_owned)
        .into();
    for (index, policy) in run.policies.iter().enumerate() {
        if index > 0 {
            arguments.push("--compare".to_owned());
        }
        arguments.push((*policy).to_owned());
    }
    let controllers = folder.path().join("controllers.yaml");
    for (name, value) in [
        ("--jobs", at(&jobs)),
        ("--controllers", at(&controllers)),
        ("--large", LARGE.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    arguments.push("--markdown".to_owned());
    if let Some(svg) = run.svg {
        arguments.extend(["--svg".to_owned(), at(svg)]);
    }
    arguments.extend(run.options.iter().map(|&option| option.to_owned()));
    let Task::Policy(parsed) = Arguments::try_parse_from(arguments)?.task else {
        return Err(PolicyError::Task);
    };
    // The table and the drawing contain the names of the command line, which must not contain this machine's folders.
    std::env::set_current_dir(folder.path()).map_err(at_path(folder.path()))?;
    let mut printed = Vec::new();
    let evaluated = ipu_authoring::run(parsed, &mut printed);
    std::env::set_current_dir(checkout()).map_err(at_path(checkout()))?;
    evaluated?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// A folder with the policies and the list of controllers.
fn prepared(run: &Run<'_>) -> Result<TempDir, PolicyError> {
    let sources = [guests::build()?, guests::build_examples()?];
    let folder = tempfile::tempdir().map_err(at_path(&std::env::temp_dir()))?;
    let controllers = folder.path().join("controllers.yaml");
    fs::write(&controllers, run.controllers).map_err(at_path(&controllers))?;
    for name in run
        .policies
        .iter()
        .filter(|name| Path::new(name).extension() == Some("wasm".as_ref()))
    {
        let found = sources.iter().map(|source| source.join(name));
        let found = found.filter(|file| file.exists());
        for file in found {
            fs::copy(&file, folder.path().join(name)).map_err(at_path(&file))?;
        }
    }
    Ok(folder)
}

fn at_path(path: &Path) -> impl FnOnce(std::io::Error) -> PolicyError {
    let path = path.to_owned();
    move |source| PolicyError::File { path, source }
}
