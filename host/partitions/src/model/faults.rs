//! Faults of the model, and events that occur only once in it.

/// Something that happens once at most in a run of the small world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Fault {
    /// A request to a V-IPU controller, its reply, or the reply of the API server is lost.
    Lost,
    /// A call arrives once its caller has given up.
    Late,
    /// A call arrives a second time.
    Doubled,
    /// A controller refuses a call for a reason of its own.
    Refused,
    /// A replica dies between two of its effects, and starts again.
    Crashed,
    /// A replica is paused: its lease expires, the other one leads, and it goes on with what it knew.
    Paused,
    /// The other replica leads as well, and neither has missed anything.
    BothLead,
    /// A controller comes back empty.
    Emptied,
    /// A controller is unreachable for a time.
    Down,
    /// A controller denies access for a time.
    Denied,
    /// A partition does not form, or a reset or a removal fails.
    Failed,
    /// What is under way on a controller does not end, or something begins that does not.
    Stuck,
    /// Another release takes over, in another namespace or another cluster.
    HandedOver,
    /// Somebody writes what others have made into a status.
    Edited,
    /// An owner is deleted.
    JobDeleted,
    /// Somebody deletes an IPUPartition that is wanted.
    ObjectDeleted,
    /// An owner uses its partition a second time, which takes a reset.
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
}

impl Faults {
    /// Of these, so many at most.
    pub(super) fn of(faults: &[Fault], most: u8) -> Self {
        let set = faults.iter().fold(0, |set, fault| set | bit(*fault));
        Self { set, most }.reduced()
    }

    pub(super) fn none() -> Self {
        Self { set: 0, most: 0 }
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
        *self = Self { set, most }.reduced();
    }

    /// Which faults have occurred does not matter where none may follow: these states are one.
    fn reduced(self) -> Self {
        let count = u8::try_from(self.set.count_ones()).unwrap_or(u8::MAX);
        if self.most == 0 {
            return Self::none();
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
