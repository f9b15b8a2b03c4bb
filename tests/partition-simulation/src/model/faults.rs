//! Faults of the model, and events that occur only once in it.

/// An event that occurs at most once in a run of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fault {
    /// A request to a V-IPU controller, its reply, or the reply of the API server is lost.
    Lost,
    /// A call arrives after its caller has given up.
    Late,
    /// A call arrives a second time.
    Doubled,
    /// A controller refuses a call.
    Refused,
    /// A replica crashes between two of its effects, and restarts.
    Crashed,
    /// A replica is paused: its lease expires, the other one leads, and it continues with outdated
    /// state.
    Paused,
    /// The other replica leads as well, and neither is outdated.
    BothLead,
    /// A controller loses its state.
    Emptied,
    /// A controller is unreachable for a time.
    Down,
    /// A controller denies access for a time.
    Denied,
    /// A partition does not form, or a reset or a removal fails.
    Failed,
    /// An operation on a controller does not finish, or one begins that does not.
    Stuck,
    /// Another release takes over, in another namespace or another cluster.
    HandedOver,
    /// A client writes the partition of another one into a status.
    Edited,
    /// An owner is deleted.
    JobDeleted,
    /// A client deletes an IPUPartition that is requested.
    ObjectDeleted,
    /// An owner uses its partition a second time, which requires a reset.
    UsedAgain,
}

impl Fault {
    pub(super) const ALL: [Fault; 17] = [
        Fault::Lost,
        Fault::Late,
        Fault::Doubled,
        Fault::Refused,
        Fault::Crashed,
        Fault::Paused,
        Fault::BothLead,
        Fault::Emptied,
        Fault::Down,
        Fault::Denied,
        Fault::Failed,
        Fault::Stuck,
        Fault::HandedOver,
        Fault::Edited,
        Fault::JobDeleted,
        Fault::ObjectDeleted,
        Fault::UsedAgain,
    ];
}

/// The faults that may still occur, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    set: u32,
    most: u8,
    assigns_once: bool,
}

impl Faults {
    /// The maximal number of these.
    pub(super) fn of(faults: &[Fault], most: u8) -> Self {
        let set = faults.iter().fold(0, |set, fault| set | bit(*fault));
        Self {
            set,
            most,
            assigns_once: true,
        }
        .reduced()
    }

    /// Whether IPUs that a Pod uses may not be assigned to another owner. As in the simulation: a
    /// late call and two active replicas may do so where the controller has lost its state.
    pub(super) fn assigns_once(self) -> bool {
        self.assigns_once
    }

    pub(super) fn may(self, fault: Fault) -> bool {
        self.set & bit(fault) != 0
    }

    /// Whether no more faults occur.
    pub(super) fn is_spent(self) -> bool {
        self.most == 0
    }

    pub(super) fn spend(&mut self, fault: Fault) {
        let set = self.set & !bit(fault);
        let most = self.most.saturating_sub(1);
        let breaks = [Fault::Late, Fault::Doubled, Fault::Paused, Fault::BothLead];
        let assigns_once = self.assigns_once && !breaks.contains(&fault);
        *self = Self {
            set,
            most,
            assigns_once,
        }
        .reduced();
    }

    /// Removes the faults that have occurred if no more may follow: these states are equal.
    fn reduced(self) -> Self {
        let count = u8::try_from(self.set.count_ones()).unwrap_or(u8::MAX);
        if self.most == 0 {
            return Self { set: 0, ..self };
        }
        Self {
            most: self.most.min(count),
            ..self
        }
    }
}

fn bit(fault: Fault) -> u32 {
    1 << fault as u32
}
