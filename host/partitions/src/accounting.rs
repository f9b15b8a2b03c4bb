//! Accounts for the IPU-seconds of V-IPU controllers: each of them is in exactly one state.
//!
//! `observation` determines the states of all IPUs from the ledger, the controllers' reports and
//! the readiness of Pods (`pod_readiness`). `account` adds them up; both are pure.
//! `publish::account_recorder` observes while this replica leads. IPUAccountings carry the accounts
//! over a restart and a change of the leader; `stored` reads them.

mod account;
mod accounts;
mod ipu_states;
pub mod observation;
mod periods;
pub mod pod_readiness;
pub mod stored;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use ipu_api::accounting::Accounting;
use ipu_api::ipuaccounting::IPUAccountingSpec;
use parking_lot::{Mutex, MutexGuard};

pub use account::Account;
pub use accounts::Accounts;
pub use ipu_states::{ControllerUse, IpuGroup, IpuState};
pub use pod_readiness::WATCH_MEMORY;

/// The accounts of the leader; those of any other replica are empty. Clones are cheap and share the
/// data.
#[derive(Clone, Debug, Default)]
pub struct AccountStore {
    accounts: Arc<Mutex<Accounts>>,
    inactive: Arc<Mutex<Accounts>>,
}

impl AccountStore {
    /// The account of a controller as its IPUAccounting records it. `None` until the accounts of
    /// the previous leader are read, because the new accounts continue them.
    pub fn record(&self, address: &str) -> Option<IPUAccountingSpec> {
        self.accounts().record(address)
    }

    /// The same of all controllers, by address.
    pub fn statuses(&self) -> BTreeMap<String, Accounting> {
        self.accounts().statuses()
    }

    /// Makes the accounts of a replica that does not lead any more inactive: another leader
    /// continues them, or this replica if it is the next one.
    pub fn deactivate(&self) {
        let accounts = mem::take(&mut *self.accounts());
        // A leader that lost its lease before it had read the records has none.
        if accounts != Accounts::default() {
            *self.inactive.lock() = accounts;
        }
    }

    /// The accounts from when this replica led before.
    pub(crate) fn inactive(&self) -> Accounts {
        self.inactive.lock().clone()
    }

    /// The accounts, to read or to change them.
    pub fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Each change is complete before the next one begins.
        self.accounts.lock()
    }
}
