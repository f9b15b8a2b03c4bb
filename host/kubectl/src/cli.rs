//! The command line of `kubectl ipu`.

pub mod nodes;

use std::str::FromStr;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::aot::Shell;
use ipu_api::dns1123::is_subdomain;
use ipu_dashboard::options::DashboardOptions;
use jiff::SignedDuration;

use crate::connection::ConnectionOptions;
use crate::cordon::{ControllerName, reason};
use crate::goodput::{GoodputBy, Since};
use crate::output::{GoodputFormat, PageFormat, TableFormat};
use crate::top::By;

/// Explains why jobs wait for IPUs, shows who uses them, and cordons and drains V-IPU controllers.
/// It needs nothing but your kubeconfig.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ipu", bin_name = "kubectl ipu", version)]
pub struct Arguments {
    /// The API server and the namespace.
    #[command(flatten)]
    pub connection: ConnectionOptions,
    /// Command to run.
    #[command(subcommand)]
    pub task: Task,
}

/// Commands of the plugin.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Explain why an IPUJob or a Pod waits, and what to do about it.
    Why(WhyOptions),
    /// Show who uses IPUs, and who waits for them.
    Top(TopOptions),
    /// Show where IPU-hours went, by namespace, V-IPU controller or state.
    Goodput(GoodputOptions),
    /// Show the nodes with IPUs, and whether Pods there can use them.
    Nodes(nodes::NodesOptions),
    /// Show each check of the nodes with IPUs, and what to do about those that failed.
    Doctor(nodes::DoctorOptions),
    /// Keep new partitions away from V-IPU controllers. Those on them stay.
    Cordon(CordonOptions),
    /// Allow new partitions on V-IPU controllers again, and end their drain.
    Uncordon(UncordonOptions),
    /// Cordon V-IPU controllers, ask the owners of their partitions to move, and wait until they
    /// have.
    Drain(DrainOptions),
    /// Print a script that completes `kubectl-ipu` in a shell.
    Completion(CompletionOptions),
    /// Serve a page on this machine that shows IPUs, the queue, partitions, policies and goodput.
    Dashboard(DashboardOptions),
    /// Show the versions of this plugin and of the operator.
    Version,
}

/// Options of `uncordon`: the V-IPU controllers.
#[derive(Args, Debug)]
pub struct UncordonOptions {
    /// Names of VIPUControllers, or host:port of V-IPU controllers.
    #[arg(value_name = "CONTROLLER", required = true)]
    pub controllers: Vec<ControllerName>,
}

/// Options of `cordon`: the V-IPU controllers, and the reason.
#[derive(Args, Debug)]
pub struct CordonOptions {
    /// Names of VIPUControllers, or host:port of V-IPU controllers.
    #[arg(value_name = "CONTROLLER", required = true)]
    pub controllers: Vec<ControllerName>,
    /// Reason that the objects and `kubectl ipu why` show. Without it, an existing reason stays.
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub reason: Option<String>,
}

/// Options of `drain`: the V-IPU controllers, the reason, and the longest wait.
#[derive(Args, Debug)]
pub struct DrainOptions {
    /// The V-IPU controllers, and the reason.
    #[command(flatten)]
    pub cordon: CordonOptions,
    /// Wait until no partition of the operator is left on them.
    #[arg(
        long,
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "true|false"
    )]
    pub wait: bool,
    /// Longest wait, such as 30m or 1h30m. 0s: without limit.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = duration)]
    pub timeout: Duration,
}

/// Options of `goodput`: the summed IPU-hours, and their grouping.
#[derive(Args, Debug)]
pub struct GoodputOptions {
    /// Period up to now: hours or days such as 24h or 7d, or all.
    #[arg(long, default_value = "24h", value_name = "24h|7d|all")]
    pub since: Since,
    /// Group the rows by this.
    #[arg(long, value_enum, default_value_t)]
    pub by: GoodputBy,
    /// Print the IPUJobs instead that were created since then and have ended, as CSV for
    /// `ipu-operator policy evaluate`.
    #[arg(long, conflicts_with = "by")]
    pub jobs: bool,
    /// Form of the output. CSV has all details, whatever --by says.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: GoodputFormat,
}

