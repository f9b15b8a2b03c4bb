//! Tests of the reader of jobs: files as other programs write them, and invalid files.

use super::*;

const HEADER: &str = "namespace,arrival_seconds,ipus,duration_seconds";

/// Namespace, arrival, all IPUs and duration of each job.
fn read(text: &str) -> Vec<(String, u64, u64, u64)> {
    let jobs = parse(text).unwrap();
    let values = jobs.iter().map(|job| {
        (
            job.namespace.to_string(),
            job.arrival,
            job.all_ipus(),
            job.duration,
        )
    });
    values.collect()
}

#[test]
fn columns_have_any_order_and_sizes_are_rounded_up() {
    let text = "ipus,namespace,duration_seconds,arrival_seconds,gang\n3,a,60,20,2\n\n1,b,5,10,1\n";
    let expected = [("b".to_owned(), 0, 1, 5), ("a".to_owned(), 10, 8, 60)];
    assert_eq!(read(text), expected);
}

#[test]
fn files_of_other_programs_give_the_same_jobs() {
    let expected = [("a".to_owned(), 0, 8, 60), ("b".to_owned(), 5, 1, 7)];
    let cases = [
        ("lines of Unix", format!("{HEADER}\na,0,8,60\nb,5,1,7\n")),
        (
            "lines of Windows",
            format!("{HEADER}\r\na,0,8,60\r\nb,5,1,7\r\n"),
        ),
        (
            "no end of the last line",
            format!("{HEADER}\na,0,8,60\nb,5,1,7"),
        ),
        (
            "a byte order mark",
            format!("\u{feff}{HEADER}\na,0,8,60\nb,5,1,7\n"),
        ),
        (
            "empty lines",
            format!("\n \r\n{HEADER}\n\na,0,8,60\n\n\nb,5,1,7\n\n"),
        ),
        (
            "spaces",
            "namespace , arrival_seconds, ipus,duration_seconds \n a, 0 ,8 , 60\nb,5,1,7"
                .to_owned(),
        ),
        ("no order", format!("{HEADER}\nb,5,1,7\na,0,8,60\n")),
        (
            "seconds since 1970",
            format!("{HEADER}\nb,1700000005,1,7\na,1700000000,8,60\n"),
        ),
        (
            "leading zeros",
            format!("{HEADER}\na,000,08,060\nb,05,01,07\n"),
        ),
        (
            "quotes",
            concat!(
                "\"namespace\",\"arrival_seconds\",\"ipus\",\"duration_seconds\"\n",
                "\"a\",\"0\",\"8\",\"60\"\nb,5,\"1\",7\n"
            )
            .to_owned(),
        ),
        (
            "capital letters, and columns of others",
            concat!(
                "id,Namespace,user,ARRIVAL_SECONDS,ipus,duration_seconds,\n",
                "1,a,\"Doe, J.\",0,8,60,\n2,b,,5,1,7,\n"
            )
            .to_owned(),
        ),
        (
            "sizes of no power of two",
            format!("{HEADER}\na,0,5,60\nb,5,1,7\n"),
        ),
    ];
    for (name, text) in cases {
        assert_eq!(read(&text), expected, "{name}");
    }
}

#[test]
fn jobs_of_the_same_second_keep_their_order_and_a_gang_is_optional() {
    let jobs = parse(&format!("{HEADER}\nb,7,1,1\na,7,1,1\nc,7,1,1\n")).unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| &*job.namespace).collect();
    assert_eq!(names, ["b", "a", "c"]);
    assert!(jobs.iter().all(|job| job.gang == 1));
    assert_eq!(
        read(&format!("{HEADER}\n\"a \"\"b\"\"\",0,1,1\n"))[0].0,
        "a \"b\""
    );
}

