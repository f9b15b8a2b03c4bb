//! Pure: whole numbers in the notation of Kubernetes' quantities.

/// Places after the decimal point that Kubernetes keeps of a quantity. It rounds finer fractions up.
const PLACES: i32 = 9;

/// Reads a quantity that is a whole number, in any notation that the API server accepts for an extended resource: `4`,
/// `4.0`, `4000m`, `4e0` and `1Ki`. `None`: it is no quantity, not whole, negative, or more than a resource can have.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (units, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{units}{fraction}");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (power_of_ten, power_of_two) = scale(suffix)?;
    let places = i32::try_from(fraction.len()).ok()?;
    let exponent = power_of_ten.checked_add(PLACES)?.checked_sub(places)?;
    let scaled = shifted(digits.parse().ok()?, exponent)?.checked_mul(1 << power_of_two)?;
    let one = 10_u128.pow(PLACES.unsigned_abs());
    let whole = (scaled % one == 0).then_some(scaled / one)?;
    u64::try_from(whole)
        .ok()
        .filter(|whole| i64::try_from(*whole).is_ok())
}

/// The powers of ten and of two that a suffix stands for.
fn scale(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, 0),
    })
}

/// A number times a power of ten, rounded up.
fn shifted(number: u128, exponent: i32) -> Option<u128> {
    if number == 0 {
        return Some(0);
    }
    let Some(power) = 10_u128.checked_pow(exponent.unsigned_abs()) else {
        // A larger number is no quantity, and a smaller one is rounded up.
        return (exponent < 0).then_some(1);
    };
    if exponent < 0 {
        Some(number.div_ceil(power))
    } else {
        number.checked_mul(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
