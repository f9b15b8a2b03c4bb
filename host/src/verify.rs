//! `ipu-operator verify`: runs one small job to its end, or reports why it does not complete.

mod job;

use std::io::Write;
use std::time::Duration;

use clap::Args;
use ipu_api::ipujob::IPUJob;
use ipu_api::ipupartition::IPUPartition;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout_at};

use self::job::Progress;

/// Period of the reads.
const PAUSE: Duration = Duration::from_secs(1);

/// Time limit of the job's deletion.
const DELETION_TIMEOUT: Duration = Duration::from_mins(1);

/// Options of the command.
#[derive(Args, Clone, Debug)]
pub struct VerifyOptions {
    /// Namespace of the job.
    #[arg(long, env = "IPU_OPERATOR_NAMESPACE")]
    pub namespace: String,
    /// Name of the job; a job of this name from an earlier run is deleted.
    #[arg(long, default_value = "ipu-operator-verify")]
    pub name: String,
    /// Image of the operator, in which the job runs, too.
    #[arg(long)]
    pub image: String,
    /// Pull policy of that image: Always, IfNotPresent or Never.
    #[arg(long)]
    pub image_pull_policy: Option<String>,
    /// Secrets to pull it with.
    #[arg(long)]
    pub image_pull_secret: Vec<String>,
    /// IPUs of the job's partition.
    #[arg(long, default_value_t = 1)]
    pub ipus: u32,
    /// Seconds that the job may take.
    #[arg(long, default_value_t = 120)]
    pub timeout_seconds: u64,
}

/// Failure of the check.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The job was not accepted: the webhooks refuse it or do not answer, or the right is missing.
    #[error("failed to {action} the IPUJob {name}")]
    Job {
        /// The attempted action.
        action: &'static str,
        /// Name of the job.
        name: String,
        /// Error of the API server.
        #[source]
        source: Box<kube::Error>,
    },
    /// The job failed.
    #[error("the IPUJob {name} is Failed: {why}")]
    Failed {
        /// Name of the job.
        name: String,
        /// Its last message.
        why: String,
    },
    /// The job did not complete in time.
    #[error("the IPUJob {name} is not Completed after {seconds} s: {why}")]
    Late {
        /// Name of the job.
        name: String,
        /// The waiting time.
        seconds: u64,
        /// The obstacle.
        why: String,
    },
    /// The job was deleted and still exists.
    #[error(
        "the IPUJob {name} is still there {seconds} s after its deletion; does the controller run?"
    )]
    Left {
        /// Name of the job.
        name: String,
        /// The waiting time.
        seconds: u64,
    },
    /// The progress cannot be printed.
    #[error("failed to write to standard output")]
    Output(#[source] std::io::Error),
}

/// Runs the job, and deletes it in any case. Prints a line to `out` for each change.
pub async fn run(
    client: Client,
    options: &VerifyOptions,
    out: &mut impl Write,
) -> Result<(), VerifyError> {
    let verification = Verification {
        jobs: Api::namespaced(client.clone(), &options.namespace),
        partitions: Api::all(client),
        options,
    };
    verification.remove().await?;
    let ended = verification.run(out).await;
    let removed = verification.remove().await;
    ended.and(removed)?;
    let done = "the job ran, and its partition was released";
    writeln!(out, "{done}").map_err(VerifyError::Output)
}

struct Verification<'a> {
    jobs: Api<IPUJob>,
    partitions: Api<IPUPartition>,
    options: &'a VerifyOptions,
}

impl Verification<'_> {
    async fn run(&self, out: &mut impl Write) -> Result<(), VerifyError> {
        let manifest = job::manifest(self.options);
        let created = self.jobs.create(&PostParams::default(), &manifest).await;
        created.map_err(|source| self.failed("create", source))?;
        let patience = Duration::from_secs(self.options.timeout_seconds);
        let (deadline, mut printed) = (Instant::now() + patience, String::new());
        loop {
            let row = match self.progress().await? {
                Progress::Completed => return Ok(()),
                Progress::Failed(why) => {
                    let name = self.options.name.clone();
                    return Err(VerifyError::Failed { name, why });
                }
                Progress::GoesOn(row) => row,
            };
            if row != printed {
                writeln!(out, "{row}").map_err(VerifyError::Output)?;
                printed = row;
            }
            if Instant::now() >= deadline {
                return Err(VerifyError::Late {
                    name: self.options.name.clone(),
                    seconds: self.options.timeout_seconds,
                    why: printed,
                });
            }
            sleep(PAUSE).await;
        }
    }

    async fn progress(&self) -> Result<Progress, VerifyError> {
        let found = self.jobs.get(&self.options.name).await;
        let found = found.map_err(|source| self.failed("read", source))?;
        let uid = found.uid().unwrap_or_default();
        let partitions = self.partitions.list(&ListParams::default()).await;
        let partitions =
            partitions.map_err(|source| self.failed("read the partitions of", source))?;
        Ok(job::progress(
            &found,
            partitions
                .iter()
                .filter(|partition| partition.spec.owner.uid == uid),
        ))
    }

    /// Deletes the job and waits until it is gone.
    async fn remove(&self) -> Result<(), VerifyError> {
        let name = &self.options.name;
        match self.jobs.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(source) => return Err(self.failed("delete", source)),
        }
        let gone = async {
            loop {
                let found = self.jobs.get_opt(name).await;
                if found
                    .map_err(|source| self.failed("read", source))?
                    .is_none()
                {
                    return Ok(());
                }
                sleep(PAUSE).await;
            }
        };
        let seconds = DELETION_TIMEOUT.as_secs();
        let late = |_| VerifyError::Left {
            name: name.clone(),
            seconds,
        };
        timeout_at(Instant::now() + DELETION_TIMEOUT, gone)
            .await
            .map_err(late)?
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> VerifyError {
        VerifyError::Job {
            action,
            name: self.options.name.clone(),
            source: Box::new(source),
        }
    }
}
