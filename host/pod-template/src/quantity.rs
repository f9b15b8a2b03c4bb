//! Pure: the value and the canonical text of a Kubernetes quantity. Quantities are equal if their
//! canonical texts are.
//!
//! The rules are those of `resource.Quantity` of Kubernetes
//! (`k8s.io/apimachinery/pkg/api/resource`, 0.37), with one difference: Kubernetes keeps the kind
//! of suffix that the user wrote, so `1024` and `1Ki` stay different texts there. Here each value
//! has one text, with a binary suffix where one leaves a whole number.

/// Longest quantity, in bytes. A longer text is no quantity of a resource that exists.
const LENGTH_MAX: usize = 128;

/// Largest exponent of ten, in either direction, for the same reason.
const EXPONENT_MAX: i64 = 1_000;

/// Smallest exponent of ten. Kubernetes rounds up to it, away from 0.
const NANO: i64 = -9;

/// Largest value with a binary suffix. Kubernetes reads a larger one as this.
const BINARY_MAX: u128 = i64::MAX as u128;

/// Binary suffixes, each 1,024 times that before it, from 1,024.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Decimal suffixes, each 1,000 times that before it, from `NANO`.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Returns the canonical text of a quantity. `None`: the text is no quantity.
pub fn canonical(text: &str) -> Option<String> {
    let text = text.trim();
    let mut magnitude = magnitude(text, &['+', '-'])?;
    if text.ends_with('i') {
        magnitude.limit();
    }
    let magnitude = magnitude.text();
    let is_negative = text.starts_with('-') && magnitude != "0";
    Some(if is_negative {
        ["-", &magnitude].concat()
    } else {
        magnitude
    })
}

/// Reads a quantity that is a whole number, in any notation that the API server accepts for an
/// extended resource: `4`, `4.0`, `4000m`, `4e0` and `1Ki`. `None`: it is no quantity, not whole,
/// negative, or more than a resource can have.
pub fn whole_number(text: &str) -> Option<u64> {
    magnitude(text, &['+'])?.whole()
}

/// Returns a quantity times ten to the power of `places`, rounded up. `None`: it is negative, too
/// large, or no quantity.
pub fn scaled(text: &str, places: i64) -> Option<u128> {
    magnitude(text, &['+'])?.scaled(places)
}

/// Reads a quantity that may begin with one of these signs.
fn magnitude(text: &str, signs: &[char]) -> Option<Magnitude> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    Magnitude::parse(text.strip_prefix(signs).unwrap_or(text))
}

/// A quantity without its sign: `digits` times ten to the power of `exponent`.
struct Magnitude {
    /// Decimal digits, without zeros at the start or at the end. Empty for 0.
    digits: Vec<u8>,
    exponent: i64,
}

impl Magnitude {
    fn parse(text: &str) -> Option<Self> {
        let is_of_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let end = text.bytes().position(|byte| !is_of_number(byte));
        let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || number.trim_matches('.').is_empty() {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes());
        let mut magnitude = Self {
            digits: digits.map(|digit| digit - b'0').collect(),
            exponent: -i64::try_from(fraction.len()).ok()?,
        };
        if let Some(index) = BINARY.iter().position(|name| *name == suffix) {
            for _ in 0..10 * (index + 1) {
                magnitude.double();
            }
        } else {
            magnitude.exponent += decimal_exponent(suffix)?;
        }
        magnitude.round_up();
        Some(magnitude)
    }

    fn double(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().rev() {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        if carry > 0 {
            self.digits.insert(0, carry);
        }
    }

    /// Rounds up to the smallest exponent, and removes zeros.
    fn round_up(&mut self) {
        let excess = usize::try_from(NANO - self.exponent).unwrap_or(0);
        if excess > 0 {
            let kept = self.digits.len().saturating_sub(excess);
            let is_inexact = self.digits.drain(kept..).any(|digit| digit > 0);
            self.exponent = NANO;
            if is_inexact {
                self.increment();
            }
        }
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// Limits a value with a binary suffix.
    fn limit(&mut self) {
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        // The digits before the point.
        let whole = self
            .digits
            .iter()
            .take(usize::try_from(length + self.exponent).unwrap_or(0));
        let whole = whole.fold(0_u128, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u128::from(*digit))
        });
        let zeros = u32::try_from(self.exponent).unwrap_or(0);
        if whole.saturating_mul(10_u128.saturating_pow(zeros)) >= BINARY_MAX {
            let digits = BINARY_MAX.to_string();
            self.digits = digits.bytes().map(|digit| digit - b'0').collect();
            self.exponent = 0;
        }
    }

    /// Returns the value times ten to the power of `places`, rounded up, if it is not too large.
    fn scaled(&self, places: i64) -> Option<u128> {
        let mut value = 0_u128;
        for digit in &self.digits {
            value = value.checked_mul(10)?.checked_add(u128::from(*digit))?;
        }
        if value == 0 {
            return Some(0);
        }
        let exponent = self.exponent.checked_add(places)?;
        let power = 10_u128.checked_pow(u32::try_from(exponent.unsigned_abs()).ok()?)?;
        if exponent < 0 {
            Some(value.div_ceil(power))
        } else {
            value.checked_mul(power)
        }
    }

    /// Returns the value if it is a whole number of at most `BINARY_MAX`.
    fn whole(&self) -> Option<u64> {
        let is_whole = self.digits.is_empty() || self.exponent >= 0;
        let value = is_whole.then(|| self.scaled(0)).flatten();
        u64::try_from(value.filter(|value| *value <= BINARY_MAX)?).ok()
    }

    fn text(&self) -> String {
        if self.digits.is_empty() {
            return "0".to_owned();
        }
        self.whole()
            .and_then(binary)
            .unwrap_or_else(|| self.decimal())
    }

    /// Returns the shortest number with an exponent that is a multiple of three.
    fn decimal(&self) -> String {
        let zeros = self.exponent.rem_euclid(3);
        let exponent = self.exponent - zeros;
        let digits = self.digits.iter().map(|digit| char::from(b'0' + digit));
        let number = digits.chain((0..zeros).map(|_| '0')).collect::<String>();
        let index = usize::try_from((exponent - NANO) / 3).ok();
        match index.and_then(|index| DECIMAL.get(index)) {
            Some(suffix) => number + suffix,
            None => format!("{number}e{exponent}"),
        }
    }
}

/// Returns a whole number with a binary suffix. `None`: 1,024 does not divide it.
fn binary(value: u64) -> Option<String> {
    let (mut value, mut suffix) = (value, None);
    for name in BINARY {
        if value % 1024 == 0 {
            (value, suffix) = (value / 1024, Some(name));
        }
    }
    suffix.map(|suffix| format!("{value}{suffix}"))
}

fn decimal_exponent(suffix: &str) -> Option<i64> {
    if let Some(index) = DECIMAL.iter().position(|name| *name == suffix) {
        return Some(NANO + 3 * i64::try_from(index).ok()?);
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-EXPONENT_MAX..=EXPONENT_MAX)
        .contains(&exponent)
        .then_some(exponent)
}

#[cfg(test)]
mod tests;
