//! Pure: prints the figures of policies beside each other.

use std::fmt::Write as _;

use serde::Serialize;

use crate::controllers;
use crate::figures::{Figure, Figures, Input, Unit};
use crate::jobs::offered_load;

/// Width of a label.
const LABEL: usize = 26;

/// Width of a value.
const VALUE: usize = 14;

/// The figures of the table in Markdown.
const COLUMNS: [&str; 8] = [
    "allocation",
    "fragmentation",
    "waitP50",
    "waitP99",
    "largeWaitMean",
    "largeWaitP99",
    "boundedSlowdownMean",
    "fairness",
];

/// Longest name of a policy that is printed, in characters.
const NAME: usize = 2 * VALUE - 3;

/// The figures of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluated {
    /// Name of the policy: `built-in`, or its file.
    pub policy: String,
    /// Digest of its module. `None` for the built-in serial walk.
    pub digest: Option<String>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The replayed jobs and the figures of each policy, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report<'a> {
    jobs: usize,
    controllers: usize,
    ipus: u64,
    /// IPU-seconds of the jobs for each IPU-second until the last arrival.
    offered_load: Option<f64>,
    /// IPUs from which on a job counts as large.
    large: u64,
    policies: &'a [Evaluated],
}

impl<'a> Report<'a> {
    /// Creates a report.
    pub fn new(input: Input<'_>, policies: &'a [Evaluated]) -> Self {
        Self {
            jobs: input.jobs.len(),
            controllers: input.controllers.len(),
            ipus: controllers::capacity(input.controllers),
            offered_load: offered_load(input.jobs, input.controllers),
            large: input.large,
            policies,
        }
    }

    /// Returns the report as a table for users.
    pub fn table(&self) -> String {
        let mut text = self.head();
        let first = self.policies.first().into_iter();
        let rows = first.flat_map(|one| one.figures.figures.iter().enumerate());
        for (index, figure) in rows {
            text.push_str(self.row(index, figure).trim_end());
            text.push('\n');
        }
        for one in self.policies {
            text.push_str(&counts(one, self.large));
        }
        text
    }

    /// Returns the most important figures as a table in Markdown, with the gap behind each value.
    /// `compared` is what the rows differ in, such as `policy`.
    pub fn markdown(&self, compared: &str) -> String {
        let rows = self.policies.iter().map(|one| {
            let figures = columns(one).map(|figure| {
                let (value, gap) = (
                    cell(figure.value, figure.unit),
                    cell(figure.gap, figure.unit),
                );
                format!("{value} / {gap}")
            });
            (one.policy.clone(), figures.collect::<Vec<_>>())
        });
        let first = self.policies.first().into_iter();
        let labels = first.flat_map(columns);
        let labels = labels.map(|figure| format!("{} / gap", figure.label.trim()));
        let head = (compared.to_owned(), labels.collect::<Vec<_>>());
        let rule = ("---".to_owned(), vec!["---".to_owned(); head.1.len()]);
        let mut text = String::new();
        for (name, cells) in [head, rule].into_iter().chain(rows) {
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
        text
    }

    fn head(&self) -> String {
        let mut text = format!(
            "{} jobs on {} controllers with {} IPUs",
            self.jobs, self.controllers, self.ipus
        );
        if let Some(load) = self.offered_load {
            let _ = write!(text, ", offered load {}", formatted(load, Unit::Share));
        }
        let mut names = format!("{:LABEL$}{:>VALUE$}", "", "bound");
        let mut columns = format!("{:LABEL$}{:>VALUE$}", "", "");
        for one in self.policies {
            let _ = write!(names, "{:>1$}", shortened(&one.policy), 2 * VALUE);
            let _ = write!(columns, "{:>VALUE$}{:>VALUE$}", "value", "gap");
        }
        format!("{text}\n\n{names}\n{columns}\n")
    }

    /// Returns the figures with this index of all policies. The bound is empty if it differs
    /// between the policies.
    fn row(&self, index: usize, first: &Figure) -> String {
        let figures = || {
            self.policies
                .iter()
                .filter_map(move |one| one.figures.figures.get(index))
        };
        let is_common = figures().all(|figure| figure.bound == first.bound);
        let bound = first.bound.filter(|_| is_common);
        let unit = first.unit;
        let mut row = format!("{:LABEL$}{:>VALUE$}", first.label, cell(bound, unit));
        for figure in figures() {
            let (value, gap) = (cell(figure.value, unit), cell(figure.gap, unit));
            let _ = write!(row, "{value:>VALUE$}{gap:>VALUE$}");
        }
        row
    }
}

/// Returns the figures of the table in Markdown.
fn columns(one: &Evaluated) -> impl Iterator<Item = &Figure> {
    let figures = one.figures.figures.iter();
    figures.filter(|figure| COLUMNS.contains(&figure.name))
}

/// Returns the counts of a policy as sentences.
fn counts(one: &Evaluated, large: u64) -> String {
    let figures = &one.figures;
    let counts = &figures.counts;
    let mut text = format!(
        "\n{}: {} jobs ran, {} of them large ({large} IPUs or more); {} rejected, {} never served\n\
         {} decisions, {} of them refused by a controller without an aligned block\n",
        one.policy,
        figures.ran,
        figures.large,
        figures.rejected,
        figures.waiting,
        counts.decisions,
        counts.refused,
    );
    if let Some(why) = &counts.first_overruled {
        let _ = writeln!(
            text,
            "{} decisions overruled by the host; the first one: {why}",
            counts.overruled
        );
    }
    text
}

fn cell(value: Option<f64>, unit: Unit) -> String {
    value.map_or_else(|| "–".to_owned(), |value| formatted(value, unit))
}

/// Formats a value with its unit.
pub(crate) fn formatted(value: f64, unit: Unit) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 3_600.0;
    const DAY: f64 = 86_400.0;
    match unit {
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::Ipus => format!("{value:.1} IPUs"),
        Unit::Ratio => format!("{value:.2}"),
        Unit::Seconds if value < 2.0 * MINUTE => format!("{value:.0} s"),
        Unit::Seconds if value < 2.0 * HOUR => format!("{:.1} min", value / MINUTE),
        Unit::Seconds if value < 2.0 * DAY => format!("{:.1} h", value / HOUR),
        Unit::Seconds => format!("{:.1} d", value / DAY),
    }
}

