//! Pure: the accounts of all V-IPU controllers, by address.

use std::collections::BTreeMap;

use ipu_api::accounting::Accounting;
use jiff::Timestamp;

use super::account::Account;
use super::ipu_states::{ControllerUse, IpuState};

/// The accounts of all V-IPU controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    controllers: BTreeMap<String, Account>,
}

impl Accounts {
    /// Continues the account of a controller that had so many IPUs.
    pub fn resume(&mut self, controller: &str, status: &Accounting, capacity: u32) {
        let account = Account::resume(status, capacity);
        self.controllers.insert(controller.to_owned(), account);
    }

    /// Replaces the accounts of the statuses by those that this replica counted while it led before, unless another
    /// leader has counted more since. This replica may have lost its lease before it could write its last counts.
    pub fn prefer_own(&mut self, own: Self) {
        for (name, account) in own.controllers {
            if let Some(written) = self.controllers.get_mut(&name)
                && account.contains(written)
            {
                *written = account.after_a_gap();
            }
        }
    }

    /// Applies an observation of all listed controllers. The account of a controller begins with its first answer. An
    /// account without an observation stays unchanged while `is_kept`, and is dropped otherwise.
    pub fn observe(
        &mut self,
        controllers: &BTreeMap<String, ControllerUse>,
        is_kept: impl Fn(&str) -> bool,
        now: Timestamp,
    ) {
        self.controllers
            .retain(|name, _| controllers.contains_key(name) || is_kept(name));
        for (name, observed) in controllers {
            if let Some(account) = self.controllers.get_mut(name) {
                account.observe(observed, now);
            } else if observed.total.is_some() {
                let mut account = Account::begin(now);
                account.observe(observed, now);
                self.controllers.insert(name.clone(), account);
            }
        }
    }

    /// Counts the time until `now` with the states of the last observation: for the last statuses of a replica that stops.
    pub fn count_until(&mut self, now: Timestamp) {
        for account in self.controllers.values_mut() {
            account.count_until(now);
        }
    }

    /// The account of a controller as its status reports it.
    pub fn status(&self, controller: &str) -> Option<Accounting> {
        Some(self.controllers.get(controller)?.status())
    }

    /// The accounts as the statuses of the controllers report them, by address.
    pub fn statuses(&self) -> BTreeMap<String, Accounting> {
        let each = self.controllers.iter();
        each.map(|(name, account)| (name.clone(), account.status()))
            .collect()
    }

    /// IPU-seconds of each controller by state.
    pub fn seconds(&self) -> impl Iterator<Item = (&str, [(IpuState, f64); IpuState::ALL.len()])> {
        let each = self.controllers.iter();
        each.map(|(name, account)| (name.as_str(), account.seconds()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn answers(total: Option<u32>) -> ControllerUse {
        ControllerUse {
            total,
            ..ControllerUse::default()
        }
    }

    fn free(accounts: &Accounts, controller: &str) -> Option<f64> {
        let mut all = accounts.seconds();
        let (_, seconds) = all.find(|(name, _)| *name == controller)?;
        let mut states = seconds.into_iter();
        states.find_map(|(state, seconds)| (state == IpuState::Free).then_some(seconds))
    }

    #[test]
    fn a_controller_is_counted_from_its_first_answer_until_it_is_gone() {
        let mut accounts = Accounts::default();
        let listed = |total| BTreeMap::from([("pod1:8090".to_owned(), answers(total))]);
        accounts.observe(&listed(None), |_| false, at(0));
        assert_eq!(accounts.statuses().len(), 0);
        accounts.observe(&listed(Some(16)), |_| false, at(10));
        accounts.observe(&listed(Some(16)), |_| false, at(20));
        assert_eq!(free(&accounts, "pod1:8090"), Some(160.0));
        // It left the list, with partitions.
        accounts.observe(&BTreeMap::new(), |name| name == "pod1:8090", at(30));
        assert_eq!(free(&accounts, "pod1:8090"), Some(160.0));
        accounts.observe(&listed(Some(16)), |_| false, at(40));
        let status = accounts.status("pod1:8090").unwrap();
        assert_eq!(status.until.0, at(40));
        accounts.observe(&BTreeMap::new(), |_| false, at(50));
        assert_eq!(free(&accounts, "pod1:8090"), None);
        accounts.resume("pod1:8090", &status, 16);
        let statuses = BTreeMap::from([("pod1:8090".to_owned(), status)]);
        assert_eq!(accounts.statuses(), statuses);
    }

    #[test]
    fn a_leader_that_leads_again_keeps_what_it_had_not_written() {
        let listed = BTreeMap::from([("pod1:8090".to_owned(), answers(Some(16)))]);
        let mut own = Accounts::default();
        own.observe(&listed, |_| false, at(0));
        own.observe(&listed, |_| false, at(10));
        let written = own.status("pod1:8090").unwrap();
        own.observe(&listed, |_| false, at(40));
        let resumed = |status: &Accounting| {
            let mut accounts = Accounts::default();
            accounts.resume("pod1:8090", status, 16);
            accounts.prefer_own(own.clone());
            accounts
        };
        let mut accounts = resumed(&written);
        accounts.observe(&listed, |_| false, at(45));
        // The five seconds in between were not observed.
        assert_eq!(free(&accounts, "pod1:8090"), Some(640.0));
        let until = accounts.status("pod1:8090").unwrap().until;
        assert_eq!(until.0, at(45));

        // Another leader has continued the account, or has begun another one.
        let mut later = written.clone();
        later.until.0 = at(42);
        let mut other = written.clone();
        other.since.0 = at(5);
        other.total.start.0 = at(5);
        for status in [later, other] {
            let statuses = BTreeMap::from([("pod1:8090".to_owned(), status.clone())]);
            assert_eq!(resumed(&status).statuses(), statuses);
        }

        // There is no account, for example because the controller has left the list.
        let mut none = Accounts::default();
        none.prefer_own(own);
        assert_eq!(none.statuses().len(), 0);
    }
}
