//! `ipu-agent`: the part of the operator that runs inside the containers of a job.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use ipu_agent::exec::{self, ExecRequest, KnownPod};
use ipu_agent::host_name::{self, NamedCommand};
use ipu_agent::{FAILED, hold, idle, install, names, run};
use ipu_text::explain;

/// Runs inside the containers of an IPUJob.
#[derive(Parser)]
#[command(name = "ipu-agent", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Copy this program to <DIR>/ipu-agent and make sure that it runs there. With the workers of a
    /// job, write <DIR>/kubeexec.sh and <DIR>/hostfile for mpirun too.
    Install {
        /// A folder that other containers of the Pod mount.
        dir: PathBuf,
        /// Name of the job whose workers mpirun reaches.
        #[arg(long, requires = "workers")]
        job: Option<String>,
        /// Its number of workers.
        #[arg(long, requires = "job")]
        workers: Option<u32>,
        #[command(flatten)]
        known: Known,
    },
    /// Be PID 1 of a container: reap, pass the signal that stops it on, and end.
    Idle {
        /// Seconds that the other processes have to end after a signal.
        #[arg(long, default_value_t = 10)]
        grace_seconds: u64,
        /// Seconds after which it ends by itself; missing: never.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: Option<u32>,
        /// The container has no PID namespace of its own: pass signals on to the processes in its
        /// mount namespace.
        #[arg(long)]
        shares_processes: bool,
    },
    /// Hold a command back until a file releases it, then become this command. With the files name
    /// and uid of this Pod beside it, an annotation of the Pod may release the command earlier.
    Hold {
        /// File in which the kubelet reads why the container has ended.
        #[arg(long, default_value = "/dev/termination-log")]
        termination_log: PathBuf,
        /// The file. It contains `held` until the release.
        file: PathBuf,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command in another Pod with this program's stdin, stdout, stderr and exit code.
    /// The agent's own failures end with 255, as those of ssh do.
    Exec {
        /// Namespace of the Pod, where it is not this Pod's own.
        #[arg(short, long)]
        namespace: Option<String>,
        /// Name of the job whose workers can have their names in its hostfile here.
        #[arg(long)]
        job: Option<String>,
        #[command(flatten)]
        known: Known,
        /// Name of the Pod.
        pod: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Become a command that the agent of a launcher starts in this container.
    Run {
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command with another host name than that of the node, if this container may.
    HostName {
        /// Address of this container, to which programs resolve the name
        /// [default: that on the way to the API server].
        #[arg(long)]
        address: Option<String>,
        /// The host name.
        name: String,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// What a launcher knows of its workers if it cannot read their Pods.
#[derive(clap::Args)]
struct Known {
    /// The container of a worker in which commands run. The agent then reads no Pod.
    #[arg(long)]
    container: Option<String>,
    /// The workers have the host names of their nodes.
    #[arg(long, requires = "container")]
    host_network: bool,
}

impl Known {
    fn pod(self) -> Option<KnownPod> {
        let uses_host_network = self.host_network;
        let known = |container| KnownPod {
            container,
            uses_host_network,
        };
        self.container.map(known)
    }
}

fn main() -> ExitCode {
    // For connections to the API server. An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match perform(Arguments::parse().task) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("ipu-agent: {}", explain(error.as_ref()));
            ExitCode::from(FAILED)
        }
    }
}

fn perform(task: Task) -> Result<u8, Box<dyn std::error::Error>> {
    match task {
        Task::Install {
            dir,
            job,
            workers,
            known,
        } => {
            let known = known.pod();
            let workers =
                job.zip(workers)
                    .map(|(job, count)| install::Workers { job, count, known });
            install::install(&dir, workers.as_ref())?;
            Ok(0)
        }
        Task::Idle {
            grace_seconds,
            seconds,
            shares_processes,
        } => {
            idle::idle(
                Duration::from_secs(grace_seconds),
                seconds,
                shares_processes,
            )?;
            Ok(0)
        }
        Task::Hold {
            termination_log,
            file,
            command,
        } => Ok(hold::hold(&file, &command, &termination_log)?),
        Task::Exec {
            namespace,
            job,
            known,
            pod,
            command,
        } => Ok(exec::run(&ExecRequest {
            pod: job.map_or_else(|| pod.clone(), |job| names::pod(&job, &pod)),
            namespace,
            command,
            agent: std::env::current_exe().ok(),
            known: known.pod(),
        })?),
        Task::Run { command } => match run::exec(&command)? {},
        Task::HostName {
            address,
            name,
            command,
        } => match host_name::exec(&NamedCommand {
            name,
            address,
            command,
        })? {},
    }
}
