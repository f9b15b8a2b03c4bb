//! Pure: means, percentiles and Jain's index.

/// Converts a count, or seconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "a figure is printed with four digits, and 52 bits are fifteen"
)]
pub(crate) fn float(value: impl Into<u128>) -> f64 {
    value.into() as f64
}

/// Returns the mean. `None` without values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len() as u64))
}

/// Returns the smallest value that is not below this percentage of all values. `None` without
/// values.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns Jain's index of fairness: 1 if all values are equal, and 1/n if one of n values is all
/// there is.
pub(crate) fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares > 0.0).then(|| sum * sum / (float(values.len() as u64) * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200_u32).map(float).collect();
        let cases = [(50, Some(100.0)), (99, Some(198.0)), (100, Some(200.0))];
        for (percent, expected) in cases {
            assert_eq!(percentile(&values, percent), expected, "{percent}");
        }
        assert_eq!(percentile(&values[..1], 99), Some(1.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn equal_values_are_fair() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[]), None);
        assert_eq!(mean(&[1.0, 2.0]), Some(1.5));
        assert_eq!(mean(&[]), None);
    }
}
