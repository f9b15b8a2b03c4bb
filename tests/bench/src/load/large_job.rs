//! Measures jobs of many workers, one after the other: how long the control plane takes to create
//! and start them.

use std::time::{Duration, Instant};

use cluster::wait::{Seen, until};
use kube::api::{Api, DeleteParams, DynamicObject};
use serde_json::json;

use super::product::{Product, Setup, job};
use super::submit::{jobs, submit};
use super::{LoadError, PATIENCE, api};

/// Workers under one partition: as many as it may have IPUs.
const OF_A_PARTITION: usize = 64;

/// V-IPU controllers, each with capacity for one partition.
const CONTROLLERS: usize = 4;

/// Duration of one job.
#[derive(Clone, Debug)]
pub struct LargeJob {
    /// Number of its workers, beside its launcher.
    pub workers: usize,
    /// From its submission until all worker Pods were made.
    pub made: Duration,
    /// From its submission until its status says that it runs. This includes the time of the fake
    /// node, which reports that each Pod runs.
    pub running: Duration,
}

/// Runs a job of each size, in multiples of 64 workers up to 256, on an otherwise idle operator.
pub async fn large_jobs(sizes: &[usize]) -> Result<Vec<LargeJob>, LoadError> {
    let ipus = u32::try_from(OF_A_PARTITION).unwrap_or(u32::MAX);
    let setup = Setup {
        controllers: CONTROLLERS,
        ipus,
        ..Setup::default()
    };
    let product = Product::start_with(setup).await?;
    let mut measured = Vec::new();
    let mut pods = 0;
    for workers in sizes {
        let begun = Instant::now();
        let of_jobs = jobs(&product.client, "graphcore.ai", "v1alpha1", "IPUJob");
        submit(&of_jobs, 1, |_| large(*workers)).await?;
        product.node.once_made(pods + workers, PATIENCE).await?;
        let made = begun.elapsed();
        once_running(&of_jobs, *workers).await?;
        measured.push(LargeJob {
            workers: *workers,
            made,
            running: begun.elapsed(),
        });
        pods += workers + 1;
        delete(&of_jobs, *workers).await?;
    }
    Ok(measured)
}

fn name(workers: usize) -> String {
    format!("large-{workers}")
}

fn large(workers: usize) -> serde_json::Value {
    let mut job = job(&name(workers));
    job["spec"]["jobInstances"] = json!(workers / OF_A_PARTITION);
    job["spec"]["ipusPerJobInstance"] = json!(OF_A_PARTITION.to_string());
    job["spec"]["workersPerJobInstance"] = json!(OF_A_PARTITION.to_string());
    job
}

async fn once_running(of_jobs: &Api<DynamicObject>, workers: usize) -> Result<(), LoadError> {
    until(format!("{} to run", name(workers)), PATIENCE, async || {
        let found = of_jobs.get(&name(workers)).await?;
        let state = found.data["status"]["launcherStatus"].clone();
        Ok::<_, kube::Error>(Seen::when(state, |state| state == "Running"))
    })
    .await?;
    Ok(())
}

async fn delete(of_jobs: &Api<DynamicObject>, workers: usize) -> Result<(), LoadError> {
    let deleted = of_jobs
        .delete(&name(workers), &DeleteParams::default())
        .await;
    deleted.map_err(api("delete a job"))?;
    until(format!("{} to go", name(workers)), PATIENCE, async || {
        let found = of_jobs.get_opt(&name(workers)).await?;
        Ok::<_, kube::Error>(Seen::when(found.is_some(), |is_there| !is_there))
    })
    .await?;
    Ok(())
}
