//! Pure: a condition by the Kubernetes API conventions, whose time moves only with its status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition that replaces the one of its type among `old`. Its time moves only where its
/// status does, or the status of an unchanged object would change for ever.
pub fn renewed(
    old: &[Condition],
    type_: &str,
    is_true: bool,
    (reason, message): (&str, String),
    now: Timestamp,
) -> Condition {
    let value = if is_true { "True" } else { "False" };
    let same = old
        .iter()
        .find(|one| one.type_ == type_ && one.status == value);
    Condition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: same.map_or(Time(now), |one| one.last_transition_time.clone()),
        observed_generation: None,
    }
}

/// Replaces the condition of this type, or appends it.
pub fn put(conditions: &mut Vec<Condition>, condition: Condition) {
    let mut all = conditions.iter_mut();
    match all.find(|one| one.type_ == condition.type_) {
        Some(one) => *one = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_moves_with_the_status_and_with_nothing_else() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let said = |words: &'static str| (words, words.to_owned());
        let first = renewed(&[], "Ready", false, said("Loading"), at(1));
        let old = [first];
        let second = renewed(&old, "Ready", false, said("Refused"), at(2));
        assert_eq!(second.last_transition_time.0, at(1));
        assert_eq!((&*second.reason, &*second.message), ("Refused", "Refused"));
        let third = renewed(&old, "Ready", true, said("Active"), at(3));
        assert_eq!(third.last_transition_time.0, at(3));
        let other = renewed(&old, "Busy", false, said("Busy"), at(4));
        assert_eq!(other.last_transition_time.0, at(4));
    }
}
