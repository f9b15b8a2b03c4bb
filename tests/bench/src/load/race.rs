//! The race: contenders take turns in the order A-B-B-A, so that neither has the quieter machine,
//! and each run of one is compared with the nearest run of another.

use super::{
    LauncherCreation, LauncherRights, Load, LoadError, bare_loop, ipu_operator, mpi_operator,
};

/// What creates the Pods of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Contender {
    /// mpi-operator and the Job controller, with the launcher created beside its workers, as by
    /// default.
    MpiOperator,
    /// The same with `launcherCreationPolicy: WaitForWorkersReady`.
    MpiOperatorAfterWorkers,
    /// This operator.
    IpuOperator,
    /// The same with `launcher.sharedRights`.
    IpuOperatorSharedRights,
    /// A loop that sends the writes of this operator's last run.
    BareLoop,
}

/// The size of a race.
#[derive(Clone, Debug)]
pub struct RaceOptions {
    /// Jobs of each run.
    pub jobs: usize,
    /// Number of rounds. In each, every contender runs twice.
    pub rounds: usize,
    /// The contenders, in the order of the first half of a round.
    pub contenders: Vec<Contender>,
    /// Whether etcd flushes each write to disk.
    pub fsync: bool,
}

/// The runs of a race, in order.
#[derive(Clone, Debug, Default)]
pub struct Race(pub Vec<(Contender, Load)>);

/// The ratios of two contenders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    /// The median.
    pub median: f64,
    /// The lowest one.
    pub lowest: f64,
    /// The highest one.
    pub highest: f64,
}

/// Runs a race. `finished` is called after each run.
pub async fn race(
    options: &RaceOptions,
    mut finished: impl FnMut(Contender, &Load),
) -> Result<Race, LoadError> {
    let mut race = Race::default();
    let mut last = None;
    for contender in turns(&options.contenders, options.rounds) {
        let (jobs, fsync) = (options.jobs, options.fsync);
        let load = match contender {
            Contender::MpiOperator => {
                mpi_operator(jobs, LauncherCreation::AtStartup, fsync).await?
            }
            Contender::MpiOperatorAfterWorkers => {
                mpi_operator(jobs, LauncherCreation::WaitForWorkersReady, fsync).await?
            }
            Contender::IpuOperator => {
                let (load, objects) = ipu_operator(jobs, LauncherRights::OfJob, fsync).await?;
                last = Some((load.clone(), objects));
                load
            }
            Contender::IpuOperatorSharedRights => {
                ipu_operator(jobs, LauncherRights::Shared, fsync).await?.0
            }
            Contender::BareLoop => {
                let (like, objects) = last.as_ref().ok_or_else(|| {
                    LoadError::Missing("the bare loop must come after ipu-operator".to_owned())
                })?;
                bare_loop(jobs, objects, like, fsync).await?
            }
        };
        finished(contender, &load);
        race.0.push((contender, load));
    }
    Ok(race)
}

/// The order of all runs.
fn turns(contenders: &[Contender], rounds: usize) -> Vec<Contender> {
    let forward = contenders.iter();
    let round = forward.clone().chain(forward.rev()).copied();
    let round: Vec<_> = round.collect();
    round.repeat(rounds)
}

impl Race {
    /// A figure of one contender, relative to that of another: the runs of each half of a round are
    /// compared. `None` if one of them did not run.
    pub fn ratios(
        &self,
        of: Contender,
        to: Contender,
        figure: impl Fn(&Load) -> f64,
    ) -> Option<Ratios> {
        let figures = |wanted| {
            let runs = self.0.iter().filter(move |(found, _)| *found == wanted);
            runs.map(|(_, load)| figure(load))
        };
        let ratios = figures(of).zip(figures(to)).map(|(one, other)| one / other);
        Ratios::of(ratios.collect())
    }

    /// The figures of a contender.
    pub fn figures(&self, of: Contender, figure: impl Fn(&Load) -> f64) -> Option<Ratios> {
        let runs = self.0.iter().filter(|(found, _)| *found == of);
        Ratios::of(runs.map(|(_, load)| figure(load)).collect())
    }
}

impl Ratios {
    /// `None` without a value.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(*values.get(middle.checked_sub(1)?)?, upper)
        } else {
            upper
        };
        Some(Self {
            median,
            lowest: *values.first()?,
            highest: *values.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::Contender::{IpuOperator, MpiOperator};
    use super::*;

    fn load(ms: u64) -> Load {
        Load {
            count: 1,
            took: Duration::from_secs(1),
            writes: BTreeMap::new(),
            api_server: Duration::from_millis(ms),
        }
    }

    #[test]
    fn contenders_take_turns_in_both_orders() {
        let order = turns(&[MpiOperator, IpuOperator], 2);
        let round = [MpiOperator, IpuOperator, IpuOperator, MpiOperator];
        assert_eq!(order, [round, round].concat());
    }

    #[test]
    fn each_run_is_compared_with_its_neighbour() {
        let runs = [
            (MpiOperator, 20),
            (IpuOperator, 30),
            (IpuOperator, 80),
            (MpiOperator, 40),
        ];
        let race = Race(runs.map(|(of, ms)| (of, load(ms))).to_vec());
        let ratios = race.ratios(IpuOperator, MpiOperator, Load::api_server_ms);
        let expected = Ratios {
            median: 1.75,
            lowest: 1.5,
            highest: 2.0,
        };
        assert_eq!(ratios, Some(expected));
        let none = race.ratios(Contender::BareLoop, MpiOperator, Load::rate);
        assert_eq!(none, None);
    }
}
