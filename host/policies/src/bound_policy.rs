//! A guest together with the settings of its policy, ready to be called.

use std::sync::Arc;

use ipu_api::ipupolicy::{BUILT_IN, Hook, OnError};
use ipu_guest_host::Guest;

use super::call_stats::CallStats;
use super::matcher::Matcher;

/// A guest bound to the settings of its policy.
#[derive(Clone, Debug)]
pub struct BoundPolicy {
    /// Name of the IPUPolicy, or [`BUILT_IN`].
    pub name: Arc<str>,
    /// The guest.
    pub guest: Guest,
    /// Its `spec.match`.
    pub matcher: Arc<Matcher>,
    /// Reaction to a missing answer.
    pub on_error: OnError,
    /// Results of its calls.
    pub stats: Arc<CallStats>,
}

/// A policy whose matching requests wait until its first version is active on this replica.
#[derive(Clone, Debug)]
pub struct AwaitedPolicy {
    /// Name of the IPUPolicy.
    pub name: Arc<str>,
    /// Its `spec.match`.
    pub matcher: Arc<Matcher>,
    /// Reason why it is not active yet.
    pub reason: String,
}

impl BoundPolicy {
    /// Returns the built-in guest of a hook.
    pub fn built_in(hook: Hook) -> Self {
        Self {
            name: BUILT_IN.into(),
            guest: ipu_guest_host::BUILT_IN.clone(),
            matcher: Arc::default(),
            on_error: match hook {
                Hook::Defaulting | Hook::Validation => OnError::Fail,
                Hook::Placement => OnError::Fallback,
            },
            stats: Arc::default(),
        }
    }
}
