//! Pure: how long IPUs were in partitions, to the millisecond.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The IPUs of all partitions of a pod, past and present. A partition counts in every stage, from
/// its creation to its removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupancy {
    /// IPUs of all partitions that were created.
    pub ipus: u64,
    /// Milliseconds that IPUs were in partitions.
    pub ipu_milliseconds: u64,
}

impl Occupancy {
    /// Counts a new partition with this number of IPUs.
    pub(super) fn begin(&mut self, ipus: u32) {
        self.ipus += u64::from(ipus);
    }

    /// Counts a partition until its removal, or until now.
    pub(super) fn add(&mut self, ipus: u32, since: Timestamp, until: Timestamp) {
        let milliseconds = until.as_millisecond() - since.as_millisecond();
        let milliseconds = u64::try_from(milliseconds).unwrap_or(0);
        self.ipu_milliseconds += u64::from(ipus) * milliseconds;
    }
}
