//! The decision: best fit, the V-IPU controller with the smallest free partition that is large
//! enough.

/// The facts about a V-IPU controller that the decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub name: String,
    /// Reason why the controller cannot be used now.
    pub excluded: Option<String>,
    /// All IPUs of the controller.
    pub total: u32,
    /// Size of the largest partition that the controller can create now.
    pub largest_free: u32,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Try(String),
    /// Each controller with the reason why it was not chosen.
    Wait(Vec<(String, String)>),
    Reject(String),
}

/// Chooses a controller for a partition of so many IPUs.
pub fn choose(ipus: u32, controllers: &[Candidate]) -> Choice {
    let fits = |one: &&Candidate| one.excluded.is_none() && one.largest_free >= ipus;
    let fullest = controllers
        .iter()
        .filter(fits)
        .min_by_key(|one| one.largest_free);
    if let Some(chosen) = fullest {
        return Choice::Try(chosen.name.clone());
    }
    let known = controllers.iter().all(|one| one.total > 0);
    if known && controllers.iter().all(|one| one.total < ipus) {
        return Choice::Reject(format!("no controller has {ipus} IPUs"));
    }
    let passed = controllers.iter().map(|one| {
        let full = || format!("its largest free partition has {} IPUs", one.largest_free);
        (one.name.clone(), one.excluded.clone().unwrap_or_else(full))
    });
    Choice::Wait(passed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, largest_free: u32) -> Candidate {
        Candidate {
            name: name.to_owned(),
            excluded: None,
            total: 16,
            largest_free,
        }
    }

    #[test]
    fn the_fullest_that_fits_is_chosen() {
        let controllers = [
            candidate("empty", 16),
            candidate("half", 8),
            candidate("full", 0),
        ];
        assert_eq!(choose(4, &controllers), Choice::Try("half".to_owned()));
        assert_eq!(choose(16, &controllers), Choice::Try("empty".to_owned()));
    }

    #[test]
    fn a_request_waits_for_capacity_and_is_rejected_if_no_controller_is_large_enough() {
        let full = [candidate("full", 0)];
        assert!(matches!(choose(4, &full), Choice::Wait(passed) if passed[0].0 == "full"));
        assert!(matches!(choose(32, &full), Choice::Reject(_)));
    }
}
