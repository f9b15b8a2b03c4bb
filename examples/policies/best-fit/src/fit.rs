//! Pure: the choice among controllers.

/// A controller, as far as the choice needs it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `host:port`.
    pub name: String,
    /// Reason why it cannot serve the request whatever is free on it.
    pub obstacle: Option<String>,
    /// IPUs that it has.
    pub total: u32,
    /// IPUs in partitions.
    pub used: u32,
    /// The largest partition that could be made now.
    pub largest_free: u32,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Ask this controller.
    Try(String),
    /// None has free capacity; why, for each.
    Wait(Vec<(String, String)>),
    /// None could ever serve it.
    Reject(String),
}

/// The controller with the fewest free IPUs that has enough; the first of several.
pub fn choose(ipus: u32, candidates: &[Candidate]) -> Choice {
    if !candidates.is_empty() && candidates.iter().all(|one| is_too_small(one, ipus)) {
        let largest = candidates.iter().map(|one| one.total).max().unwrap_or(0);
        return Choice::Reject(format!(
            "{ipus} IPUs are more than any controller has; the largest has {largest}"
        ));
    }
    let fits = |one: &&Candidate| one.obstacle.is_none() && one.largest_free >= ipus;
    let fullest = candidates.iter().filter(fits);
    match fullest.min_by_key(|one| one.total.saturating_sub(one.used)) {
        Some(one) => Choice::Try(one.name.clone()),
        None => Choice::Wait(
            candidates
                .iter()
                .map(|one| (one.name.clone(), reason(one, ipus)))
                .collect(),
        ),
    }
}

/// One that has never answered is not known to be too small.
fn is_too_small(one: &Candidate, ipus: u32) -> bool {
    one.total > 0 && one.total < ipus
}

fn reason(one: &Candidate, ipus: u32) -> String {
    one.obstacle.clone().unwrap_or_else(|| {
        format!(
            "{} of its {} IPUs are used, and no {ipus} are adjacent",
            one.used, one.total
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, total: u32, used: u32) -> Candidate {
        Candidate {
            name: name.to_owned(),
            obstacle: None,
            total,
            used,
            largest_free: total - used,
        }
    }

    #[test]
    fn the_fullest_with_enough_free_ipus_is_tried() {
        let mut candidates = [
            candidate("empty", 64, 0),
            candidate("half", 64, 32),
            candidate("full", 64, 60),
        ];
        assert_eq!(choose(16, &candidates), Choice::Try("half".to_owned()));
        assert_eq!(choose(4, &candidates), Choice::Try("full".to_owned()));
        assert_eq!(choose(64, &candidates), Choice::Try("empty".to_owned()));
        candidates[1].obstacle = Some("it refused".to_owned());
        assert_eq!(choose(16, &candidates), Choice::Try("empty".to_owned()));
    }

    #[test]
    fn it_says_why_it_waits_or_never_comes() {
        let candidates = [candidate("a", 16, 16), candidate("b", 16, 8)];
        let Choice::Wait(reasons) = choose(16, &candidates) else {
            unreachable!("it has enough later");
        };
        assert!(reasons[1].1.contains("8 of its 16 IPUs"), "{reasons:?}");
        assert!(matches!(choose(32, &candidates), Choice::Reject(_)));
        assert_eq!(choose(32, &[]), Choice::Wait(Vec::new()));
        let unknown = [candidate("unreachable", 0, 0)];
        assert!(matches!(choose(32, &unknown), Choice::Wait(_)));
    }
}