/// Returns the end of a name that is too long for its column.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME {
        return name.to_owned();
    }
    let end = name.chars().skip(length - NAME + 1);
    std::iter::once('…').chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::Controller;
    use crate::jobs::Job;
    use crate::replay::Counts;

    fn evaluated(policy: &str, value: f64, bound: Option<f64>) -> Evaluated {
        let gap = bound.map(|bound| (value - bound).abs());
        let figure = |name, label, unit| Figure {
            name,
            label,
            unit,
            value: Some(value),
            bound,
            gap,
        };
        Evaluated {
            policy: policy.to_owned(),
            digest: None,
            figures: Figures {
                ran: 2,
                rejected: 1,
                waiting: 0,
                large: 1,
                figures: vec![
                    figure("allocation", "allocation", Unit::Share),
                    figure("waitMean", "wait, mean", Unit::Seconds),
                ],
                namespaces: Vec::new(),
                counts: Counts {
                    decisions: 7,
                    refused: 3,
                    ..Counts::default()
                },
            },
        }
    }

    fn report(policies: &[Evaluated]) -> Report<'_> {
        let job = |arrival| Job {
            namespace: "a".into(),
            arrival,
            ipus: 8,
            gang: 1,
            duration: 50,
        };
        let controllers = [Controller {
            name: "pod".to_owned(),
            ipus: 8,
        }];
        let input = Input {
            jobs: &[job(0), job(100)],
            controllers: &controllers,
            large: 8,
        };
        Report::new(input, policies)
    }

    #[test]
    fn policies_stand_beside_each_other() {
        let policies = [
            evaluated("built-in", 0.75, Some(0.8)),
            evaluated("policies/built/with-a-long-name.wasm", 0.5, Some(0.8)),
        ];
        let expected = "\
2 jobs on 1 controllers with 8 IPUs, offered load 100.0 %

                                   bound                    built-in     …lt/with-a-long-name.wasm
                                                 value           gap         value           gap
allocation                        80.0 %        75.0 %         5.0 %        50.0 %        30.0 %
wait, mean                           1 s           1 s           0 s           0 s           0 s

built-in: 2 jobs ran, 1 of them large (8 IPUs or more); 1 rejected, 0 never served
7 decisions, 3 of them refused by a controller without an aligned block

policies/built/with-a-long-name.wasm: 2 jobs ran, 1 of them large (8 IPUs or more); 1 rejected, 0 never served
7 decisions, 3 of them refused by a controller without an aligned block
";
        let table = report(&policies).table();
        let words = |text: &str| -> Vec<String> {
            text.split_whitespace().map(ToOwned::to_owned).collect()
        };
        assert_eq!(words(&table), words(expected), "{table}");
        let lines: Vec<_> = table.lines().skip(2).take(4).collect();
        let widths = lines.iter().map(|line| line.chars().count());
        assert_eq!(widths.collect::<Vec<_>>(), [96; 4], "{table}");
    }

    #[test]
    fn markdown_has_a_row_for_each_policy() {
        let policies = [
            evaluated("built-in", 0.75, Some(0.8)),
            evaluated("best-fit.wasm", 0.5, None),
        ];
        let expected = "\
| policy | allocation / gap |
| --- | --- |
| built-in | 75.0 % / 5.0 % |
| best-fit.wasm | 50.0 % / – |
";
        assert_eq!(report(&policies).markdown("policy"), expected);
    }

    #[test]
    fn a_bound_that_differs_is_left_out() {
        let policies = [evaluated("a", 0.75, Some(0.8)), evaluated("b", 0.5, None)];
        let table = report(&policies).table();
        let row = table.lines().find(|line| line.starts_with("allocation"));
        let words: Vec<_> = row.unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["allocation", "–", "75.0", "%", "5.0", "%", "50.0", "%", "–"]
        );
    }

    #[test]
    fn values_have_units() {
        let cases = [
            (0.876, Unit::Share, "87.6 %"),
            (12.34, Unit::Ipus, "12.3 IPUs"),
            (1.5, Unit::Ratio, "1.50"),
            (42.4, Unit::Seconds, "42 s"),
            (600.0, Unit::Seconds, "10.0 min"),
            (9_000.0, Unit::Seconds, "2.5 h"),
            (259_200.0, Unit::Seconds, "3.0 d"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(formatted(value, unit), expected);
        }
    }

    #[test]
    fn programs_get_names_and_numbers() {
        let policies = [evaluated("built-in", 0.75, Some(0.8))];
        let value = serde_json::to_value(report(&policies)).unwrap();
        assert_eq!(value["offeredLoad"], 1.0);
        let policy = &value["policies"][0];
        assert_eq!(policy["policy"], "built-in");
        assert_eq!(policy["ran"], 2);
        assert_eq!(policy["figures"][0]["name"], "allocation");
        assert_eq!(policy["figures"][0]["unit"], "share");
        assert_eq!(policy["figures"][0]["value"], 0.75);
    }
}
