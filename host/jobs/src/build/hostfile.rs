//! Pure: the list of the workers of a job for mpirun, as `ipu-agent install` writes it.

use std::fmt::Write as _;

use ipu_api::naming;

use crate::validate::ValidJob;

/// End of a line. One slot each: `-np <workers>` puts one rank on each GCD.
const SLOTS: &str = " slots=1";

/// Returns the list for a number of workers.
pub fn hostfile(job: &str, workers: u32) -> String {
    (0..workers).fold(String::new(), |mut text, index| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{SLOTS}", host(job, index));
        text
    })
}

/// Returns the number of workers of a job.
pub fn workers(job: &ValidJob) -> u32 {
    job.instances.saturating_mul(job.size.workers)
}

/// Returns the maximum length of the list of a job, in bytes.
pub fn max_length(job: &ValidJob) -> usize {
    let workers = workers(job);
    let longest = host(&job.name, workers).len() + SLOTS.len() + 1;
    let lines = usize::try_from(workers).unwrap_or(usize::MAX);
    lines.saturating_mul(longest)
}

/// Returns the name of a worker, which has no dots.
fn host(job: &str, index: u32) -> String {
    naming::worker(&job.replace('.', "-"), index)
}
