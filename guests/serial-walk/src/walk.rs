//! Pure: the serial walk. Controllers are tried in the admin's order, and the first that fits wins.

#[cfg(test)]
mod table;

/// The partition that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// IPUs wanted: a power of two.
    pub ipus: u32,
    /// Node selector of the owner's Pods, as pairs of key and value.
    pub node_selector: Vec<(String, String)>,
}

/// A V-IPU controller as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `host:port`.
    pub name: String,
    /// Key of the label of the nodes that reach it.
    pub label_key: String,
    /// Value of that label.
    pub label_value: String,
    /// Whether a node carries that label now; true where that is not known.
    pub has_nodes: bool,
    /// Reason why it does not answer; none where it answers.
    pub unreachable: Option<String>,
    /// Reason why none of its nodes can run the Pods now; none where one can.
    pub unschedulable: Option<String>,
    /// IPUs that it has, used or not.
    pub total_ipus: u32,
    /// IPUs in partitions of all owners.
    pub used_ipus: u32,
    /// The largest partition that could be made now: an estimate.
    pub largest_free: u32,
}

/// An earlier try of the same request that made no partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Name of the controller.
    pub controller: String,
    /// Its end, in words.
    pub reason: String,
}

/// The decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Make the partition on this controller.
    Try(String),
    /// Wait, with the reason of each skipped controller.
    Wait(Vec<(String, String)>),
    /// No controller could ever serve it, and why.
    Reject(String),
}

/// Reason why a controller is passed over.
enum Blocker {
    /// It could never serve the request.
    Lasting(String),
    /// It may serve the request later.
    Passing(String),
}

/// Answers the first controller that can serve the request now. Without one, the request waits as
/// long as a controller could serve it later, and is rejected when none ever can.
pub fn place(request: &Request, controllers: &[Controller], attempts: &[Attempt]) -> Decision {
    let mut passed_over = Vec::new();
    let mut can_wait = controllers.is_empty();
    for controller in controllers {
        let reason = match blocker(request, controller, attempts) {
            None => return Decision::Try(controller.name.clone()),
            Some(Blocker::Lasting(reason)) => reason,
            Some(Blocker::Passing(reason)) => {
                can_wait = true;
                reason
            }
        };
        passed_over.push((controller.name.clone(), reason));
    }
    if can_wait {
        return Decision::Wait(passed_over);
    }
    let reasons: Vec<_> = passed_over
        .into_iter()
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    Decision::Reject(format!(
        "no V-IPU controller can ever serve {} IPUs ({})",
        request.ipus,
        reasons.join("; ")
    ))
}

fn blocker(request: &Request, controller: &Controller, attempts: &[Attempt]) -> Option<Blocker> {
    let Controller {
        label_key,
        label_value,
        total_ipus: total,
        ..
    } = controller;
    let asked = request
        .node_selector
        .iter()
        .find(|(key, _)| key == label_key);
    if let Some((_, value)) = asked.filter(|(_, value)| value != label_value) {
        return Some(Blocker::Lasting(format!(
            "its nodes are labelled {label_key}={label_value}, and the Pods ask for \
             {label_key}={value}"
        )));
    }
    if let Some(reason) = &controller.unreachable {
        return Some(Blocker::Passing(format!("does not answer: {reason}")));
    }
    // Pods would wait for a node, and hold IPUs that others could use.
    if !controller.has_nodes {
        return Some(Blocker::Passing(format!(
            "no node is labelled {label_key}={label_value}; label those that reach its IPUs"
        )));
    }
    if let Some(reason) = &controller.unschedulable {
        return Some(Blocker::Passing(reason.clone()));
    }
    // A controller whose agents are not there yet has no IPUs, but may have some soon.
    if *total == 0 {
        return Some(Blocker::Passing("has no IPUs at present".to_owned()));
    }
    if *total < request.ipus {
        return Some(Blocker::Lasting(format!(
            "has {total} IPUs in all, fewer than the {} requested",
            request.ipus
        )));
    }
    let tried = attempts
        .iter()
        .rfind(|attempt| attempt.controller == controller.name);
    if let Some(attempt) = tried {
        return Some(Blocker::Passing(format!("was tried: {}", attempt.reason)));
    }
    lack(request, controller).map(Blocker::Passing)
}

/// Returns why the free IPUs of a controller are not enough now.
fn lack(request: &Request, controller: &Controller) -> Option<String> {
    let Controller {
        total_ipus: total,
        used_ipus: used,
        largest_free: largest,
        ..
    } = controller;
    if *largest >= request.ipus {
        return None;
    }
    let free = total.saturating_sub(*used);
    Some(if free < request.ipus {
        format!(
            "{used} of its {total} IPUs are used, and the largest free partition is {largest}, \
             smaller than the {} requested",
            request.ipus
        )
    } else {
        format!(
            "{free} of its {total} IPUs are free, but not together: a partition can have {largest} \
             now, fewer than the {} requested",
            request.ipus
        )
    })
}
