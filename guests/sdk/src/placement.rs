//! Pure: why a placement guest passes controllers over. `kubectl ipu why` knows the words of the
//! reasons.

#[cfg(test)]
mod tests;

use crate::placer::{Attempt, Controller, Decision, PassedOver, Request};

/// What a controller must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements<'a> {
    /// Number of IPUs: a power of two.
    pub ipus: u32,
    /// Node selector of the owner's Pods, as pairs of key and value.
    pub node_selector: &'a [(String, String)],
}

impl<'a> From<&'a Request> for Requirements<'a> {
    fn from(request: &'a Request) -> Self {
        Self {
            ipus: request.ipus,
            node_selector: &request.node_selector,
        }
    }
}

/// Reason to pass a controller over. The order in which a guest looks for reasons is part of its
/// decision: the first one says whether the request can wait for the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// It could never serve the request.
    Lasting(String),
    /// It may serve the request later.
    Passing(String),
}

impl Blocker {
    /// The Pods select other nodes than its own.
    pub fn of_label(controller: &Controller, requirements: Requirements<'_>) -> Option<Self> {
        let (key, value) = (&controller.label_key, &controller.label_value);
        let mut selector = requirements.node_selector.iter();
        let (_, selected) = selector.find(|(selected, _)| selected == key)?;
        (selected != value).then(|| {
            Self::Lasting(format!(
                "its nodes are labelled {key}={value}, and the Pods ask for {key}={selected}"
            ))
        })
    }

    /// It is unreachable, or no node can run the Pods, which would hold IPUs that others could use.
    pub fn of_state(controller: &Controller) -> Option<Self> {
        if let Some(reason) = &controller.unreachable {
            return Some(Self::Passing(format!("does not answer: {reason}")));
        }
        if !controller.has_nodes {
            let (key, value) = (&controller.label_key, &controller.label_value);
            return Some(Self::Passing(format!(
                "no node is labelled {key}={value}; label those that reach its IPUs"
            )));
        }
        controller.unschedulable.clone().map(Self::Passing)
    }

    /// It has no IPUs: its agents are not there yet, and it may have some soon.
    pub fn of_emptiness(controller: &Controller) -> Option<Self> {
        let is_empty = controller.total_ipus == 0;
        is_empty.then(|| Self::Passing("has no IPUs at present".to_owned()))
    }

    /// It has too few IPUs, used or not.
    pub fn of_size(controller: &Controller, requirements: Requirements<'_>) -> Option<Self> {
        let (total, ipus) = (controller.total_ipus, requirements.ipus);
        (0 < total && total < ipus).then(|| {
            Self::Lasting(format!(
                "has {total} IPUs in all, fewer than the {ipus} requested"
            ))
        })
    }

    /// An earlier attempt there made no partition.
    pub fn of_attempts(controller: &Controller, attempts: &[Attempt]) -> Option<Self> {
        let mut attempts = attempts.iter();
        let last = attempts.rfind(|attempt| attempt.controller == controller.name)?;
        Some(Self::Passing(format!("was tried: {}", last.reason)))
    }

    /// Its free IPUs are not enough now.
    pub fn of_usage(controller: &Controller, requirements: Requirements<'_>) -> Option<Self> {
        let Controller {
            total_ipus: total,
            used_ipus: used,
            largest_free: largest,
            ..
        } = controller;
        let ipus = requirements.ipus;
        if *largest >= ipus {
            return None;
        }
        let free = total.saturating_sub(*used);
        Some(Self::Passing(if free < ipus {
            format!(
                "{used} of its {total} IPUs are used, and the largest free partition is {largest}, smaller than the \
                 {ipus} requested"
            )
        } else {
            format!(
                "{free} of its {total} IPUs are free, but not together: a partition can have {largest} now, fewer than \
                 the {ipus} requested"
            )
        }))
    }
}

/// The controllers that a guest has passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    passed_over: Vec<PassedOver>,
    /// Whether one of them may serve the request later.
    can_wait: bool,
}

impl Skipped {
    /// Adds a controller.
    pub fn add(&mut self, controller: &Controller, blocker: Blocker) {
        let reason = match blocker {
            Blocker::Lasting(reason) => reason,
            Blocker::Passing(reason) => {
                self.can_wait = true;
                reason
            }
        };
        let controller = controller.name.clone();
        self.passed_over.push(PassedOver { controller, reason });
    }

    /// Returns the decision if these are all controllers: the request waits if one of them may
    /// serve it later, or if there is none at all, and is rejected otherwise.
    pub fn decision(self, requirements: Requirements<'_>) -> Decision {
        if self.can_wait || self.passed_over.is_empty() {
            return Decision::Wait(self.passed_over);
        }
        let reasons: Vec<_> = self
            .passed_over
            .into_iter()
            .map(|PassedOver { controller, reason }| format!("{controller}: {reason}"))
            .collect();
        Decision::Reject(format!(
            "no V-IPU controller can ever serve {} IPUs ({})",
            requirements.ipus,
            reasons.join("; ")
        ))
    }
}
