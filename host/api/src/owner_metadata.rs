//! Pure: which labels and annotations of an owner its IPUPartition carries, for placement policies.

use std::collections::BTreeMap;

/// Most labels, and most annotations, of an owner that its IPUPartition carries.
pub const PAIRS_MAX: usize = 64;

/// Longest annotation of an owner that its IPUPartition carries, key and value together, in bytes.
pub const ANNOTATION_MAX: usize = 1024;

/// The labels of an owner that are copied into its partition.
pub fn bounded_labels<'a>(
    labels: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let pairs = labels.into_iter().take(PAIRS_MAX);
    pairs
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The annotations of an owner that are copied into its partition.
pub fn bounded_annotations<'a>(
    annotations: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> BTreeMap<String, String> {
    let is_short = |(key, value): &(&String, &String)| key.len() + value.len() <= ANNOTATION_MAX;
    bounded_labels(annotations.into_iter().filter(is_short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_owner_says_of_itself_is_bounded() {
        let pairs: BTreeMap<_, _> = (0..100)
            .map(|number| (format!("k{number:03}"), "v".to_owned()))
            .chain([
                ("a".to_owned(), "x".repeat(1023)),
                ("b".to_owned(), "x".repeat(1024)),
            ])
            .collect();
        let labels = bounded_labels(&pairs);
        assert_eq!(labels.len(), PAIRS_MAX);
        let annotations = bounded_annotations(&pairs);
        assert_eq!(annotations.len(), PAIRS_MAX);
        assert!(annotations.contains_key("a") && !annotations.contains_key("b"));
    }
}
