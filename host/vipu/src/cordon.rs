//! Pure: which controllers take nothing new, and which are to be emptied, as admins write it in VIPUControllers.

use std::collections::BTreeMap;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::naming;
use ipu_api::vipu_controller::VIPUControllerSpec;
use schemars::JsonSchema;
use serde::Serialize;

/// Whether a controller is cordoned or drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CordonState {
    /// Nothing new is made on it.
    Cordoned,
    /// What is on it is brought off it, too.
    Draining,
}

impl CordonState {
    /// What an admin asks of a controller. One that is drained is cordoned as well.
    pub fn of(spec: &VIPUControllerSpec) -> Option<Self> {
        if spec.draining {
            return Some(Self::Draining);
        }
        spec.cordoned.then_some(Self::Cordoned)
    }
}

/// The cordoned and drained controllers, by name.
pub type CordonStates = BTreeMap<String, CordonState>;

/// What admins ask, by the name of the VIPUController.
pub type CordonRequests = BTreeMap<String, CordonRequest>;

/// What an admin asks of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CordonRequest {
    /// Whether it is cordoned or drained.
    pub cordon_state: CordonState,
    /// The address that the status has. `None`: no status has been written yet.
    pub address: Option<String>,
}

/// The cordoned and drained controllers: those of the list, and those that have left it and still have an object. An object
/// that an admin creates before the controller is listed counts from the first moment on.
pub fn states(requests: &CordonRequests, entries: &[ControllerRef]) -> CordonStates {
    let listed = entries.iter().map(|entry| entry.name.as_str());
    // Of one that has left the list, only the status says which address the name of the object stands for.
    let left = requests
        .values()
        .filter_map(|request| request.address.as_deref());
    let state = |name: &str| {
        let request = requests.get(&naming::vipu_controller(name))?;
        Some((name.to_owned(), request.cordon_state))
    };
    listed.chain(left).filter_map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers;

    fn request(cordon_state: CordonState, address: Option<&str>) -> CordonRequest {
        CordonRequest {
            cordon_state,
            address: address.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn one_that_is_drained_is_cordoned_and_one_that_is_neither_takes_new_partitions() {
        for (cordoned, draining, expected) in [
            (false, false, None),
            (true, false, Some(CordonState::Cordoned)),
            (false, true, Some(CordonState::Draining)),
            (true, true, Some(CordonState::Draining)),
        ] {
            let spec = VIPUControllerSpec {
                cordoned,
                draining,
                ..VIPUControllerSpec::default()
            };
            assert_eq!(CordonState::of(&spec), expected, "{spec:?}");
        }
    }

    #[test]
    fn objects_are_found_by_the_address_of_the_list_or_of_their_status() {
        let list = controllers::parse("pod1:8090:ipunode=a,pod2:ipunode=b,[fd00::1]:9:x=y");
        let requests = CordonRequests::from([
            ("pod1-8090".to_owned(), request(CordonState::Draining, None)),
            (
                naming::vipu_controller("[fd00::1]:9"),
                request(CordonState::Cordoned, None),
            ),
            (
                "left-8090".to_owned(),
                request(CordonState::Draining, Some("left:8090")),
            ),
            // Nobody knows its address, and no status that names another one's cordons that.
            (
                "unknown-8090".to_owned(),
                request(CordonState::Cordoned, Some("pod2:8090")),
            ),
        ]);
        let expected = [
            ("[fd00::1]:9", CordonState::Cordoned),
            ("left:8090", CordonState::Draining),
            ("pod1:8090", CordonState::Draining),
        ];
        let expected = expected.map(|(name, cordon_state)| (name.to_owned(), cordon_state));
        assert_eq!(
            states(&requests, &list.entries),
            CordonStates::from(expected)
        );
        assert_eq!(
            states(&CordonRequests::new(), &list.entries),
            CordonStates::new()
        );
    }
}
