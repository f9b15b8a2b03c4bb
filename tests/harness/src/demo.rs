//! Runs three real manifests from `kubectl apply` to Completed, shows each step, and checks it.
//!
//! The checks read typed objects of the API server and the V-IPU controllers' own lists. The text
//! that is shown is the output of kubectl, because users see that output.

mod cleanup;
mod facts;
mod kubectl;

use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::progress::Progress;
use cluster::wait::WaitedTooLong;
use kube::Client;

pub use self::cleanup::{CleanupError, Controller, none_left, partitions_of};
pub use self::facts::{Facts, JobFact};
pub use self::kubectl::{Kubectl, KubectlError};

/// Longest time from apply to the end of a job, on a busy machine.
const JOB_PATIENCE: Duration = Duration::from_mins(3);

/// A cluster with the operator installed.
pub struct Operated {
    /// A client with the rights of an administrator.
    pub client: Client,
    /// The kubectl of this run.
    pub kubectl: Kubectl,
    /// The top folder of the repository.
    pub repository: PathBuf,
    /// Namespace and name of the release: `ipu-operator` in the demo.
    pub release_namespace: String,
    /// The Service of the V-IPU proxy.
    pub proxy_service: String,
    /// The simulated V-IPU controllers, in the order of the operator's list.
    pub controllers: Vec<Controller>,
}

/// An error of the demo.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// kubectl failed.
    #[error(transparent)]
    Kubectl(#[from] KubectlError),
    /// A condition was not met in time.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// A check failed.
    #[error("{0}")]
    Check(String),
    /// Partitions remain on a controller.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
}

/// The jobs of the demo, by their files in `examples/`.
const SINGLE: &str = "01-single-worker.yaml";
const PARALLEL: &str = "02-parallel.yaml";
const LARGE: &str = "03-large.yaml";
const BAD: &str = "bad/not-a-power-of-two.yaml";

/// Runs the whole demo on a cluster with the operator installed. Returns the first error.
pub async fn run(operated: &Operated, progress: &Progress) -> Result<(), DemoError> {
    let facts = Facts::new(operated);
    let examples = operated.repository.join("examples");
    progress.stage("run a single and a parallel job");
    show_stats(operated, progress, "IPUs before").await?;
    single_and_parallel(operated, &facts, progress, &examples).await?;
    progress.stage("run a large job");
    large(operated, &facts, progress, &examples).await?;
    show_jobs(operated, progress).await?;
    progress.stage("refuse a bad job, delete the others");
    refused(operated, progress, &examples).await?;
    leave_nothing(operated, &facts, progress, &examples).await
}

async fn single_and_parallel(
    operated: &Operated,
    facts: &Facts<'_>,
    progress: &Progress,
    examples: &Path,
) -> Result<(), DemoError> {
    let mut jobs = Vec::new();
    for file in [SINGLE, PARALLEL] {
        let path = examples.join(file);
        let applied = progress
            .wait(
                &format!("kubectl apply -f examples/{file}"),
                operated.kubectl.apply(&path),
            )
            .await?;
        show(progress, "the API server says", &applied);
        jobs.push(JobFact::of_file(&path)?);
    }
    progress
        .wait(
            "the parallel job's launcher runs",
            facts.launcher_started(&jobs[1], JOB_PATIENCE),
        )
        .await?;
    let table = operated
        .kubectl
        .run(&["get", "ipujobs,pods,ipupartitions", "-o", "wide"])
        .await?;
    show(
        progress,
        "kubectl get ipujobs,pods,ipupartitions -o wide",
        &table,
    );
    show_stats(operated, progress, "IPUs while they run").await?;
    for job in &jobs {
        progress
            .wait(
                &format!("{} is Completed", job.name),
                facts.completed(job, JOB_PATIENCE),
            )
            .await?;
    }
    let log = operated
        .kubectl
        .run(&["logs", &format!("{}-launcher", jobs[1].name)])
        .await?;
    show(
        progress,
        &format!("kubectl logs {}-launcher", jobs[1].name),
        &log,
    );
    facts.ranks_ran_on_their_workers(&jobs[1], &log)
}

