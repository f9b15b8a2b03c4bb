//! Pure: what `kubectl describe ipujob` prints, read as a user reads it: state, conditions and
//! events.

use std::fmt::{Display, Formatter, Result as Formatted};

/// The columns of the events, in order.
const COLUMNS: [&str; 5] = ["Type", "Reason", "Age", "From", "Message"];

/// The parts of a job that a user reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The state of the job.
    pub state: String,
    /// Its conditions, in their order.
    pub conditions: Vec<Condition>,
    /// Its events.
    pub events: Vec<Event>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The type of the condition.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub type_: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// The expected description of a job.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The state of the job.
    pub state: &'static str,
    /// Type, status and reason of each required condition.
    pub conditions: &'static [[&'static str; 3]],
    /// Optional conditions.
    pub optional: &'static [[&'static str; 3]],
    /// Reasons of required events, with the least number of each.
    pub events: &'static [(&'static str, usize)],
}

/// A condition that exists only if the partitions were released later than a moment after the end.
const RELEASED: [&str; 3] = ["PartitionsReleased", "True", "PartitionsReleased"];

/// A completed job whose partitions are released.
pub const COMPLETED: Expected = Expected {
    state: "Completed",
    conditions: &[
        ["Pending", "False", "IPUJobPending"],
        ["Running", "False", "IPUJobRunning"],
        ["Succeeded", "True", "IPUJobSucceeded"],
        ["Ready", "True", "Completed"],
    ],
    optional: &[RELEASED],
    events: &[
        ("SuccessfulCreate", 1),
        ("IPUJobSucceeded", 1),
        ("PartitionReleased", 1),
    ],
};

/// A job that runs.
pub const RUNNING: Expected = Expected {
    state: "Running",
    conditions: &[
        ["Pending", "False", "IPUJobPending"],
        ["Running", "True", "IPUJobRunning"],
        ["PartitionsReady", "True", "PartitionsReady"],
        ["Ready", "True", "Running"],
    ],
    optional: &[],
    events: &[("SuccessfulCreate", 1)],
};

impl Described {
    /// Reads the output of `kubectl describe ipujob`.
    pub fn parse(text: &str) -> Self {
        let (object, events) = text.split_once("\nEvents:").unwrap_or((text, ""));
        let mut described = Self {
            events: parse_events(events),
            ..Self::default()
        };
        let (mut indent, mut condition) = (None, Condition::default());
        for line in object.lines() {
            let depth = line.len() - line.trim_start().len();
            let (name, value) = line.trim_start().split_once(':').unwrap_or((line, ""));
            let value = value.trim().to_owned();
            if indent.is_some_and(|indent| depth <= indent) {
                indent = None;
            }
            match (indent, name) {
                (None, "Conditions") => indent = Some(depth),
                (None, "Launcher Status") => described.state = value,
                (Some(_), "Status") => condition.status = value,
                (Some(_), "Reason") => condition.reason = value,
                // kubectl sorts the fields by name: this one is the last.
                (Some(_), "Type") => {
                    condition.type_ = value;
                    described.conditions.push(std::mem::take(&mut condition));
                }
                _ => {}
            }
        }
        described
    }

    /// Compares it with the expected description. Returns each difference. Warnings and unexpected
    /// conditions are differences.
    pub fn differences(&self, expected: &Expected) -> Vec<String> {
        let mut found = Vec::new();
        if self.state != expected.state {
            found.push(format!("state {:?}, not {}", self.state, expected.state));
        }
        for wanted in expected.conditions {
            if !self.conditions.iter().any(|one| one.is(wanted)) {
                found.push(format!("no condition {}", wanted.join(" ")));
            }
        }
        for condition in &self.conditions {
            let mut known = expected.conditions.iter().chain(expected.optional);
            if !known.any(|wanted| condition.is(wanted)) {
                found.push(format!("condition {condition}"));
            }
        }
        for (reason, least) in expected.events {
            let count = self.messages(reason).len();
            if count < *least {
                found.push(format!("{count} events {reason}, fewer than {least}"));
            }
        }
        for event in &self.events {
            if event.type_ != "Normal" {
                found.push(format!(
                    "{} {}: {}",
                    event.type_, event.reason, event.message
                ));
            }
        }
        found
    }

    /// The messages of the events with a reason.
    pub fn messages(&self, reason: &str) -> Vec<&str> {
        let events = self.events.iter().filter(|event| event.reason == reason);
        events.map(|event| event.message.as_str()).collect()
    }
}

