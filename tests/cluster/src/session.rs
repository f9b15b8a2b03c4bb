//! Work on a cluster that ends with the work: when it is done, when it fails, and when the user
//! stops it.

use crate::{
    interrupt,
    lifecycle::{self, ClusterError},
    progress::Progress,
    settings::Settings,
};

/// Does the work, then ends the cluster. Returns `None` if a signal stopped the work.
///
/// # Errors
/// The error of the work, which explains more than an error of the end.
pub async fn run<T, E: From<ClusterError>>(
    settings: &Settings,
    progress: &Progress,
    work: impl Future<Output = Result<T, E>>,
) -> Result<Option<T>, E> {
    let done = interrupt::unless(work).await.transpose();
    interrupt::ending();
    progress.stage("end the cluster");
    match (done, lifecycle::down(settings, progress)) {
        (Ok(done), Ok(())) => Ok(done),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), ended) => {
            if let Err(left) = ended {
                eprintln!("harness: {left}");
            }
            Err(error)
        }
    }
}
