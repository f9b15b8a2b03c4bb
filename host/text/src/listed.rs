//! Pure: lists for messages, with a bound.

/// Joins the first `max` of the items, and counts the others.
pub fn listed<T: AsRef<str>>(
    mut items: impl ExactSizeIterator<Item = T>,
    max: usize,
    separator: &str,
) -> String {
    let first: Vec<T> = items.by_ref().take(max).collect();
    let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
    let text = first.join(separator);
    match items.len() {
        0 => text,
        more => format!("{text}{separator}and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn what_exceeds_the_maximum_is_counted() {
        for (items, expected) in [
            (&[][..], ""),
            (&["a", "b"], "a; b"),
            (&["a", "b", "c", "d"], "a; b; and 2 more"),
        ] {
            assert_eq!(listed(items.iter(), 2, "; "), expected);
        }
    }
}