/// Options of `completion`.
#[derive(Args, Debug)]
pub struct CompletionOptions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a duration: give hours, minutes and seconds such as 1h30m or 90s, or 0s for no end"
)]
pub struct DurationError(String);

fn duration(text: &str) -> Result<Duration, DurationError> {
    let parsed = text.parse::<SignedDuration>().ok();
    let parsed = parsed.and_then(|signed| Duration::try_from(signed).ok());
    parsed.ok_or_else(|| DurationError(text.to_owned()))
}

/// Options of `why`: the explained object.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// JOB, or pod/POD.
    #[arg(value_name = "JOB|pod/POD")]
    pub target: Target,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: PageFormat,
    /// Print the page again when its content changes, until the object has ended or is gone, or
    /// until Ctrl-C.
    #[arg(long, short)]
    pub watch: bool,
}

/// Options of `top`: the shown figures.
#[derive(Args, Debug)]
pub struct TopOptions {
    /// Group the rows by this.
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
            assert!(!options.watch, "{word}");
        }
        let Task::Why(options) = parse(&["why", "train", "-w", "-o=json"]).unwrap().task else {
            panic!("train is explained");
        };
        assert!(options.watch && options.output == PageFormat::Json);
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
    fn top_shows_controllers_by_default() {
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

    #[test]
    fn a_drain_waits_for_ever_by_default() {
        let hour = Duration::from_hours(1);
        for (words, reason, wait, timeout) in [
            (&["drain", "a"][..], None, true, Duration::ZERO),
            (
                &["drain", "a", "b:8090", "--reason", "why", "--timeout=1h"],
                Some("why"),
                true,
                hour,
            ),
            (&["drain", "--wait=false", "a"], None, false, Duration::ZERO),
            (&["drain", "--wait", "a"], None, true, Duration::ZERO),
        ] {
            let Task::Drain(options) = parse(words).unwrap().task else {
                panic!("{words:?}");
            };
            assert_eq!(options.cordon.reason.as_deref(), reason, "{words:?}");
            let found = (options.wait, options.timeout);
            assert_eq!(found, (wait, timeout), "{words:?}");
            assert_eq!(options.cordon.controllers[0].0, "a");
        }
        for (words, expected) in [
            (&["drain"][..], "CONTROLLER"),
            (&["cordon"], "CONTROLLER"),
            (&["uncordon", "node/a"], "is neither the name"),
            (&["cordon", "a", "--reason="], "a reason has 1 to 1024"),
            (&["drain", "a", "--timeout=-1s"], "is not a duration"),
            (&["drain", "a", "--timeout=soon"], "is not a duration"),
            (&["goodput", "--since=1y"], "31d at most, or all"),
            (&["goodput", "--jobs", "--by=state"], "cannot be used with"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn goodput_sums_up_a_day_by_namespace_by_default() {
        for (words, since, by, output) in [
            (
                &["goodput"][..],
                Since::Hours(24),
                GoodputBy::Namespace,
                GoodputFormat::Table,
            ),
            (
                &["goodput", "--since", "7d", "--by=state", "-o", "csv"],
                Since::Days(7),
                GoodputBy::State,
                GoodputFormat::Csv,
            ),
        ] {
            let Task::Goodput(options) = parse(words).unwrap().task else {
                panic!("{words:?}");
            };
            let found = (options.since, options.by, options.output);
            assert_eq!(found, (since, by, output), "{words:?}");
            assert!(!options.jobs, "{words:?}");
        }
        let words = ["goodput", "--jobs", "--since=all", "-o=csv"];
        let Task::Goodput(options) = parse(&words).unwrap().task else {
            panic!("{words:?}");
        };
        assert!(options.jobs);
    }
}
