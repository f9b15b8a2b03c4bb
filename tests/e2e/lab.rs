//! The cluster that all trials share, and what they must not do at the same time.

use std::future::ready;
use std::sync::Arc;

use cluster::images::openmpi::{self, OpenMpi};
use cluster::interrupt;
use cluster::lifecycle;
use cluster::post_mortem;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use harness::demo::Operated;
use harness::operator;
use harness::operator::helm::Release;
use libtest_mimic::Failed;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::managers::Managers;
use crate::partition_ids::PartitionIds;

/// The cluster with the operator installed.
pub(crate) struct Lab {
    pub(crate) runtime: Runtime,
    /// The folders that the cluster uses.
    pub(crate) settings: Settings,
    /// The progress of the run.
    pub(crate) progress: Progress,
    /// The programs of the cluster.
    pub(crate) tools: Tools,
    /// The installed operator, as the demo uses it.
    pub(crate) operated: Operated,
    /// The operator's Helm release.
    pub(crate) release: Release,
    /// The ids that the operator has given to V-IPU partitions.
    pub(crate) partition_ids: PartitionIds,
    /// The managers that are installed now.
    pub(crate) managers: Mutex<Managers>,
    /// The images of jobs that the nodes have.
    images: Mutex<Vec<OpenMpi>>,
    /// Held while the logs of a failure are saved, which have one folder.
    failure: tokio::sync::Mutex<()>,
}

impl Lab {
    /// Starts the cluster and installs the operator. Stops everything again if that fails.
    pub(crate) fn set_up() -> anyhow::Result<Arc<Self>> {
        let runtime = Runtime::new()?;
        let settings = Settings::from_env()?;
        let progress = Progress::start();
        let begun = runtime.block_on(interrupt::unless(async {
            let installed = operator::up(&settings, &progress).await?;
            let operated = post_mortem::after(&settings, installed.operated()).await?;
            let partition_ids = PartitionIds::follow(operated.client.clone());
            anyhow::Ok((installed, operated, partition_ids))
        }));
        match begun.unwrap_or_else(|| Err(anyhow::anyhow!("it was interrupted"))) {
            Ok((installed, operated, partition_ids)) => Ok(Arc::new(Self {
                runtime,
                settings,
                progress,
                tools: installed.cluster.tools,
                operated,
                release: installed.release,
                partition_ids,
                managers: Mutex::default(),
                // The installation has brought this one to the nodes.
                images: Mutex::new(vec![OpenMpi::Four]),
                failure: tokio::sync::Mutex::default(),
            })),
            Err(error) => {
                interrupt::ending();
                lifecycle::down(&settings, &progress)?;
                Err(error)
            }
        }
    }

    /// Stops the cluster. The error names the remaining processes and files.
    pub(crate) fn tear_down(&self) -> anyhow::Result<()> {
        interrupt::ending();
        Ok(lifecycle::down(&self.settings, &self.progress)?)
    }

    /// Brings the image of jobs with this Open MPI to the nodes, once.
    pub(crate) fn import(&self, version: OpenMpi) -> Result<(), Failed> {
        let mut images = self.images.lock();
        if images.contains(&version) {
            return Ok(());
        }
        let image = openmpi::ensure(&self.settings, &self.tools, &self.progress, version)?;
        lifecycle::import(&self.settings.run, &self.tools, &[image])?;
        images.push(version);
        Ok(())
    }

    /// Prints a failure, and saves the logs that explain it.
    pub(crate) async fn explain(&self, failure: &Failed) {
        let _turn = self.failure.lock().await;
        let failed = ready(Err::<(), _>(failure));
        // It returns the failure, which the trial reports.
        let _ = post_mortem::after(&self.settings, failed).await;
        // The test runner prints it only after the last trial.
        eprintln!("\n{}", failure.message().unwrap_or("it failed"));
    }
}
