//! Quantities compared with the values and texts of Kubernetes' own package.

use proptest::prelude::*;

use super::canonical;

/// Texts and their canonical form in Kubernetes, in the order of their values; a blank line separates values. A Go program
/// printed it with `ParseQuantity`, `Cmp` and `CanonicalizeBytes` of `k8s.io/apimachinery` 0.37.2. Where the canonical form
/// has another value, because Kubernetes has no suffix above E, the text stands in its place.
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
