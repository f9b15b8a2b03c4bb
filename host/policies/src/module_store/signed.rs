//! The keys that signed a loaded module, and the times at which the operator checks that they still
//! count.

use std::time::Duration;

use tokio::time::Instant;

use super::{Failure, ModuleStore, VersionState};
use crate::active_set::Version;
use crate::report::DesiredVersion;
use crate::source::Signers;

/// Period at which the operator checks that the keys which signed a loaded module still count.
pub(super) const SIGNER_PERIOD: Duration = Duration::from_secs(20);

/// Time for which the keys of an absent ConfigMap or Secret count. Tools replace an object by
/// deleting and creating it.
pub(super) const ABSENCE: Duration = Duration::from_secs(15);

/// The keys that signed a loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    signers: Signers,
    /// Time at which a check found no object with the keys. `None` while the keys count.
    absent_since: Option<Instant>,
    /// Time of the next check. `None` while it is under way.
    check_at: Option<Instant>,
}

impl Signed {
    /// The keys that signed a module, as they were when their reading began.
    pub fn at(keys_read_at: Instant, signers: Signers) -> Self {
        Self {
            signers,
            absent_since: None,
            check_at: Some(keys_read_at + SIGNER_PERIOD),
        }
    }

    /// The same keys after a check that could not read them.
    #[must_use]
    pub fn unread(self, now: Instant) -> Self {
        Self {
            check_at: Some(now + SIGNER_PERIOD),
            ..self
        }
    }

    /// The same keys after a check that found no object with them. `None` if it has been absent for
    /// [`ABSENCE`].
    pub fn absent(self, now: Instant) -> Option<Self> {
        let since = self.absent_since.unwrap_or(now);
        let end = since + ABSENCE;
        (now < end).then_some(Self {
            absent_since: Some(since),
            check_at: Some(end),
            ..self
        })
    }

    /// The fingerprints of the keys.
    pub fn signers(&self) -> &Signers {
        &self.signers
    }

    /// Time of the next check. `None` while it is under way.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }
}

impl ModuleStore {
    /// Marks the signed versions as being checked, and returns them, if one of them is due. All are
    /// checked together, so that one read of the keys of the release is enough.
    pub fn start_checks(
        &mut self,
        desired: &[DesiredVersion],
        now: Instant,
    ) -> Vec<(DesiredVersion, Signed)> {
        let mut states = self.versions.values();
        let is_due = states.any(|state| {
            let signed = signed(state);
            signed
                .and_then(Signed::check_at)
                .is_some_and(|check_at| check_at <= now)
        });
        if !is_due {
            return Vec::new();
        }
        let mut start = |desired: &DesiredVersion| {
            let key = (desired.uid.clone(), desired.generation);
            let Some(VersionState::Ready(ready)) = self.versions.get_mut(&key) else {
                return None;
            };
            let signed = ready.signed.as_mut()?;
            signed.check_at.take()?;
            Some((desired.clone(), signed.clone()))
        };
        desired.iter().filter_map(&mut start).collect()
    }

    /// Stores the result of a check of signers. A version whose signers no longer count has no
    /// guest.
    pub fn finish_check(
        &mut self,
        version: &Version,
        checked: Result<Signed, Failure>,
        now: Instant,
    ) {
        let Some(VersionState::Ready(ready)) = self.versions.get_mut(version) else {
            return;
        };
        match checked {
            Ok(signed) => ready.signed = Some(signed),
            Err(failure) => self.finish(version, Err(failure), now),
        }
    }
}

/// The keys that signed the module of a version that is ready.
fn signed(state: &VersionState) -> Option<&Signed> {
    match state {
        VersionState::Ready(ready) => ready.signed.as_ref(),
        VersionState::Preparing | VersionState::Failed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signers() -> Signers {
        ["sha256:key".to_owned()].into()
    }

    #[test]
    fn keys_of_an_absent_object_count_for_a_limited_time() {
        let found_at = Instant::now();
        let verified = Signed::at(found_at - SIGNER_PERIOD, signers());
        let absent = verified.absent(found_at).unwrap();
        let end = found_at + ABSENCE;
        assert_eq!(absent.check_at(), Some(end));
        // Another check or a failed one does not prolong the time.
        let again = absent.clone().absent(found_at + ABSENCE / 2).unwrap();
        assert_eq!(again, absent);
        let unread = absent.unread(found_at + ABSENCE / 2);
        assert_eq!(unread.absent(end), None);
    }
}
