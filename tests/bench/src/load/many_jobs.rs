//! More jobs at once than the free capacity of many V-IPU controllers: each runs once, on its own
//! partition, and nothing remains.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cluster::wait::{Seen, until};
use ipu_api::ipupartition::IPUPartition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};
use vipu_simulator::Simulator;
use vipu_simulator::faults::Method;

use super::fake_node::end_all;
use super::product::{Product, Setup, job};
use super::submit::{jobs, submit};
use super::{LoadError, PATIENCE, api};

/// V-IPU controllers that serve them.
const CONTROLLERS: usize = 16;

/// IPUs of each. Together they have capacity for 256 jobs at a time.
const IPUS: u32 = 32;

/// The result of many jobs at once.
#[derive(Clone, Debug)]
pub struct ManyJobs {
    /// Number of jobs.
    pub jobs: usize,
    /// From the first submission until the last one had completed.
    pub completed: Duration,
    /// From then until all their objects were gone.
    pub gone: Duration,
    /// Partitions that each controller made.
    pub made: Vec<usize>,
}

/// Submits `count` jobs at once, has each launcher end as soon as it runs, and deletes the jobs.
///
/// # Errors
/// Also if a partition was created twice or not at all, or remains.
pub async fn many_jobs(count: usize) -> Result<ManyJobs, LoadError> {
    let setup = Setup {
        controllers: CONTROLLERS,
        ipus: IPUS,
        ..Setup::default()
    };
    let product = Product::start_with(setup).await?;
    let begun = Instant::now();
    let of_jobs = jobs(&product.client, "graphcore.ai", "v1alpha1", "IPUJob");
    submit(&of_jobs, count, passing).await?;
    once_completed(&product, &of_jobs, count).await?;
    let completed = begun.elapsed();
    let begun = Instant::now();
    delete_all(&product, &of_jobs).await?;
    let made: Vec<usize> = product.simulators.iter().map(made_on).collect();
    if made.iter().sum::<usize>() != count {
        let what = format!("{count} jobs needed one partition each, and there were {made:?}");
        return Err(LoadError::Missing(what));
    }
    Ok(ManyJobs {
        jobs: count,
        completed,
        gone: begun.elapsed(),
        made,
    })
}

/// A job that releases its partition when it has completed. By default, its workers continue to
/// run, and the job keeps the partition until it is deleted.
fn passing(number: usize) -> Value {
    let mut job = job(&format!("job-{number}"));
    job["spec"]["cleanPodPolicy"] = json!("All");
    job
}

async fn once_completed(
    product: &Product,
    of_jobs: &Api<DynamicObject>,
    count: usize,
) -> Result<(), LoadError> {
    until(format!("{count} jobs to complete"), PATIENCE, async || {
        end_all(&product.client, "-launcher").await?;
        let found = of_jobs.list(&ListParams::default()).await;
        let found = found.map_err(api("list the jobs"))?.items;
        let completed = found
            .iter()
            .filter(|job| job.data["status"]["launcherStatus"] == "Completed");
        Ok::<_, LoadError>(Seen::when(completed.count(), |now| *now >= count))
    })
    .await?;
    Ok(())
}

/// Deletes all jobs, and waits until none of their objects and partitions is left.
async fn delete_all(product: &Product, of_jobs: &Api<DynamicObject>) -> Result<(), LoadError> {
    let all = ListParams::default();
    let deleted = of_jobs
        .delete_collection(&DeleteParams::default(), &all)
        .await;
    deleted.map_err(api("delete the jobs"))?;
    let partitions: Api<IPUPartition> = Api::all(product.client.clone());
    until("no object of the jobs to be left", PATIENCE, async || {
        let left = (
            of_jobs.list(&all).await?.items.len(),
            partitions.list(&all).await?.items.len(),
            product.simulators.iter().map(held_by).sum::<usize>(),
        );
        Ok::<_, kube::Error>(Seen::when(left, |left| *left == (0, 0, 0)))
    })
    .await?;
    Ok(())
}

/// The different partitions that a controller created. As nothing remains, each of them was
/// removed. It may have refused other requests for lack of capacity.
fn made_on(simulator: &Simulator) -> usize {
    let calls = simulator.server.calls(0).into_iter();
    let ids = calls
        .filter(|call| call.method == Method::RemovePartition)
        .map(|call| call.partition);
    ids.collect::<BTreeSet<_>>().len()
}

fn held_by(simulator: &Simulator) -> usize {
    simulator
        .server
        .with(|world, now| world.pod.partitions(now).count())
}
