//! The command line of `kubectl ipu`.

use std::str::FromStr;

use clap::{Args, Parser, Subcommand};
use ipu_api::dns1123::is_subdomain;

use crate::connection::ConnectionOptions;
use crate::output::{PageFormat, TableFormat};
use crate::top::By;

/// Explains why jobs wait for IPUs, and shows who uses them. It needs nothing but your kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ipu", bin_name = "kubectl ipu", version)]
pub struct Arguments {
    /// The API server and the namespace.
    #[command(flatten)]
    pub connection: ConnectionOptions,
    /// What to do.
    #[command(subcommand)]
    pub task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Explain why an IPUJob or a Pod waits, and what to do about it.
    Why(WhyOptions),
    /// Show who uses IPUs, and who waits for them.
    Top(TopOptions),
    /// Show the versions of this plugin and of the operator.
    Version,
}

/// Which object is explained.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// JOB, or pod/POD.
    #[arg(value_name = "JOB|pod/POD")]
    pub target: Target,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: PageFormat,
}

/// Which figures are shown.
#[derive(Args, Debug)]
pub struct TopOptions {
    /// What a row is about.
    #[arg(value_enum, default_value_t)]
    pub by: By,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: TableFormat,
    /// Show the figures again after each change, until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,
}

/// An object that can be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An IPUJob.
    Job(String),
    /// A Pod.
    Pod(String),
}

/// A word that names no such object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Its kind is another one.
    #[error("\"{0}\" is not a kind that can be explained: give JOB, ipujob/JOB or pod/POD")]
    Kind(String),
    /// Its name is none.
    #[error(
        "\"{0}\" is not the name of an object: give lower-case letters, digits, '-' and '.', as kubectl get ipujobs or \
         kubectl get pods lists it"
    )]
    Name(String),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (kind, name) = text.split_once('/').unwrap_or(("ipujob", text));
        if !is_subdomain(name) {
            return Err(TargetError::Name(name.to_owned()));
        }
        match kind {
            "ipujob" | "ipujobs" | "ipujobs.graphcore.ai" => Ok(Self::Job(name.to_owned())),
            "pod" | "pods" | "po" => Ok(Self::Pod(name.to_owned())),
            other => Err(TargetError::Kind(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["kubectl-ipu"].iter().chain(words))
    }

    #[test]
    fn the_definition_holds() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_object_is_a_job_unless_its_kind_is_named() {
        let job = || Target::Job("train".to_owned());
        let pod = || Target::Pod("train-0".to_owned());
        for (word, expected) in [
            ("train", job()),
            ("ipujob/train", job()),
            ("ipujobs/train", job()),
            ("pod/train-0", pod()),
            ("pods/train-0", pod()),
            ("po/train-0", pod()),
        ] {
            let Task::Why(options) = parse(&["why", word]).unwrap().task else {
                panic!("{word} is explained");
            };
            assert_eq!(options.target, expected);
            assert_eq!(options.output, PageFormat::Text);
        }
        for (word, expected) in [
            ("node/a", "give JOB, ipujob/JOB or pod/POD"),
            ("pod/", "is not the name of an object"),
            ("Train", "is not the name of an object"),
        ] {
            let error = parse(&["why", word]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse(&["why"]).is_err());
    }

    #[test]
    fn options_of_kubectl_may_stand_before_and_after_the_command() {
        for words in [
            &[
                "--context=lab",
                "-n",
                "team",
                "--kubeconfig",
                "/k",
                "why",
                "a",
            ][..],
            &[
                "why",
                "a",
                "--context=lab",
                "-n",
                "team",
                "--kubeconfig",
                "/k",
            ],
        ] {
            let connection = parse(words).unwrap().connection;
            assert_eq!(connection.context.as_deref(), Some("lab"));
            assert_eq!(connection.namespace.as_deref(), Some("team"));
            assert_eq!(connection.kubeconfig.as_deref(), Some(Path::new("/k")));
        }
    }

    #[test]
    fn top_shows_controllers_unless_told_otherwise() {
        for (words, by, output, watch) in [
            (&["top"][..], By::Controllers, TableFormat::Table, false),
            (
                &["top", "jobs", "-o", "wide"],
                By::Jobs,
                TableFormat::Wide,
                false,
            ),
            (
                &["top", "namespaces", "--output=yaml", "-w"],
                By::Namespaces,
                TableFormat::Yaml,
                true,
            ),
            (
                &["top", "controllers", "--watch", "-o=json"],
                By::Controllers,
                TableFormat::Json,
                true,
            ),
        ] {
            let Task::Top(options) = parse(words).unwrap().task else {
                panic!("{words:?}");
            };
            let found = (options.by, options.output, options.watch);
            assert_eq!(found, (by, output, watch), "{words:?}");
        }
        assert!(parse(&["top", "pods"]).is_err());
    }
}
