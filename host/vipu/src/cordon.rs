//! Pure: which controllers of the list take nothing new, and which are to be emptied, as an admin
//! writes it beside the list.

use std::collections::BTreeMap;

use ipu_api::ipupartition::ControllerRef;
use schemars::JsonSchema;
use serde::Serialize;

use super::controllers::{self, EntryProblem};

/// Key of the ConfigMap: controllers on which nothing new is made.
pub const CORDON: &str = "cordon";

/// Key of the ConfigMap: controllers that are to be emptied, and take nothing new either.
pub const DRAIN: &str = "drain";

/// Whether a controller is cordoned or drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CordonState {
    /// Nothing new is made on it.
    Cordoned,
    /// What is on it is brought off it, too.
    Draining,
}

/// The cordoned and drained controllers, by name.
pub type CordonStates = BTreeMap<String, CordonState>;

/// Reads both keys. Names are separated by commas or newlines; without a port it is that of the list.
pub fn parse(
    cordon: Option<&str>,
    drain: Option<&str>,
    entries: &[ControllerRef],
) -> (CordonStates, Vec<EntryProblem>) {
    let mut cordons = CordonStates::new();
    let mut problems = Vec::new();
    let keys = [
        (CORDON, cordon, CordonState::Cordoned),
        (DRAIN, drain, CordonState::Draining),
    ];
    for (key, text, cordon_state) in keys {
        for (index, (line, name)) in controllers::items(text.unwrap_or_default()).enumerate() {
            match named(name, entries) {
                Ok(name) => {
                    cordons.insert(name, cordon_state);
                }
                Err(rule) => problems.push(EntryProblem {
                    key,
                    line,
                    entry: index + 1,
                    text: controllers::shown(name),
                    rule,
                }),
            }
        }
    }
    (cordons, problems)
}

fn named(name: &str, entries: &[ControllerRef]) -> Result<String, String> {
    let name = controllers::address(name)?;
    if entries.iter().any(|entry| entry.name == name) {
        return Ok(name);
    }
    Err(format!(
        "{name} is none of the controllers in {}; write one of them as host:port",
        super::registry::KEY
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_list_are_closed_and_others_are_told() {
        let list = controllers::parse("pod1:8090:ipunode=a,pod2:ipunode=b,[fd00::1]:9:x=y");
        let read = |cordon: &str, drain: &str| parse(Some(cordon), Some(drain), &list.entries);
        let (cordons, problems) = read("pod1, POD2:8090\n[fd00::1]:9", "pod1:8090");
        assert!(problems.is_empty(), "{problems:?}");
        let expected = [
            ("[fd00::1]:9", CordonState::Cordoned),
            ("pod1:8090", CordonState::Draining),
            ("pod2:8090", CordonState::Cordoned),
        ];
        let expected = expected.map(|(name, cordon_state)| (name.to_owned(), cordon_state));
        assert_eq!(cordons, CordonStates::from(expected));
        let (cordons, problems) = read("# none\n", "pod1,pod9\npod1:x");
        assert_eq!(cordons.len(), 1);
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "entry 2 on line 1 of drain, \"pod9\": pod9:8090 is none of the controllers in \
                 controllers.yaml; write one of them as host:port",
                "entry 3 on line 2 of drain, \"pod1:x\": port \"x\" is not a number from 1 to 65535",
            ]
        );
        assert_eq!(
            parse(None, None, &list.entries),
            (CordonStates::new(), Vec::new())
        );
    }
}
