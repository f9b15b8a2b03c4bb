//! Pure: the states of the IPUs of one V-IPU controller at one moment. Each IPU is in exactly one
//! of them.

use std::sync::Arc;

use strum::{IntoStaticStr, VariantArray};

/// State of an IPU. The order is that in which states count if there seem to be more IPUs than the
/// controller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum IpuState {
    /// A Pod that uses the partition is ready.
    Running,
    /// The partition is being reset.
    Resetting,
    /// The partition is ready, and its first Pod is not.
    WaitingPods,
    /// The partition is ready, and no Pod uses it any more.
    IdleAllocated,
    /// The V-IPU controller creates the partition.
    Forming,
    /// The partition is being removed.
    Releasing,
    /// The partition is in error, or the V-IPU controller does not answer.
    Unhealthy,
    /// The operator has not created the partition.
    Others,
    /// Not observed.
    Unknown,
    /// Free, in blocks that are too small for every request that waits.
    Stranded,
    /// Free.
    Free,
}

/// Number of states of IPUs in partitions of the operator. They are the first ones of [`IpuState`].
pub(super) const ALLOCATED: usize = 6;

/// The observation of one V-IPU controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerUse {
    /// All of its IPUs. `None`: it does not answer.
    pub total: Option<u32>,
    /// IPUs in partitions that the operator has not created.
    pub others: u32,
    /// The IPUs in partitions of the operator.
    pub partitions: Vec<IpuGroup>,
    /// Whether its free blocks are too small for every request that waits.
    pub is_stranded: bool,
}

/// IPUs in the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpuGroup {
    /// Namespace of the owner of their partition. Empty: they are in no partition of the operator.
    pub namespace: Arc<str>,
    /// Their number.
    pub ipus: u32,
    /// Their state.
    pub state: IpuState,
}

/// The IPUs of a controller by state and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IpuStates(Vec<IpuGroup>);

impl IpuState {
    /// All states.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl IpuStates {
    /// The states of `capacity` IPUs. Partitions count first, in the order of their states, then
    /// those of others, as far as the controller has enough IPUs. The rest is free.
    pub(super) fn of(observed: &ControllerUse, capacity: u32) -> Self {
        if observed.total.is_none() {
            return Self::all(IpuState::Unhealthy, capacity);
        }
        let mut partitions = observed.partitions.clone();
        partitions.sort_by(|one, other| {
            (one.state, &one.namespace).cmp(&(other.state, &other.namespace))
        });
        partitions.push(unallocated(IpuState::Others, observed.others));
        let mut left = capacity;
        for one in &mut partitions {
            one.ipus = one.ipus.min(left);
            left -= one.ipus;
        }
        let free = if observed.is_stranded {
            IpuState::Stranded
        } else {
            IpuState::Free
        };
        partitions.push(unallocated(free, left));
        partitions.retain(|one| one.ipus > 0);
        Self(partitions)
    }

    /// All IPUs in one state.
    pub(super) fn all(state: IpuState, capacity: u32) -> Self {
        Self(vec![unallocated(state, capacity)])
    }

    /// The IPUs, in groups of the same state.
    pub(super) fn groups(&self) -> impl Iterator<Item = &IpuGroup> {
        self.0.iter()
    }
}

fn unallocated(state: IpuState, ipus: u32) -> IpuGroup {
    IpuGroup {
        namespace: Arc::default(),
        ipus,
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(namespace: &str, ipus: u32, state: IpuState) -> IpuGroup {
        IpuGroup {
            namespace: namespace.into(),
            ipus,
            state,
        }
    }

    fn shown(states: &IpuStates) -> Vec<String> {
        let each = states.groups();
        each.map(|one| format!("{} {} {}", one.state.name(), one.namespace, one.ipus))
            .collect()
    }

    #[test]
    fn each_ipu_is_in_one_state() {
        use IpuState::{Forming, Running, Unhealthy};
        let partitions = vec![
            partition("b", 4, Forming),
            partition("a", 8, Running),
            partition("b", 2, Unhealthy),
        ];
        let observed = ControllerUse {
            total: Some(32),
            others: 16,
            partitions,
            is_stranded: true,
        };
        let every = [
            "running a 8",
            "forming b 4",
            "unhealthy b 2",
            "others  16",
            "stranded  2",
        ];
        assert_eq!(shown(&IpuStates::of(&observed, 32)), every);
        // The controller returns with fewer IPUs. The most certain states count first.
        let fewer = ["running a 8", "forming b 1"];
        assert_eq!(shown(&IpuStates::of(&observed, 9)), fewer);
        let down = ControllerUse {
            total: None,
            ..observed
        };
        assert_eq!(shown(&IpuStates::of(&down, 32)), ["unhealthy  32"]);
        let empty = ControllerUse {
            total: Some(4),
            ..ControllerUse::default()
        };
        assert_eq!(shown(&IpuStates::of(&empty, 4)), ["free  4"]);
        assert_eq!(shown(&IpuStates::of(&empty, 0)), Vec::<String>::new());
    }

    #[test]
    fn states_of_allocated_ipus_come_first() {
        let is_in_order = IpuState::ALL.is_sorted();
        assert!(is_in_order);
        assert_eq!(IpuState::ALL[ALLOCATED], IpuState::Unhealthy);
    }
}
