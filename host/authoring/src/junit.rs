//! Pure: the outcomes of cases as JUnit's XML, which build servers show.

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::case::Outcome;

/// The report of one run; `suite` is the component's file.
pub(super) fn report(suite: &str, outcomes: &[Outcome]) -> String {
    let mut cases = TestSuite::new(suite);
    for outcome in outcomes {
        let mut status = TestCaseStatus::success();
        if let Some(first) = outcome.failures.first() {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status
                .set_message(first.as_str())
                .set_description(outcome.failures.join("\n"));
        }
        let mut case = TestCase::new(outcome.name.as_str(), status);
        case.set_classname(suite).set_time(outcome.time);
        cases.add_test_case(case);
    }
    let mut report = Report::new("ipu-operator policy test");
    report.add_test_suite(cases);
    report
        .to_string()
        .expect("a report that was built here can be written as XML")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_report_is_xml_whatever_stands_in_it() {
        let outcome = |name: &str, failures: &[&str]| Outcome {
            name: name.to_owned(),
            time: Duration::from_micros(1500),
            failures: failures.iter().map(|&failure| failure.to_owned()).collect(),
        };
        let outcomes = [
            outcome("fits", &[]),
            outcome("<odd> & \"name\"", &["a < b \u{1b}[31m", "and c"]),
        ];
        insta::assert_snapshot!(report("my.wasm", &outcomes));
    }
}