#[test]
fn the_largest_values_are_valid() {
    let text = format!("{HEADER},gang\na,0,1,1,1\na,10000000000,65536,1000000000,1024\n");
    let largest = (
        "a".to_owned(),
        10_000_000_000,
        65_536 * 1_024,
        1_000_000_000,
    );
    assert_eq!(read(&text)[1], largest);
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        (String::new(), "lacks the column namespace: it is \"\""),
        ("\u{feff}\r\n".to_owned(), "lacks the column namespace"),
        (
            "namespace,ipus,arrival_seconds".to_owned(),
            "lacks the column duration_seconds",
        ),
        (HEADER.replace(',', ";"), "with commas between them"),
        (HEADER.replace(',', "\t"), "with commas between them"),
        (format!("{HEADER},ipus\n"), "names ipus twice"),
        (format!("{HEADER},IPUs\n"), "names ipus twice"),
        (format!("{HEADER},gangs\n"), "names \"gangs\"; write gang"),
        (format!("{HEADER},\"x\n"), "line 1: a value in quotes"),
        (HEADER.to_owned(), "it has no jobs"),
        (format!("{HEADER}\r\n\r\n"), "it has no jobs"),
        (
            format!("{HEADER}\na,0,1\n"),
            "line 2 has 3 values; it must have 4",
        ),
        (
            format!("{HEADER}\na,0,1,1,\n"),
            "line 2 has 5 values; it must have 4",
        ),
        (format!("{HEADER}\na;0;1;1\n"), "line 2 has 1 values"),
        (
            format!("{HEADER}\n\n,0,1,1\n"),
            "line 3: namespace is empty",
        ),
        (
            format!("{HEADER}\n\" \",0,1,1\n"),
            "line 2: namespace is empty",
        ),
        (
            format!("{HEADER}\r\n\"a,0,1,1\r\n"),
            "line 2: a value in quotes does not end",
        ),
        (
            format!("{HEADER}\n\"a\nb\",0,1,1\n"),
            "line 2: a value in quotes does not end",
        ),
    ];
    check_refused(cases);
}

#[test]
fn what_is_no_number_or_too_large_is_named() {
    let digits = "9".repeat(100_000);
    let cases = [
        (
            format!("{HEADER}\na,0,x,1\n"),
            "line 2: ipus is \"x\"; it must be a whole number from 1 to 65536",
        ),
        (format!("{HEADER}\na,0,0,1\n"), "ipus is \"0\""),
        (format!("{HEADER}\na,0,65537,1\n"), "ipus is \"65537\""),
        (format!("{HEADER}\na,0,,1\n"), "ipus is \"\""),
        (
            format!("{HEADER}\na,-1,1,1\n"),
            "arrival_seconds is \"-1\"; it must be a whole number from 0",
        ),
        (format!("{HEADER}\na,0,-8,1\n"), "ipus is \"-8\""),
        (
            format!("{HEADER}\na,1.5,1,1\n"),
            "arrival_seconds is \"1.5\"",
        ),
        (
            format!("{HEADER}\na,1e3,1,1\n"),
            "arrival_seconds is \"1e3\"",
        ),
        (
            format!("{HEADER}\na,NaN,1,1\n"),
            "arrival_seconds is \"NaN\"",
        ),
        (
            format!("{HEADER}\na,10000000001,1,1\n"),
            "whole number from 0 to 10000000000",
        ),
        (format!("{HEADER}\na,0,1,0\n"), "duration_seconds is \"0\""),
        (
            format!("{HEADER}\na,0,1,1000000001\n"),
            "duration_seconds is",
        ),
        (format!("{HEADER},gang\na,0,1,1,0\n"), "gang is \"0\""),
        (
            format!("{HEADER},gang\na,0,1,1,1025\n"),
            "whole number from 1 to 1024",
        ),
        (
            format!("{HEADER}\na,0,1,{digits}\n"),
            "duration_seconds is \"999",
        ),
        (format!("{HEADER}\na,0,1,{}\n", "é".repeat(70)), "é…\""),
    ];
    check_refused(cases);
}

/// Checks that each text is refused with a short message that contains the expected words.
fn check_refused<const N: usize>(cases: [(String, &str); N]) {
    for (text, expected) in cases {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.len() < 400, "{error}");
    }
}
