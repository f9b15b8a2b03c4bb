//! Pure: how a measured value grows with its input.

/// Returns the exponent of the growth of a value `y` with `x`: the slope of the line with the least squares through the
/// logarithms of the points `(x, y)`. `None` without two different `x`, or if a value is not positive.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    if points.iter().any(|&(x, y)| x <= 0.0 || y <= 0.0) {
        return None;
    }
    let logarithms = points.iter().map(|&(x, y)| (x.ln(), y.ln()));
    let (mut number, mut x_sum, mut y_sum, mut squares, mut products) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in logarithms {
        number += 1.0;
        x_sum += x;
        y_sum += y;
        squares += x * x;
        products += x * y;
    }
    let spread = number * squares - x_sum * x_sum;
    // Rounding leaves a little of the spread of equal values.
    (spread > 1e-9).then(|| (number * products - x_sum * y_sum) / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_has_its_exponent() {
        let sizes = [1_000.0_f64, 2_500.0, 5_000.0, 10_000.0];
        for power in [0.0, 1.0, 1.5, 2.0] {
            let points = sizes.map(|size| (size, 0.003 * size.powf(power)));
            let found = exponent(&points).unwrap();
            assert!((found - power).abs() < 1e-9, "{power}: {found}");
        }
    }

    #[test]
    fn all_points_count() {
        // The line through the first and the last point has the slope 1. One of the points between them is above it.
        let points = [(1.0, 1.0), (2.0, 2.0), (4.0, 8.0), (8.0, 8.0)];
        let found = exponent(&points).unwrap();
        assert!((found - 1.1).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_fit_needs_two_positive_points() {
        for points in [
            &[][..],
            &[(4.0, 1.0)],
            &[(4.0, 1.0), (4.0, 2.0)],
            &[(1.0, 1.0), (2.0, 0.0)],
        ] {
            assert_eq!(exponent(points), None, "{points:?}");
        }
    }
}
