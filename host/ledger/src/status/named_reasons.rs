//! Pure: why a partition waits, with a few V-IPU controllers by name and the number of the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ipu_api::ipupartition::WaitingReason;
use ipu_placement::decision::words;

/// Maximum number of controllers by name. With hundreds of controllers, the object of each waiting
/// partition would have tens of kilobytes.
const NAMED_MAX: usize = 8;

/// The reasons in their order, of at most [`NAMED_MAX`] controllers, and a last one with the
/// numbers of the others. Each kind of reason has a named controller, as far as possible. Those
/// that `before` names are named again, because another name would be another status.
pub(super) fn condensed(reasons: &[WaitingReason], before: &[WaitingReason]) -> Vec<WaitingReason> {
    if reasons.len() <= NAMED_MAX {
        return reasons.to_vec();
    }
    let choice = Choice::of(reasons, before);
    let named = choice.named.iter().map(|index| reasons[*index].clone());
    named.chain([choice.others(reasons)]).collect()
}

/// Whether these are the same reasons, apart from their figures. The last one of many has only
/// figures: a new kind of reason has a named controller.
pub(super) fn are_alike(before: &[WaitingReason], now: &[WaitingReason]) -> bool {
    let is_alike = |index, before: &WaitingReason, now: &WaitingReason| {
        words(&before.controller).eq(words(&now.controller))
            && (index == NAMED_MAX || words(&before.reason).eq(words(&now.reason)))
    };
    let mut each = before.iter().zip(now).enumerate();
    before.len() == now.len() && each.all(|(index, (before, now))| is_alike(index, before, now))
}

/// The controllers that are named, as indices of the reasons.
struct Choice<'a> {
    named: BTreeSet<usize>,
    /// A named controller for each kind of reason.
    examples: HashMap<Vec<&'a str>, usize>,
}

impl<'a> Choice<'a> {
    fn of(reasons: &'a [WaitingReason], before: &[WaitingReason]) -> Self {
        let known: BTreeSet<&str> = before.iter().map(|one| one.controller.as_str()).collect();
        let mut order: Vec<usize> = (0..reasons.len()).collect();
        order.sort_by_key(|index| !known.contains(reasons[*index].controller.as_str()));
        let mut choice = Choice {
            named: BTreeSet::new(),
            examples: HashMap::new(),
        };
        for index in &order {
            let kind = words(&reasons[*index].reason).collect();
            if choice.named.len() < NAMED_MAX && !choice.examples.contains_key(&kind) {
                choice.examples.insert(kind, *index);
                choice.named.insert(*index);
            }
        }
        for index in order {
            if choice.named.len() < NAMED_MAX {
                choice.named.insert(index);
            }
        }
        choice
    }

    /// The number of the controllers that are not named, by the named one with the same kind of
    /// reason.
    fn others(&self, reasons: &[WaitingReason]) -> WaitingReason {
        let (mut alike, mut different) = (BTreeMap::<usize, usize>::new(), 0);
        let others = (0..reasons.len()).filter(|index| !self.named.contains(index));
        for index in others {
            let kind: Vec<&str> = words(&reasons[index].reason).collect();
            match self.examples.get(&kind) {
                Some(example) => *alike.entry(*example).or_default() += 1,
                None => different += 1,
            }
        }
        let alike = alike.into_iter().map(|(example, count)| {
            let example = &reasons[example].controller;
            format!("{count} for the reason of {example}")
        });
        let different = (different > 0).then(|| format!("{different} for other reasons"));
        WaitingReason {
            controller: format!("{} others", reasons.len() - self.named.len()),
            reason: alike.chain(different).collect::<Vec<_>>().join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(controller: usize, text: &str) -> WaitingReason {
        WaitingReason {
            controller: format!("pod{controller}:8090"),
            reason: text.to_owned(),
        }
    }

    fn full(controller: usize, used: usize) -> WaitingReason {
        reason(controller, &format!("{used} of its 64 IPUs are used"))
    }

    #[test]
    fn of_many_controllers_each_kind_of_reason_is_named_and_counted() {
        let mut reasons: Vec<_> = (0..256).map(|index| full(index, 64)).collect();
        reasons[100] = reason(100, "it is cordoned");
        reasons[200] = reason(200, "it is cordoned");
        let found = condensed(&reasons, &[]);
        let names: Vec<_> = found.iter().map(|one| one.controller.as_str()).collect();
        let first = (0..7).map(|index| format!("pod{index}:8090"));
        let expected: Vec<_> = first
            .chain(["pod100:8090", "248 others"].map(str::to_owned))
            .collect();
        assert_eq!(names, expected);
        assert_eq!(
            found[8].reason,
            "247 for the reason of pod0:8090, 1 for the reason of pod100:8090"
        );
        assert_eq!(condensed(&reasons[..8], &[]), reasons[..8]);
    }

    #[test]
    fn more_kinds_than_names_are_counted_together() {
        let reasons: Vec<_> = (0..20)
            .map(|index| reason(index, &format!("reserved for default/job-{index}")))
            .collect();
        let others = condensed(&reasons, &[]).pop().unwrap();
        let expected = ("12 others", "12 for other reasons");
        assert_eq!((&*others.controller, &*others.reason), expected);
    }

    #[test]
    fn a_figure_or_the_count_of_a_kind_changes_nothing() {
        let mut reasons: Vec<_> = (0..256).map(|index| full(index, 64)).collect();
        reasons[9] = reason(9, "it is cordoned");
        let before = condensed(&reasons, &[]);
        for (index, one) in reasons.iter_mut().enumerate() {
            *one = match index {
                9 => one.clone(),
                // Another controller is cordoned, before the one that is named.
                8 => reason(8, "it is cordoned"),
                _ => full(index, index % 64),
            };
        }
        assert!(are_alike(&before, &condensed(&reasons, &before)));
        reasons[7] = reason(7, "it does not answer");
        assert!(!are_alike(&before, &condensed(&reasons, &before)));
    }
}
