//! Pure: the jobs of an evaluation: their arrivals, sizes and durations, read from CSV.

mod csv;

use std::sync::Arc;

use crate::controllers::{self, Controller};
use crate::statistics::float;

pub use csv::{JobsError, parse};

/// A job: one partition, or a gang of equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Creation time, in seconds.
    pub arrival: u64,
    /// IPUs of each partition: a power of two.
    pub ipus: u32,
    /// Partitions, which are useful only together.
    pub gang: u32,
    /// Duration with all of its partitions, in seconds.
    pub duration: u64,
}

impl Job {
    /// Returns the IPUs of all its partitions.
    pub fn all_ipus(&self) -> u64 {
        u64::from(self.ipus) * u64::from(self.gang)
    }

    /// Returns its IPU-seconds.
    pub fn work(&self) -> u128 {
        u128::from(self.all_ipus()) * u128::from(self.duration)
    }

    /// Whether empty controllers have capacity for all of its partitions.
    pub fn fits(&self, controllers: &[Controller]) -> bool {
        let each = controllers
            .iter()
            .map(|one| u64::from(one.ipus / self.ipus));
        each.sum::<u64>() >= u64::from(self.gang)
    }
}

/// Returns the IPU-seconds of jobs as a share of what the controllers have while the jobs arrive.
/// `None` if all arrive at once. Jobs that never fit do not count.
pub fn offered_load(jobs: &[Job], controllers: &[Controller]) -> Option<f64> {
    let span = span(jobs)?;
    let capacity = u128::from(controllers::capacity(controllers)) * u128::from(span);
    Some(float(work(jobs, controllers)) / float(capacity))
}

/// Moves the arrivals so that the offered load is this percentage. The order and the proportions of
/// the gaps stay.
pub fn at_load(jobs: &mut [Job], controllers: &[Controller], percent: u32) {
    let Some(span) = span(jobs) else { return };
    let first = jobs.first().map_or(0, |job| job.arrival);
    let capacity = u128::from(controllers::capacity(controllers)) * u128::from(percent.max(1));
    let scaled = work(jobs, controllers) * 100 / capacity.max(1);
    for job in jobs {
        let since = u128::from(job.arrival - first) * scaled / u128::from(span);
        job.arrival = first.saturating_add(u64::try_from(since).unwrap_or(u64::MAX));
    }
}

/// Returns the seconds between the first and the last arrival, if there are any.
fn span(jobs: &[Job]) -> Option<u64> {
    let (first, last) = (jobs.first()?, jobs.last()?);
    Some(last.arrival - first.arrival).filter(|span| *span > 0)
}

fn work(jobs: &[Job], controllers: &[Controller]) -> u128 {
    let fitting = jobs.iter().filter(|job| job.fits(controllers));
    fitting.map(Job::work).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(arrival: u64, ipus: u32, gang: u32) -> Job {
        Job {
            namespace: "a".into(),
            arrival,
            ipus,
            gang,
            duration: 100,
        }
    }

    fn controllers(ipus: &[u32]) -> Vec<Controller> {
        let controllers = ipus.iter().map(|&ipus| Controller {
            name: ipus.to_string(),
            ipus,
        });
        controllers.collect()
    }

    #[test]
    fn a_gang_fits_on_several_controllers() {
        let controllers = controllers(&[16, 8]);
        let cases = [(16, 1, true), (8, 3, true), (8, 4, false), (32, 1, false)];
        for (ipus, gang, expected) in cases {
            let fits = job(0, ipus, gang).fits(&controllers);
            assert_eq!(fits, expected, "{gang} of {ipus}");
        }
    }

    #[test]
    fn arrivals_move_to_the_load() {
        // 1,600 IPU-seconds; the job of 64 IPUs never fits.
        let mut jobs = [job(50, 8, 1), job(60, 64, 1), job(150, 4, 2)];
        let controllers = controllers(&[16]);
        assert_eq!(offered_load(&jobs, &controllers), Some(1.0));
        at_load(&mut jobs, &controllers, 50);
        assert_eq!(offered_load(&jobs, &controllers), Some(0.5));
        let arrivals: Vec<_> = jobs.iter().map(|job| job.arrival).collect();
        assert_eq!(arrivals, [50, 70, 250]);
        assert_eq!(offered_load(&jobs[..1], &controllers), None);
        at_load(&mut jobs[..1], &controllers, 50);
        assert_eq!(jobs[0].arrival, 50);
    }
}