impl Condition {
    fn is(&self, [type_, status, reason]: &[&str; 3]) -> bool {
        self.type_ == *type_ && self.status == *status && self.reason == *reason
    }
}

impl Display for Condition {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Formatted {
        write!(formatter, "{} {} {}", self.type_, self.status, self.reason)
    }
}

/// Reads the table of the events, whose columns begin below the column headings.
fn parse_events(table: &str) -> Vec<Event> {
    let mut lines = table.lines().skip_while(|line| line.trim().is_empty());
    let Some(head) = lines.next() else {
        return Vec::new();
    };
    let starts: Option<Vec<usize>> = COLUMNS.iter().map(|column| head.find(column)).collect();
    // `<none>` has no columns.
    let Some([type_, reason, age, _, message]) = starts.as_deref() else {
        return Vec::new();
    };
    let cell = |line: &str, from: usize, to: usize| {
        let cell = line.get(from..to.min(line.len()));
        cell.unwrap_or_default().trim().to_owned()
    };
    let rows = lines.filter(|line| !line.trim().is_empty() && !line.trim().starts_with("----"));
    let event = |line: &str| Event {
        type_: cell(line, *type_, *reason),
        reason: cell(line, *reason, *age),
        message: cell(line, *message, usize::MAX),
    };
    rows.map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: &str = "\
Name:         a
Spec:
  Conditions:  none of these
  Workers:
    Type:  not one of these
Status:
  Conditions:
    Last Transition Time:  2026-11-24T10:00:00Z
    Message:               IPUJob default/a is waiting: for this.
    Reason:                IPUJobPending
    Status:                False
    Type:                  Pending
    Last Transition Time:  2026-11-24T10:00:01Z
    Message:
    Reason:                PodsWaiting
    Status:                False
    Type:                  PodsReady
  Current Replicas:        1
  Launcher Status:         Running
  Run:
    Type:  not one of these
Events:
  Type     Reason            Age                From          Message
  ----     ------            ----               ----          -------
  Normal   SuccessfulCreate  3s                 ipu-operator  created Pod a-worker-0
  Warning  PodsWaiting       2s (x3 over 5s)                  Pod a:  ErrImagePull
";

    #[test]
    fn state_conditions_and_events_are_read() {
        let described = Described::parse(RUNS);
        assert_eq!(described.state, "Running");
        let conditions: Vec<_> = described
            .conditions
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = ["Pending False IPUJobPending", "PodsReady False PodsWaiting"];
        assert_eq!(conditions, expected);
        assert_eq!(
            described.messages("SuccessfulCreate"),
            ["created Pod a-worker-0"]
        );
        assert_eq!(described.messages("PodsWaiting"), ["Pod a:  ErrImagePull"]);
        assert_eq!(described.events.len(), 2);
    }

    #[test]
    fn missing_and_unexpected_parts_are_differences() {
        let differences = Described::parse(RUNS).differences(&RUNNING);
        let expected = [
            "no condition Running True IPUJobRunning",
            "no condition PartitionsReady True PartitionsReady",
            "no condition Ready True Running",
            "condition PodsReady False PodsWaiting",
            "Warning PodsWaiting: Pod a:  ErrImagePull",
        ];
        assert_eq!(differences, expected);
    }

    #[test]
    fn a_job_without_events_has_none() {
        let described =
            Described::parse("Status:\n  Launcher Status:  Completed\nEvents:  <none>\n");
        assert_eq!(described.state, "Completed");
        assert!(described.events.is_empty());
        let differences = described.differences(&COMPLETED);
        assert!(
            differences.contains(&"0 events SuccessfulCreate, fewer than 1".to_owned()),
            "{differences:?}"
        );
    }

    #[test]
    fn an_expected_job_has_no_differences() {
        let conditions = COMPLETED.conditions.iter().chain(COMPLETED.optional);
        let conditions = conditions.map(|[type_, status, reason]| Condition {
            type_: (*type_).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
        });
        let events = COMPLETED.events.iter().map(|(reason, _)| Event {
            type_: "Normal".to_owned(),
            reason: (*reason).to_owned(),
            message: String::new(),
        });
        let described = Described {
            state: "Completed".to_owned(),
            conditions: conditions.collect(),
            events: events.collect(),
        };
        assert_eq!(described.differences(&COMPLETED), <[String; 0]>::default());
    }
}