async fn large(
    operated: &Operated,
    facts: &Facts<'_>,
    progress: &Progress,
    examples: &Path,
) -> Result<(), DemoError> {
    let path = examples.join(LARGE);
    let job = JobFact::of_file(&path)?;
    let applied = progress
        .wait(
            &format!("kubectl apply -f examples/{LARGE}"),
            operated.kubectl.apply(&path),
        )
        .await?;
    show(progress, "the API server says", &applied);
    let (controller, node) = progress
        .wait(
            &format!("{} has its partition and its Pod", job.name),
            facts.placed(&job, JOB_PATIENCE),
        )
        .await?;
    let second = &operated.controllers[1];
    if controller != second.address || node != second.node {
        return Err(DemoError::Check(format!(
            "{} was placed on {controller} and {node}, not on {} and {}",
            job.name, second.address, second.node
        )));
    }
    show(
        progress,
        "the serial walk passed over the first controller",
        &format!("{}: partition on {controller}, Pod on {node}", job.name),
    );
    progress
        .wait(
            &format!("{} is Completed", job.name),
            facts.completed(&job, JOB_PATIENCE),
        )
        .await
}

async fn show_jobs(operated: &Operated, progress: &Progress) -> Result<(), DemoError> {
    let table = operated.kubectl.run(&["get", "ipujobs"]).await?;
    facts::six_columns(&table)?;
    show(progress, "kubectl get ipujobs", &table);
    let events = operated
        .kubectl
        .run(&["events", "--types=Normal,Warning", "--all-namespaces=false"])
        .await?;
    show(progress, "kubectl events", &events);
    Ok(())
}

async fn refused(
    operated: &Operated,
    progress: &Progress,
    examples: &Path,
) -> Result<(), DemoError> {
    let path = examples.join(BAD);
    let answer = progress
        .wait(
            &format!("kubectl apply -f examples/{BAD} is refused"),
            operated.kubectl.apply_refused(&path),
        )
        .await?;
    for word in ["spec.ipusPerJobInstance", "\"3\"", "power of two"] {
        if !answer.contains(word) {
            return Err(DemoError::Check(format!(
                "the refusal of examples/{BAD} does not name {word}: {answer}"
            )));
        }
    }
    show(
        progress,
        "the refusal names the field, the value and the rule",
        &answer,
    );
    Ok(())
}

async fn leave_nothing(
    operated: &Operated,
    facts: &Facts<'_>,
    progress: &Progress,
    examples: &Path,
) -> Result<(), DemoError> {
    for file in [SINGLE, PARALLEL, LARGE] {
        let path = examples.join(file);
        progress
            .wait(
                &format!("kubectl delete -f examples/{file}"),
                operated.kubectl.delete(&path),
            )
            .await?;
    }
    progress
        .wait(
            "no IPUJob, no Pod and no IPUPartition is left in the API",
            facts.nothing_in_the_api(JOB_PATIENCE),
        )
        .await?;
    for controller in &operated.controllers {
        progress
            .wait(
                &format!("{} lists no partition", controller.name),
                cleanup::none_left(controller),
            )
            .await?;
    }
    show_stats(operated, progress, "IPUs after").await
}

/// Prints a title and the block of output below it.
fn show(progress: &Progress, title: &str, text: &str) {
    println!("[{:7.1} s] {title}", progress.elapsed().as_secs_f64());
    for line in text.trim_end().lines() {
        println!("    {line}");
    }
}

async fn show_stats(
    operated: &Operated,
    progress: &Progress,
    title: &str,
) -> Result<(), DemoError> {
    let path = format!(
        "/api/v1/namespaces/{}/services/{}:80/proxy/stats",
        operated.release_namespace, operated.proxy_service
    );
    let stats = operated.kubectl.run(&["get", "--raw", &path]).await?;
    show(progress, &format!("{title} (/stats)"), &stats);
    Ok(())
}
