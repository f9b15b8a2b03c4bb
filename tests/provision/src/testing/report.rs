//! Pure: what the suites have printed: the time of each stage, the slowest tests, and the failed
//! suites.

use super::Ended;
use crate::progress::Stage;
use std::fmt::Write as _;

/// What is known after the suites have run.
#[derive(Debug, Default)]
pub(super) struct Report {
    stages: Vec<Stage>,
    tests: Vec<Test>,
    failed: Vec<&'static str>,
}

/// A test and its time.
#[derive(Debug, Clone, PartialEq)]
struct Test {
    seconds: f64,
    name: String,
}

impl Report {
    /// Adds stages.
    pub(super) fn stages(&mut self, stages: Vec<Stage>) {
        self.stages.extend(stages);
    }

    /// Adds a suite that has ended.
    pub(super) fn ended(&mut self, ended: &Ended) {
        self.stages.push(ended.stage.clone());
        self.tests.extend(tests(&ended.printed));
        if !ended.succeeded {
            self.failed.push(ended.suite);
        }
    }

    /// Adds tests from lines such as `12.3 e2e::parallel`.
    pub(super) fn times(&mut self, lines: &str) {
        let tests = lines.lines().filter_map(|line| {
            let (seconds, name) = line.split_once(' ')?;
            Some(Test {
                seconds: seconds.parse().ok()?,
                name: name.to_owned(),
            })
        });
        self.tests.extend(tests);
    }

    /// The suites that failed.
    pub(super) fn failed(&self) -> Vec<&'static str> {
        self.failed.clone()
    }

    /// The table of the stages, and that of the `count` slowest tests.
    pub(super) fn tables(&self, count: usize, whole: &Stage) -> String {
        let mut text = String::from(
            "\nthe stages (builds run side by side, and so do the first two suites and the last three):\n",
        );
        for stage in self.stages.iter().chain([whole]) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {:7.1} s  {}", stage.seconds(), stage.name());
        }
        let mut tests = self.tests.clone();
        tests.sort_by(|left, right| right.seconds.total_cmp(&left.seconds));
        let _ = writeln!(text, "the {count} slowest tests:");
        for test in tests.iter().take(count) {
            let _ = writeln!(text, "  {:7.1} s  {}", test.seconds, test.name);
        }
        text
    }
}

/// Whether the line is about a test that has passed.
pub(super) fn is_passed(line: &str) -> bool {
    parse(line).is_some_and(|(_, rest)| rest.starts_with("ok"))
}

/// The tests of an output, each with the name of its program.
fn tests(printed: &str) -> Vec<Test> {
    let mut program = "";
    let mut tests = Vec::new();
    for line in printed.lines() {
        if let Some(running) = line.trim_start().strip_prefix("Running ") {
            program = program_of(running);
        }
        let time = parse(line).and_then(|(name, rest)| Some((name, seconds(rest)?)));
        if let Some((name, seconds)) = time {
            let name = format!("{program}::{name}");
            tests.push(Test { seconds, name });
        }
    }
    tests
}

/// The name of a test and the rest of its line, which is `test <name> ... <outcome>`.
fn parse(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The time in `ok <1.234s>`.
fn seconds(outcome: &str) -> Option<f64> {
    let (_, time) = outcome.rsplit_once('<')?;
    time.strip_suffix("s>")?.parse().ok()
}

/// The name of a program in `unittests src/lib.rs (target/debug/deps/ipu_jobs-0123)`.
fn program_of(running: &str) -> &str {
    let path = running.rsplit_once('(').map_or("", |(_, path)| path);
    let file = path.rsplit('/').next().unwrap_or_default();
    file.rsplit_once('-').map_or(file, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PRINTED: &str = "     Running unittests src/lib.rs (target/debug/deps/ipu_jobs-01ab)\n\
        running 2 tests\n\
        test plan::waits ... ok <0.120s>\n\
        test plan::ends ... FAILED <2.500s>\n\
        test result: FAILED. 1 passed; 1 failed\n";

    #[test]
    fn tests_are_read_with_their_programs_and_times() {
        let found = tests(PRINTED);
        let names: Vec<_> = found.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["ipu_jobs::plan::waits", "ipu_jobs::plan::ends"]);
        assert!((found[1].seconds - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn only_the_lines_of_passed_tests_are_left_out() {
        let kept: Vec<_> = PRINTED.lines().filter(|line| !is_passed(line)).collect();
        assert_eq!(kept.len(), 4);
        assert!(kept.contains(&"test plan::ends ... FAILED <2.500s>"));
        assert!(kept.contains(&"test result: FAILED. 1 passed; 1 failed"));
    }

    #[test]
    fn the_slowest_tests_and_the_failed_suites_are_named() {
        let mut report = Report::default();
        let ended = Ended {
            suite: "quick tests",
            succeeded: false,
            stage: Stage::of("quick tests", Duration::from_secs(3)),
            printed: PRINTED.to_owned(),
        };
        report.ended(&ended);
        report.times("12.3 e2e::parallel\nnonsense\n");
        assert_eq!(report.failed(), ["quick tests"]);
        assert_eq!(
            report.tables(2, &Stage::of("in all", Duration::from_mins(1))),
            "\nthe stages (builds run side by side, and so do the first two suites and the last three):\n\
             \x20     3.0 s  quick tests\n\
             \x20    60.0 s  in all\n\
             the 2 slowest tests:\n\
             \x20    12.3 s  e2e::parallel\n\
             \x20     2.5 s  ipu_jobs::plan::ends\n"
        );
    }
}
