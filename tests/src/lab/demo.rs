//! The whole of `make demo`: start everything, walk through [`crate::demo`], end everything.

use super::{
    cluster::ClusterError,
    operator::{self, OperatorError},
    post_mortem,
    progress::Progress,
    session,
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
    let shown = session::run(settings, progress, Box::pin(show(settings, progress))).await?;
    if shown.is_some() {
        progress.summary();
    }
    Ok(())
}

async fn show(settings: &Settings, progress: &Progress) -> Result<(), DemoError> {
    let installed = operator::up(settings, progress).await?;
    post_mortem::after(settings, async {
        let operated = installed.operated().await?;
        Ok(demo::run(&operated, progress).await?)
    })
    .await
}
