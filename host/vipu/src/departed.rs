//! Pure: the admin's entries about controllers that have left the list: permanently gone, or
//! renamed.

use std::collections::{BTreeMap, BTreeSet};

use ipu_api::ipupartition::ControllerRef;

use super::controllers::{self, EntryProblem};

/// Key of the ConfigMap: controllers that are gone for good, with all their partitions.
pub const GONE: &str = "gone";

/// Key of the ConfigMap: renamed controllers, each as `old=new`.
pub const RENAMED: &str = "renamed";

/// Information of an admin about controllers that have left the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departed {
    /// Names of controllers that are gone for good: nothing remains on them, and the operator does
    /// not call them.
    pub gone: BTreeSet<String>,
    /// Names of renamed controllers, each with its current entry in the list.
    pub renamed: BTreeMap<String, ControllerRef>,
}

/// Reads both keys. Entries are separated by commas or newlines. An entry without a port has the
/// default port.
pub fn parse(
    gone: Option<&str>,
    renamed: Option<&str>,
    entries: &[ControllerRef],
) -> (Departed, Vec<EntryProblem>) {
    let mut departed = Departed::default();
    let mut problems = Vec::new();
    let keys = [(GONE, gone), (RENAMED, renamed)];
    for (key, text) in keys {
        for (index, (line, item)) in controllers::items(text.unwrap_or_default()).enumerate() {
            let taken = match key {
                GONE => departed.take_gone(item, entries),
                _ => departed.take_renamed(item, entries),
            };
            if let Err(rule) = taken {
                problems.push(EntryProblem {
                    key,
                    line,
                    entry: index + 1,
                    text: controllers::shown(item),
                    rule,
                });
            }
        }
    }
    (departed, problems)
}

impl Departed {
    fn take_gone(&mut self, item: &str, entries: &[ControllerRef]) -> Result<(), String> {
        self.gone.insert(not_listed(item, entries)?);
        Ok(())
    }

    fn take_renamed(&mut self, item: &str, entries: &[ControllerRef]) -> Result<(), String> {
        let (old, new) = item
            .split_once('=')
            .ok_or("write the old and the new address as old-host:port=new-host:port")?;
        let old = not_listed(old.trim(), entries)?;
        let new = controllers::address(new.trim())?;
        let Some(new) = entries.iter().find(|entry| entry.name == new) else {
            return Err(format!(
                "{new} is none of the controllers in {}; add it there, and name it here as host:port",
                controllers::KEY
            ));
        };
        if self.gone.contains(&old) {
            return Err(format!(
                "{old} is also under {GONE}, which takes precedence; remove one of the two"
            ));
        }
        self.renamed.insert(old, new.clone());
        Ok(())
    }
}

/// The name of a controller that is not in the list.
fn not_listed(text: &str, entries: &[ControllerRef]) -> Result<String, String> {
    let name = controllers::address(text)?;
    if entries.iter().any(|entry| entry.name == name) {
        return Err(format!(
            "{name} is still in {}; remove it there first",
            controllers::KEY
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn departed_controllers_are_gone_or_renamed() {
        let list = controllers::parse("new1:8090:ipunode=a,pod2:ipunode=b,[fd00::1]:9:x=y");
        let read = |gone: &str, renamed: &str| parse(Some(gone), Some(renamed), &list.entries);
        let (departed, problems) = read("pod9\nPOD8:8091", "pod1=new1, [fd00::2]:9=[fd00::1]:9");
        assert!(problems.is_empty(), "{problems:?}");
        let gone: Vec<_> = departed.gone.iter().map(String::as_str).collect();
        assert_eq!(gone, ["pod8:8091", "pod9:8090"]);
        let renamed = departed.renamed.iter();
        let renamed: Vec<_> = renamed.map(|(old, new)| (&**old, &*new.name)).collect();
        assert_eq!(
            renamed,
            [("[fd00::2]:9", "[fd00::1]:9"), ("pod1:8090", "new1:8090")]
        );
        let (departed, problems) = read("pod9,pod2", "pod1\npod1=pod7,pod2=new1,pod9=new1");
        assert_eq!((departed.gone.len(), departed.renamed.len()), (1, 0));
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "entry 2 on line 1 of gone, \"pod2\": pod2:8090 is still in controllers.yaml; remove it there \
                 first",
                "entry 1 on line 1 of renamed, \"pod1\": write the old and the new address as \
                 old-host:port=new-host:port",
                "entry 2 on line 2 of renamed, \"pod1=pod7\": pod7:8090 is none of the controllers in \
                 controllers.yaml; add it there, and name it here as host:port",
                "entry 3 on line 2 of renamed, \"pod2=new1\": pod2:8090 is still in controllers.yaml; \
                 remove it there first",
                "entry 4 on line 2 of renamed, \"pod9=new1\": pod9:8090 is also under gone, which takes \
                 precedence; remove one of the two",
            ]
        );
    }
}
