//! Pure: reads jobs from CSV, whose first line names the columns.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::Job;

/// The columns that a file must have.
const REQUIRED: [&str; 4] = ["namespace", "arrival_seconds", "ipus", "duration_seconds"];

/// The column that a file may have.
const GANG: &str = "gang";

/// IPUs of a partition. Other numbers than powers of two are rounded up.
const IPUS: RangeInclusive<u64> = 1..=65_536;

/// Partitions of a gang.
const GANGS: RangeInclusive<u64> = 1..=1_024;

/// Seconds of a time: thirty years.
const TIMES: RangeInclusive<u64> = 0..=1_000_000_000;

/// Seconds of a duration.
const DURATIONS: RangeInclusive<u64> = 1..=1_000_000_000;

/// Why a file has no jobs that can be replayed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobsError {
    /// A column is missing.
    #[error(
        "the first line lacks the column {0}; it must name namespace, arrival_seconds, ipus and \
         duration_seconds, in any order"
    )]
    Column(&'static str),
    /// A column is unknown, or there twice.
    #[error(
        "the first line names {0:?}; each column must be one of namespace, arrival_seconds, ipus, \
         duration_seconds and gang, and there only once"
    )]
    Unknown(String),
    /// A line has more or fewer values than there are columns.
    #[error("line {line} has {found} values; it must have {expected}, one for each column")]
    Values {
        /// The line, from 1.
        line: usize,
        /// Its values.
        found: usize,
        /// The columns.
        expected: usize,
    },
    /// A value is no number, or out of range.
    #[error("line {line}: {column} is {value:?}; it must be a whole number from {from} to {to}")]
    Number {
        /// The line, from 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// The value.
        value: String,
        /// Smallest number.
        from: u64,
        /// Largest number.
        to: u64,
    },
    /// A job has no namespace.
    #[error("line {0}: namespace is empty; name the namespace or the team of the job")]
    Namespace(usize),
    /// The file has no jobs.
    #[error("it has no jobs; write one job on each line, after the line that names the columns")]
    Empty,
}

/// The index of each column.
struct Columns {
    indices: BTreeMap<&'static str, usize>,
    number: usize,
}

/// A line with values.
struct Line<'a> {
    columns: &'a Columns,
    values: Vec<&'a str>,
    number: usize,
}

/// Reads the jobs of a file, in the order of their arrival.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsError> {
    let mut lines = text.lines();
    let columns = columns(lines.next().unwrap_or_default())?;
    let mut namespaces = BTreeMap::new();
    let mut jobs = Vec::new();
    for (index, line) in lines.enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let line = Line {
            columns: &columns,
            values: line.split(',').map(str::trim).collect(),
            number: index + 2,
        };
        jobs.push(line.job(&mut namespaces)?);
    }
    if jobs.is_empty() {
        return Err(JobsError::Empty);
    }
    jobs.sort_by_key(|job| job.arrival);
    Ok(jobs)
}

fn columns(line: &str) -> Result<Columns, JobsError> {
    let mut indices = BTreeMap::new();
    let names = line.split(',').map(str::trim);
    for (index, name) in names.clone().enumerate() {
        let mut known = REQUIRED.into_iter().chain([GANG]);
        let known = known.find(|known| *known == name);
        let is_new = known.is_some_and(|known| indices.insert(known, index).is_none());
        if !is_new {
            return Err(JobsError::Unknown(name.to_owned()));
        }
    }
    let mut required = REQUIRED.into_iter();
    match required.find(|name| !indices.contains_key(name)) {
        Some(missing) => Err(JobsError::Column(missing)),
        None => Ok(Columns {
            indices,
            number: names.count(),
        }),
    }
}

impl<'a> Line<'a> {
    fn job(&self, namespaces: &mut BTreeMap<&'a str, Arc<str>>) -> Result<Job, JobsError> {
        let (found, expected) = (self.values.len(), self.columns.number);
        if found != expected {
            let line = self.number;
            return Err(JobsError::Values {
                line,
                found,
                expected,
            });
        }
        let namespace = self.value("namespace").unwrap_or_default();
        if namespace.is_empty() {
            return Err(JobsError::Namespace(self.number));
        }
        let shared = namespaces.entry(namespace);
        let namespace = Arc::clone(shared.or_insert_with(|| namespace.into()));
        let gang = match self.value(GANG) {
            Some(_) => self.small_number(GANG, &GANGS)?,
            None => 1,
        };
        Ok(Job {
            namespace,
            arrival: self.number("arrival_seconds", &TIMES)?,
            ipus: self.small_number("ipus", &IPUS)?.next_power_of_two(),
            gang,
            duration: self.number("duration_seconds", &DURATIONS)?,
        })
    }

    fn value(&self, column: &str) -> Option<&'a str> {
        let index = self.columns.indices.get(column)?;
        self.values.get(*index).copied()
    }

    fn number(&self, column: &'static str, range: &RangeInclusive<u64>) -> Result<u64, JobsError> {
        let value = self.value(column).unwrap_or_default();
        let number = value
            .parse::<u64>()
            .ok()
            .filter(|number| range.contains(number));
        number.ok_or_else(|| JobsError::Number {
            line: self.number,
            column,
            value: value.to_owned(),
            from: *range.start(),
            to: *range.end(),
        })
    }

    fn small_number(
        &self,
        column: &'static str,
        range: &RangeInclusive<u64>,
    ) -> Result<u32, JobsError> {
        let number = self.number(column, range)?;
        Ok(u32::try_from(number).expect("the range ends below 2^32"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_any_order_and_sizes_are_rounded_up() {
        let text =
            "ipus,namespace,duration_seconds,arrival_seconds,gang\n3,a,60,20,2\n\n1,b,5,10,1\n";
        let jobs = parse(text).unwrap();
        let values = jobs
            .iter()
            .map(|job| (&*job.namespace, job.arrival, job.all_ipus()));
        assert_eq!(values.collect::<Vec<_>>(), [("b", 10, 1), ("a", 20, 8)]);
        let text = "namespace,arrival_seconds,ipus,duration_seconds\r\na,0,8,1\r\n";
        assert_eq!(parse(text).unwrap()[0].gang, 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let header = "namespace,arrival_seconds,ipus,duration_seconds";
        let cases = [
            (String::new(), "names \"\"; each column must be one of"),
            (
                "namespace,ipus,arrival_seconds".to_owned(),
                "lacks the column duration_seconds",
            ),
            (format!("{header},devices\n"), "names \"devices\""),
            (format!("{header},ipus\n"), "names \"ipus\""),
            (header.to_owned(), "it has no jobs"),
            (
                format!("{header}\na,0,1\n"),
                "line 2 has 3 values; it must have 4",
            ),
            (
                format!("{header}\n\n,0,1,1\n"),
                "line 3: namespace is empty",
            ),
            (
                format!("{header}\na,0,x,1\n"),
                "line 2: ipus is \"x\"; it must be a whole number from 1 to 65536",
            ),
            (format!("{header}\na,0,0,1\n"), "ipus is \"0\""),
            (format!("{header}\na,-1,1,1\n"), "arrival_seconds is \"-1\""),
            (format!("{header}\na,0,1,0\n"), "duration_seconds is \"0\""),
            (format!("{header},gang\na,0,1,1,0\n"), "gang is \"0\""),
        ];
        for (text, expected) in cases {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
