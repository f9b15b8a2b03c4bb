//! Pure: the V-IPU controllers of an evaluation, as a file lists them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

/// Most IPUs of a controller.
const IPUS_MAX: u32 = 65_536;

/// Most controllers.
const CONTROLLERS_MAX: usize = 4_096;

/// A V-IPU controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its name.
    pub name: String,
    /// Its IPUs.
    pub ipus: u32,
}

/// Error of a list of controllers.
#[derive(Debug, thiserror::Error)]
pub enum ControllersError {
    /// The document has another form.
    #[error("at \"{0}\": {1}; write a list such as [{{name: pod, ipus: 64, count: 16}}]")]
    Form(String, #[source] serde_json::Error),
    /// A controller has no IPUs, or too many.
    #[error("ipus of {name} is {ipus}; it must be from 1 to {IPUS_MAX}")]
    Ipus {
        /// The controller.
        name: String,
        /// The value.
        ipus: u32,
    },
    /// Two controllers have the same name.
    #[error("two controllers have the name {0:?}; give each a name of its own")]
    Twice(String),
    /// The list is empty or too long.
    #[error("it lists {0} controllers; it must list from 1 to {CONTROLLERS_MAX}")]
    Number(usize),
}

/// An entry of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    ipus: u32,
    /// Number of controllers like this. Their names get a number.
    count: Option<usize>,
}

/// Reads a list of controllers.
pub fn parse(document: Value) -> Result<Vec<Controller>, ControllersError> {
    let entries: Vec<Entry> = serde_path_to_error::deserialize(document)
        .map_err(|error| ControllersError::Form(error.path().to_string(), error.into_inner()))?;
    let counts = entries.iter().map(|entry| entry.count.unwrap_or(1));
    let number = counts.fold(0, usize::saturating_add);
    if !(1..=CONTROLLERS_MAX).contains(&number) {
        return Err(ControllersError::Number(number));
    }
    let mut controllers = Vec::new();
    for Entry { name, ipus, count } in entries {
        if !(1..=IPUS_MAX).contains(&ipus) {
            return Err(ControllersError::Ipus { name, ipus });
        }
        match count {
            None => controllers.push(Controller { name, ipus }),
            Some(count) => controllers.extend((1..=count).map(|number| Controller {
                name: format!("{name}{number}"),
                ipus,
            })),
        }
    }
    let mut names = BTreeSet::new();
    match controllers.iter().find(|one| !names.insert(&one.name)) {
        Some(twice) => Err(ControllersError::Twice(twice.name.clone())),
        None => Ok(controllers),
    }
}

/// Returns the IPUs of all controllers.
pub fn capacity(controllers: &[Controller]) -> u64 {
    controllers.iter().map(|one| u64::from(one.ipus)).sum()
}

/// Returns the size of the largest partition that an empty controller holds.
pub fn largest_partition(controllers: &[Controller]) -> u32 {
    let largest = controllers.iter().map(|one| one.ipus).max().unwrap_or(0);
    ipu_api::partition_request::largest_partition(largest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_numbers_the_names() {
        let document = json!([
            {"name": "pod", "ipus": 64, "count": 2},
            {"name": "spare:8090", "ipus": 24},
        ]);
        let controllers = parse(document).unwrap();
        let names: Vec<_> = controllers.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["pod1", "pod2", "spare:8090"]);
        assert_eq!(capacity(&controllers), 152);
        assert_eq!(largest_partition(&controllers), 64);
        assert_eq!(largest_partition(&controllers[2..]), 16);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            (json!({}), "write a list such as"),
            (json!([{"name": "a", "ipus": "x"}]), "at \"[0].ipus\""),
            (
                json!([{"name": "a", "ipus": 1, "ipu": 1}]),
                "unknown field `ipu`",
            ),
            (json!([{"name": "a", "ipus": 0}]), "ipus of a is 0"),
            (
                json!([{"name": "a1", "ipus": 4}, {"name": "a", "ipus": 4, "count": 1}]),
                "the name \"a1\"",
            ),
            (json!([]), "it lists 0 controllers"),
            (
                json!([{"name": "a", "ipus": 4, "count": 5000}]),
                "it lists 5000 controllers",
            ),
        ];
        for (document, expected) in cases {
            let error = parse(document).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
