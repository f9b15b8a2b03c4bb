//! Pure: how long requests take without load and under load, and which part of the delay is the
//! operator's.

use std::fmt::{Display, Formatter, Result as Formatted};
use std::time::Duration;

/// The percentile that is bounded on a machine that does nothing else. Of about sixty requests, the
/// longest is the one that ran while the machine was busiest. It depends on the scheduler more than
/// on the operator.
pub const HIGH: usize = 95;

/// The percentile that is bounded on any machine: one that is slow finishes few requests.
pub const MEDIAN: usize = 50;

/// The shown percentiles. The last one is the maximum.
const SHOWN: [usize; 3] = [MEDIAN, HIGH, 100];

/// Durations of one kind of request.
#[derive(Clone, Debug, Default)]
pub struct Durations(Vec<Duration>);

/// The durations of a period.
#[derive(Clone, Debug)]
pub struct Measured<const REQUESTS: usize, const WITNESSES: usize> {
    /// Requests that the operator answers or takes part in.
    pub requests: [Durations; REQUESTS],
    /// Requests to servers on the same machine that receive no load (the witnesses).
    pub witnesses: [Durations; WITNESSES],
}

/// Two measurements, one without load and one under load.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a, const REQUESTS: usize, const WITNESSES: usize> {
    /// Names of the requests.
    pub requests: [&'a str; REQUESTS],
    /// Names of the witnesses.
    pub witnesses: [&'a str; WITNESSES],
    /// Without load.
    pub quiet: &'a Measured<REQUESTS, WITNESSES>,
    /// Under load.
    pub loaded: &'a Measured<REQUESTS, WITNESSES>,
}

impl Durations {
    /// Adds the duration of one request.
    pub fn add(&mut self, duration: Duration) {
        let place = self.0.partition_point(|other| *other <= duration);
        self.0.insert(place, duration);
    }

    /// The shortest duration that this percentage of requests did not exceed. `None` if there is no
    /// request.
    fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.max(1) - 1).copied()
    }
}

impl Display for Durations {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Formatted {
        let shown = SHOWN.map(|percent| self.percentile(percent).unwrap_or_default());
        let [median, high, longest] = shown;
        write!(
            formatter,
            "{} | {median:.1?}, {high:.1?}, {longest:.1?}",
            self.0.len()
        )
    }
}

impl<const REQUESTS: usize, const WITNESSES: usize> Default for Measured<REQUESTS, WITNESSES> {
    fn default() -> Self {
        Self {
            requests: std::array::from_fn(|_| Durations::default()),
            witnesses: std::array::from_fn(|_| Durations::default()),
        }
    }
}

/// The time in which this many requests of the load end, if `ended` of them ended in `during`.
/// `None` if none ended.
pub fn time_of(requests: u32, ended: u64, during: Duration) -> Option<Duration> {
    let ended = u32::try_from(ended).unwrap_or(u32::MAX);
    during.checked_mul(requests)?.checked_div(ended)
}

impl<const REQUESTS: usize, const WITNESSES: usize> Comparison<'_, REQUESTS, WITNESSES> {
    /// Requests to whose percentile the load added more than `allowed` plus what it added to that
    /// of the slowest witness. `None` if a measurement is missing.
    pub fn exceeding(&self, percent: usize, allowed: Duration) -> Option<Vec<String>> {
        let added = |pair| added(pair, percent);
        let witnesses = self.quiet.witnesses.iter().zip(&self.loaded.witnesses);
        let of_the_machine: Option<Vec<_>> = witnesses.map(added).collect();
        let bound = of_the_machine?.into_iter().max()? + allowed;
        let requests = self.quiet.requests.iter().zip(&self.loaded.requests);
        let added: Option<Vec<_>> = requests.map(added).collect();
        let named = self.requests.iter().zip(added?);
        let over = named.filter(|(_, added)| *added > bound);
        Some(
            over.map(|(name, added)| {
                format!("{name}: the load added {added:.1?}, more than {bound:.1?}")
            })
            .collect(),
        )
    }
}

/// The delay that the load added to a percentile.
fn added((quiet, loaded): (&Durations, &Durations), percent: usize) -> Option<Duration> {
    let quiet = quiet.percentile(percent)?;
    Some(loaded.percentile(percent)?.saturating_sub(quiet))
}

