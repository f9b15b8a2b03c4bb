//! Pure: the accounts of all V-IPU controllers, by address.

use std::collections::BTreeMap;

use ipu_api::accounting::Accounting;
use ipu_api::ipuaccounting::IPUAccountingSpec;
use jiff::Timestamp;

use super::account::Account;
use super::ipu_states::{ControllerUse, IpuState};

/// The accounts of all V-IPU controllers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    controllers: BTreeMap<String, Account>,
    /// Those of controllers that have left the list. One that returns is continued.
    left: BTreeMap<String, Account>,
}

impl Accounts {
    /// Continues the stored account of a controller that had `capacity` IPUs.
    pub fn resume(&mut self, controller: &str, status: &Accounting, capacity: u32) {
        let account = Account::resume(status, capacity);
        self.controllers.insert(controller.to_owned(), account);
    }

    /// Replaces the accounts that were read by those that this replica counted while it led before,
    /// unless another leader has counted more since. This replica may have lost its lease before it
    /// could write its last counts.
    pub fn prefer_own(&mut self, own: Self) {
        for (name, account) in own.controllers.into_iter().chain(own.left) {
            if let Some(written) = self.controllers.get_mut(&name)
                && account.contains(written)
            {
                *written = account.after_a_gap();
            }
        }
    }

    /// Applies an observation of all listed controllers. The account of a controller begins with
    /// its first answer. An account without an observation stays unchanged while `is_kept`.
    /// Otherwise its controller is gone, and it continues after a gap if the controller returns: a
    /// mistake in the list must not end the account of a month.
    pub fn observe(
        &mut self,
        controllers: &BTreeMap<String, ControllerUse>,
        is_kept: impl Fn(&str) -> bool,
        now: Timestamp,
    ) {
        self.set_gone_aside(|name| controllers.contains_key(name) || is_kept(name));
        for (name, observed) in controllers {
            if let Some((name, account)) = self.left.remove_entry(name) {
                self.controllers.insert(name, account.after_a_gap());
            }
            if let Some(account) = self.controllers.get_mut(name) {
                account.observe(observed, now);
            } else if observed.total.is_some() {
                let mut account = Account::begin(now);
                account.observe(observed, now);
                self.controllers.insert(name.clone(), account);
            }
        }
    }

    fn set_gone_aside(&mut self, is_there: impl Fn(&str) -> bool) {
        let names = self.controllers.keys();
        let gone: Vec<String> = names.filter(|name| !is_there(name)).cloned().collect();
        for name in gone {
            if let Some(account) = self.controllers.remove(&name) {
                self.left.insert(name, account);
            }
        }
    }

    /// Counts the time until `now` with the states of the last observation: for the last records of
    /// a replica that stops.
    pub fn count_until(&mut self, now: Timestamp) {
        for account in self.controllers.values_mut() {
            account.count_until(now);
        }
    }

    /// The account of a controller as its IPUAccounting records it.
    pub fn record(&self, controller: &str) -> Option<IPUAccountingSpec> {
        let account = self.controllers.get(controller)?;
        Some(IPUAccountingSpec {
            address: controller.to_owned(),
            ipus: account.capacity(),
            accounting: account.status(),
        })
    }

    /// The accounts as the IPUAccountings record them, by address.
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
        let record = accounts.record("pod1:8090").unwrap();
        assert_eq!((record.ipus, record.accounting.until.0), (16, at(40)));
        accounts.observe(&BTreeMap::new(), |_| false, at(50));
        assert_eq!(free(&accounts, "pod1:8090"), None);
        accounts.resume("pod1:8090", &record.accounting, record.ipus);
        assert_eq!(accounts.record("pod1:8090"), Some(record));
    }

    /// The list lost an entry by mistake, and got it back.
    #[test]
    fn a_controller_that_returns_to_the_list_continues_its_account_also_with_another_leader() {
        let listed = BTreeMap::from([("pod1:8090".to_owned(), answers(Some(16)))]);
        let mut same = Accounts::default();
        for second in [0, 10] {
            same.observe(&listed, |_| false, at(second));
        }
        let written = same.record("pod1:8090").unwrap();
        let mut next = Accounts::default();
        next.resume(&written.address, &written.accounting, written.ipus);
        for accounts in [&mut same, &mut next] {
            accounts.observe(&BTreeMap::new(), |_| false, at(20));
            assert_eq!(accounts.record("pod1:8090"), None);
            for second in [30, 31] {
                accounts.observe(&listed, |_| false, at(second));
            }
            let accounting = accounts.record("pod1:8090").unwrap().accounting;
            assert_eq!(accounting.since.0, at(0));
            let unallocated = accounting.total.unallocated;
            assert_eq!((unallocated.free, unallocated.unknown), (176.0, 320.0));
        }
    }

    #[test]
    fn a_leader_that_leads_again_keeps_what_it_had_not_written() {
        let listed = BTreeMap::from([("pod1:8090".to_owned(), answers(Some(16)))]);
        let mut own = Accounts::default();
        own.observe(&listed, |_| false, at(0));
        own.observe(&listed, |_| false, at(10));
        let written = own.record("pod1:8090").unwrap().accounting;
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
        let until = accounts.record("pod1:8090").unwrap().accounting.until;
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
