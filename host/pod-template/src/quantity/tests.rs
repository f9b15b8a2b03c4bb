//! Quantities compared with the values and texts of Kubernetes' own package.

use proptest::prelude::*;

use super::{canonical, scaled, whole_number};

/// Texts and their canonical form in Kubernetes, in the order of their values; a blank line
/// separates values. A Go program printed it with `ParseQuantity`, `Cmp` and `CanonicalizeBytes` of
/// `k8s.io/apimachinery` 0.37.2. Where the canonical form has another value, because Kubernetes has
/// no suffix above E, the text stands in its place.
const TABLE: &str = include_str!("table.txt");

/// The rows of each value.
fn values() -> Vec<Vec<(&'static str, &'static str)>> {
    let groups = TABLE.trim_end().split("\n\n");
    let rows = |group: &'static str| {
        group
            .lines()
            .map(|line| line.split_once(' ').unwrap())
            .collect()
    };
    groups.map(rows).collect()
}

#[test]
fn equal_values_have_one_text_and_others_another() {
    let mut texts = Vec::new();
    for rows in values() {
        let value = canonical(rows[0].0).unwrap();
        for (text, of_kubernetes) in rows {
            assert_eq!(canonical(text).as_deref(), Some(&*value), "{text}");
            assert_eq!(
                canonical(of_kubernetes).as_deref(),
                Some(&*value),
                "{of_kubernetes} of {text}"
            );
        }
        texts.push(value);
    }
    let count = texts.len();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), count, "two values have one text");
    assert!(count > 100, "the table is complete");
}

/// The text of Kubernetes is kept wherever the kind of its suffix is ours.
#[test]
fn canonical_texts_are_those_of_kubernetes() {
    for (_, of_kubernetes) in values().into_iter().flatten() {
        let text = canonical(of_kubernetes).unwrap();
        let has_exponent = of_kubernetes.contains('e') || text.contains('e');
        if !has_exponent && of_kubernetes.ends_with('i') == text.ends_with('i') {
            assert_eq!(text, of_kubernetes);
        }
    }
}

#[test]
fn other_texts_are_no_quantities() {
    let long = "1".repeat(200);
    let others = [
        "",
        " ",
        ".",
        "-",
        "1.2.3",
        "1 Gi",
        "1gi",
        "1K",
        "1e",
        "1e1.5",
        "e3",
        "0x10",
        "1e9999999",
        "NaN",
        &long,
    ];
    for text in others {
        assert_eq!(canonical(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn canonical_texts_are_quantities_of_the_same_value(
        text in "[+-]?([0-9]{1,30}(\\.[0-9]{0,30})?|\\.[0-9]{1,12})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
    ) {
        let once = canonical(&text).unwrap();
        prop_assert_eq!(canonical(&once), Some(once.clone()), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = canonical(&text);
    }
}

#[test]
fn a_whole_number_is_read_in_every_notation() {
    for (text, expected) in [
        ("4", 4),
        ("+4", 4),
        ("04", 4),
        ("4.", 4),
        ("4.0", 4),
        ("4000m", 4),
        ("4000000u", 4),
        ("4000000000n", 4),
        ("0.004k", 4),
        (".004k", 4),
        ("4e0", 4),
        ("4E0", 4),
        ("0.4e1", 4),
        ("40e-1", 4),
        ("1k", 1_000),
        ("1Ki", 1_024),
        ("0.5Ki", 512),
        ("1M", 1_000_000),
        ("2Mi", 2 << 20),
        ("1E", 1_000_000_000_000_000_000),
        ("9223372036854775807", i64::MAX.unsigned_abs()),
        ("0", 0),
        ("0.0", 0),
        ("0e99", 0),
    ] {
        assert_eq!(whole_number(text), Some(expected), "{text}");
    }
}

#[test]
fn a_fraction_or_another_text_is_no_whole_number() {
    for text in [
        "",
        ".",
        "m",
        "four",
        "4 ",
        " 4",
        "4x",
        "4KI",
        "4ki",
        "4.5",
        "4500m",
        "1n",
        "1e-99",
        "4.0000000001",
        "1.0.0",
        "-4",
        "4e",
        "4e1.5",
        "4e99",
        "8Ei",
        "1e999999999999",
        "9223372036854775808",
        "99999999999999999999999999999999999999999999",
    ] {
        assert_eq!(whole_number(text), None, "{text}");
    }
}

#[test]
fn a_scaled_value_is_rounded_up_and_bounded() {
    for (text, places, expected) in [
        ("1.5Gi", 0, Some(1_610_612_736)),
        ("0.5", 3, Some(500)),
        ("0.0001", 3, Some(1)),
        ("1e-99", 0, Some(1)),
        ("0e99", 3, Some(0)),
        ("1e2147483647", 3, None),
        ("1e99", 0, None),
        ("-1", 0, None),
    ] {
        assert_eq!(scaled(text, places), expected, "{text}");
    }
}
