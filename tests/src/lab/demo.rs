//! The whole of `make demo`: start everything, walk through [`crate::demo`], end everything.

use super::{
    cluster::{self, ClusterError},
    operator::{self, OperatorError},
    post_mortem,
    progress::Progress,
    settings::Settings,
};
use crate::demo;

/// Why the demo did not show what it should.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The cluster or the operator could not be started.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// Something was not seen.
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    /// The cluster could not be ended.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Runs the whole demo. The cluster is ended in any case; logs of a failure stay in the run folder.
pub async fn run(settings: &Settings, progress: &Progress) -> Result<(), DemoError> {
    let shown = show(settings, progress).await;
    if shown.is_err() && settings.logs().exists() {
        eprintln!(
            "the logs of the cluster are in {}",
            settings.logs().display()
        );
    }
    let ended = cluster::down(settings, progress);
    shown?;
    Ok(ended?)
}

async fn show(settings: &Settings, progress: &Progress) -> Result<(), DemoError> {
    let installed = operator::up(settings, progress).await?;
    let operated = installed.operated().await?;
    let shown = demo::run(&operated, progress).await;
    if shown.is_err() {
        post_mortem::write(&installed).await;
    }
    Ok(shown?)
}
