//! Pure: the accounting as CSV, one line for each period, V-IPU controller, namespace and state, in
//! a form that stays.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{Accounted, Since, allocated_states, unallocated_states};
use crate::condition::shown;

/// The columns.
const HEADER: &str = "start,period,controller,namespace,state,ipu_seconds\n";

/// A line for each part of the sums in the other formats. States without IPU-seconds have no line.
/// The namespace is empty for states outside the operator's partitions, and for namespaces that an
/// accounting does not list separately.
pub fn csv(all: &[Accounted<'_>], since: Since, now: Timestamp) -> String {
    let mut text = HEADER.to_owned();
    for one in all {
        let Some(accounting) = one.accounting else {
            continue;
        };
        let controller = &one.name;
        for period in since.periods(accounting, now) {
            let start = period.start.0;
            let mut line = |namespace: &str, (state, seconds): (&str, f64)| {
                if seconds > 0.0 {
                    let (kind, controller) = (since.kind(), field(controller));
                    let namespace = field(&shown(namespace));
                    // Writing to a String cannot fail.
                    let _ = writeln!(
                        text,
                        "{start},{kind},{controller},{namespace},{state},{seconds:.3}"
                    );
                }
            };
            for one in &period.namespaces {
                for state in allocated_states(&one.seconds) {
                    line(&one.namespace, state);
                }
            }
            for state in unallocated_states(&period.unallocated) {
                line("", state);
            }
        }
    }
    text
}

/// A field by RFC 4180.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_mark_of_the_format_is_quoted() {
        for (text, expected) in [
            ("team-a", "team-a"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("", ""),
        ] {
            assert_eq!(field(text), expected);
        }
    }
}
