//! Pure: reads jobs from CSV with the names of the columns in the first line.
//!
//! Files come from spreadsheets, databases and scripts: with or without quotes, with any line ends,
//! with the columns in any order, and with further columns.

mod line;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
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

/// Seconds of a time: three hundred years, so that times since 1970 are valid, too.
const TIMES: RangeInclusive<u64> = 0..=10_000_000_000;

/// Seconds of a duration: at most thirty years.
const DURATIONS: RangeInclusive<u64> = 1..=1_000_000_000;

/// The mark that some programs write before the first character of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Most characters of a value in a message.
const SHOWN_MAX: usize = 60;

/// Error of a file without jobs to replay.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobsError {
    /// A column is missing.
    #[error(
        "the first line lacks the column {missing}: it is {found:?}; it must name namespace, arrival_seconds, ipus and \
         duration_seconds, in any order, with commas between them"
    )]
    Column {
        /// The column.
        missing: &'static str,
        /// The line.
        found: String,
    },
    /// A column is there twice.
    #[error("the first line names {0} twice; name each column once")]
    Twice(&'static str),
    /// A column has almost the name of the optional one, which would be left out.
    #[error(
        "the first line names {0:?}; write gang for the number of partitions, or remove the column"
    )]
    AlmostGang(String),
    /// A line has more or fewer values than there are columns.
    #[error(
        "line {line} has {found} values; it must have {expected}, one for each column of the first line"
    )]
    Values {
        /// The line, from 1.
        line: usize,
        /// Its values.
        found: usize,
        /// The columns.
        expected: usize,
    },
    /// Quotes of a line are not closed, or stand beside text.
    #[error(
        "line {0}: a value in quotes does not end on this line, or text follows its quotes; write \"a, b\" for a value \
         with a comma, and two quotes for one within quotes"
    )]
    Quotes(usize),
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

/// The index of each column that counts.
struct Columns {
    indices: BTreeMap<&'static str, usize>,
    number: usize,
}

/// A line with values.
struct Line<'a> {
    columns: &'a Columns,
    values: Vec<Cow<'a, str>>,
    number: usize,
}

/// Reads the jobs of a file, in the order of their arrival. The first one arrives at second 0.
pub fn parse(text: &str) -> Result<Vec<Job>, JobsError> {
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let numbered = text.lines().enumerate();
    let numbered = numbered.map(|(index, line)| (index + 1, line));
    let mut lines = numbered.filter(|(_, line)| !line.trim().is_empty());
    let columns = columns(lines.next().unwrap_or((1, "")))?;
    let mut namespaces = BTreeSet::new();
    let mut jobs = Vec::new();
    for (number, line) in lines {
        let line = Line {
            columns: &columns,
            values: line::values(line).ok_or(JobsError::Quotes(number))?,
            number,
        };
        jobs.push(line.job(&mut namespaces)?);
    }
    jobs.sort_by_key(|job| job.arrival);
    let Some(first) = jobs.first().map(|job| job.arrival) else {
        return Err(JobsError::Empty);
    };
    for job in &mut jobs {
        job.arrival -= first;
    }
    Ok(jobs)
}

/// Finds the columns in the first line. Others than the known ones are left out.
fn columns((number, line): (usize, &str)) -> Result<Columns, JobsError> {
    let names = line::values(line).ok_or(JobsError::Quotes(number))?;
    let mut indices = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let mut known = REQUIRED.into_iter().chain([GANG]);
        match known.find(|known| known.eq_ignore_ascii_case(name)) {
            Some(known) if indices.insert(known, index).is_some() => {
                return Err(JobsError::Twice(known));
            }
            None if name.to_ascii_lowercase().contains(GANG) => {
                return Err(JobsError::AlmostGang(shown(name)));
            }
            Some(_) | None => {}
        }
    }
    let mut required = REQUIRED.into_iter();
    match required.find(|name| !indices.contains_key(name)) {
        Some(missing) => Err(JobsError::Column {
            missing,
            found: shown(line),
        }),
        None => Ok(Columns {
            indices,
            number: names.len(),
        }),
    }
}

impl Line<'_> {
    fn job(&self, namespaces: &mut BTreeSet<Arc<str>>) -> Result<Job, JobsError> {
        let (found, expected) = (self.values.len(), self.columns.number);
        if found != expected {
            let line = self.number;
            return Err(JobsError::Values {
                line,
                found,
                expected,
            });
        }
        let gang = match self.value(GANG) {
            Some(_) => self.small_number(GANG, &GANGS)?,
            None => 1,
        };
        Ok(Job {
            namespace: self.namespace(namespaces)?,
            arrival: self.number("arrival_seconds", &TIMES)?,
            ipus: self.small_number("ipus", &IPUS)?.next_power_of_two(),
            gang,
            duration: self.number("duration_seconds", &DURATIONS)?,
        })
    }

    /// Returns the namespace. Jobs of the same one share its name.
    fn namespace(&self, namespaces: &mut BTreeSet<Arc<str>>) -> Result<Arc<str>, JobsError> {
        let name = self.value("namespace").unwrap_or_default();
        if name.is_empty() {
            return Err(JobsError::Namespace(self.number));
        }
        if let Some(known) = namespaces.get(name) {
            return Ok(Arc::clone(known));
        }
        let name = Arc::<str>::from(name);
        namespaces.insert(Arc::clone(&name));
        Ok(name)
    }

    fn value(&self, column: &str) -> Option<&str> {
        let index = self.columns.indices.get(column)?;
        self.values.get(*index).map(AsRef::as_ref)
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
            value: shown(value),
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

/// Returns the beginning of a value, for a message.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests;