/// A table in Markdown.
impl<const REQUESTS: usize, const WITNESSES: usize> Display
    for Comparison<'_, REQUESTS, WITNESSES>
{
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Formatted {
        formatter.write_str(
            "| request | without load | p50, p95, longest | under load | p50, p95, longest | added |\n\
             | --- | --- | --- | --- | --- | --- |\n",
        )?;
        let requests = self.quiet.requests.iter().zip(&self.loaded.requests);
        let witnesses = self.quiet.witnesses.iter().zip(&self.loaded.witnesses);
        for (name, pair) in self.requests.iter().zip(requests) {
            row(formatter, name, pair)?;
        }
        for (name, pair) in self.witnesses.iter().zip(witnesses) {
            row(formatter, &format!("witness: {name}"), pair)?;
        }
        Ok(())
    }
}

fn row(formatter: &mut Formatter<'_>, name: &str, pair: (&Durations, &Durations)) -> Formatted {
    let (quiet, loaded) = pair;
    let added = added(pair, HIGH).unwrap_or_default();
    writeln!(formatter, "| {name} | {quiet} | {loaded} | {added:.1?} |")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_has_more_time_for_the_same_requests() {
        let during = Duration::from_secs(40);
        assert_eq!(time_of(500, 10_000, during), Some(Duration::from_secs(2)));
        assert_eq!(time_of(500, 1_000, during), Some(Duration::from_secs(20)));
        assert_eq!(time_of(500, 0, during), None);
    }

    fn measured(requests: [&[u64]; 2], witness: &[u64]) -> Measured<2, 1> {
        let durations = |milliseconds: &[u64]| {
            let mut durations = Durations::default();
            for one in milliseconds {
                durations.add(Duration::from_millis(*one));
            }
            durations
        };
        Measured {
            requests: requests.map(durations),
            witnesses: [durations(witness)],
        }
    }

    fn compared<'a>(quiet: &'a Measured<2, 1>, loaded: &'a Measured<2, 1>) -> Comparison<'a, 2, 1> {
        Comparison {
            requests: ["stats", "metrics"],
            witnesses: ["dns"],
            quiet,
            loaded,
        }
    }

    #[test]
    fn percentiles_are_durations_that_were_measured() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile(50), None);
        for millisecond in (1..=200).rev() {
            durations.add(Duration::from_millis(millisecond));
        }
        let shown = SHOWN.map(|percent| durations.percentile(percent).unwrap().as_millis());
        assert_eq!(shown, [100, 190, 200]);
        let mut one = Durations::default();
        one.add(Duration::from_millis(3));
        assert_eq!(one.to_string(), "1 | 3.0ms, 3.0ms, 3.0ms");
    }

    #[test]
    fn the_delay_of_a_witness_does_not_count_against_the_operator() {
        let quiet = measured([&[5, 10], &[20]], &[30]);
        // The witness waits 470 ms longer. Every request may add as much, in addition to the
        // second.
        let within = measured([&[1_480, 3], &[1_490]], &[500]);
        let allowed = Duration::from_secs(1);
        let none: [String; 0] = [];
        assert_eq!(
            compared(&quiet, &within).exceeding(HIGH, allowed).unwrap(),
            none
        );
        let beyond = measured([&[1_481, 3], &[1_490]], &[500]);
        let exceeding = compared(&quiet, &beyond).exceeding(HIGH, allowed).unwrap();
        assert_eq!(exceeding, ["stats: the load added 1.5s, more than 1.5s"]);
        // A witness that was slow without load too allows nothing.
        let slow = measured([&[10], &[20]], &[9_000]);
        let loaded = measured([&[1_011], &[1_020]], &[9_000]);
        assert_eq!(
            compared(&slow, &loaded)
                .exceeding(HIGH, allowed)
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn a_missing_measurement_is_within_no_bound() {
        let quiet = measured([&[1], &[1]], &[1]);
        for loaded in [measured([&[1], &[]], &[1]), measured([&[1], &[1]], &[])] {
            assert_eq!(
                compared(&quiet, &loaded).exceeding(HIGH, Duration::from_secs(1)),
                None
            );
        }
        let table = compared(&quiet, &quiet).to_string();
        assert!(
            table.contains("| witness: dns | 1 | 1.0ms, 1.0ms, 1.0ms | 1 |"),
            "{table}"
        );
    }
}
