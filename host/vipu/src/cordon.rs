//! Pure: the cordoned and drained V-IPU controllers, by the requests of admins in VIPUControllers.

use std::collections::BTreeMap;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::naming;
use ipu_api::vipu_controller::{CordonState, CordonStates};

use super::controllers::{self, EntryProblem};

/// Keys of the ConfigMap that contained the cordons in version 0.1.0, each with the field of a
/// VIPUController that replaces it.
const FORMER_KEYS: [(&str, &str); 2] = [("cordon", "cordoned"), ("drain", "draining")];

/// Requests of admins, by the name of the VIPUController.
pub type CordonRequests = BTreeMap<String, CordonRequest>;

/// Request of an admin for one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CordonRequest {
    /// Whether it is cordoned or drained.
    pub cordon_state: CordonState,
    /// The address in the status. `None`: no status has been written yet.
    pub address: Option<String>,
}

/// The cordoned and drained controllers. An unlisted controller counts while it has an object. An
/// object that an admin creates before the controller is listed counts from the first moment on.
pub fn states(requests: &CordonRequests, entries: &[ControllerRef]) -> CordonStates {
    let listed = entries.iter().map(|entry| entry.name.as_str());
    // For an unlisted controller, only the status contains its address.
    let left = requests
        .values()
        .filter_map(|request| request.address.as_deref());
    let state = |name: &str| {
        let request = requests.get(&naming::vipu_controller(name))?;
        Some((name.to_owned(), request.cordon_state))
    };
    listed.chain(left).filter_map(state).collect()
}

/// Reports the entries of the former keys, which do not cordon a controller any more.
pub fn former_entries<'a>(value: impl Fn(&'static str) -> Option<&'a str>) -> Vec<EntryProblem> {
    let mut problems = Vec::new();
    for (key, field) in FORMER_KEYS {
        let items = controllers::items(value(key).unwrap_or_default());
        problems.extend(items.enumerate().map(|(index, (line, item))| EntryProblem {
            key,
            line,
            entry: index + 1,
            text: controllers::shown(item),
            rule: former_entry(key, field, item),
        }));
    }
    problems
}

/// The fix for an entry of a former key.
fn former_entry(key: &str, field: &str, item: &str) -> String {
    let name = match controllers::address(item) {
        Ok(address) => naming::vipu_controller(&address),
        Err(rule) => return format!("the key {key} has no effect any more, and {rule}"),
    };
    format!(
        "the key {key} has no effect any more; if it still applies, create the VIPUController {name} with {field}: true in \
         its spec, or run kubectl patch vipucontroller {name} --type merge --patch '{{\"spec\": {{\"{field}\": true}}}}'; \
         then remove the key"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_former_key_says_what_to_do_now() {
        let keys = |cordon: Option<&'static str>, drain: Option<&'static str>| {
            let found = former_entries(|key| match key {
                "cordon" => cordon,
                "drain" => drain,
                other => panic!("{other}"),
            });
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for empty in [None, Some(""), Some("# none\n")] {
            assert_eq!(keys(empty, empty), [""; 0], "{empty:?}");
        }
        assert_eq!(
            keys(Some("pod1:8090"), Some("\npod2,pod 3")),
            [
                "entry 1 on line 1 of cordon, \"pod1:8090\": the key cordon has no effect any more; if it still applies, \
                 create the VIPUController pod1-8090 with cordoned: true in its spec, or run kubectl patch \
                 vipucontroller pod1-8090 --type merge --patch '{\"spec\": {\"cordoned\": true}}'; then remove the key",
                "entry 1 on line 2 of drain, \"pod2\": the key drain has no effect any more; if it still applies, create \
                 the VIPUController pod2-8090 with draining: true in its spec, or run kubectl patch vipucontroller \
                 pod2-8090 --type merge --patch '{\"spec\": {\"draining\": true}}'; then remove the key",
                "entry 2 on line 2 of drain, \"pod 3\": the key drain has no effect any more, and host \"pod 3\" is not a \
                 DNS name or an IP address",
            ]
        );
    }

    fn request(cordon_state: CordonState, address: Option<&str>) -> CordonRequest {
        CordonRequest {
            cordon_state,
            address: address.map(ToOwned::to_owned),
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
