//! The memory items of each process fit its container's limit in total, and the documents show the
//! same sums.

use std::collections::BTreeMap;

use ipu_operator::memory::{self, Item};
use serde_json::Value;

use super::values::file;

/// A process, the section of its values, and its items.
fn processes() -> [(&'static str, &'static str, Vec<Item>); 2] {
    [
        ("controller", "controller", memory::controller()),
        ("vipu-proxy", "vipuProxy", memory::vipu_proxy()),
    ]
}

fn mib(bytes: usize) -> usize {
    bytes.div_ceil(1 << 20)
}

/// The limit of a container in MiB.
fn limit(values: &Value, section: &str) -> usize {
    let limit = &values[section]["resources"]["limits"]["memory"];
    let limit = limit.as_str().and_then(|text| text.strip_suffix("Mi"));
    let limit = limit.and_then(|number| number.parse().ok());
    limit.unwrap_or_else(|| panic!("{section}.resources.limits.memory is no number of Mi"))
}

/// The items of a process in a document, each with its MiB.
fn documented(document: &str, process: &str) -> BTreeMap<String, usize> {
    let start = format!("| {process} | ");
    let row = document.lines().find_map(|line| line.strip_prefix(&start));
    let row = row.unwrap_or_else(|| panic!("docs/security-memory.md has no row of the {process}"));
    let items = row.split(" | ").next().unwrap_or_default().split(", ");
    let item = |item: &str| {
        let (what, mib) = item.rsplit_once(' ')?;
        Some((what.to_owned(), mib.parse().ok()?))
    };
    let item = |one: &str| item(one).unwrap_or_else(|| panic!("{one:?} has no number of MiB"));
    items.map(item).collect()
}

#[test]
fn the_memory_items_of_a_process_fit_its_container() {
    let values: Value = serde_saphyr::from_str(&file("values.yaml")).unwrap();
    let document = file("docs/security-memory.md");
    for (process, section, items) in processes() {
        let limit = limit(&values, section);
        let sum = mib(memory::sum(&items));
        assert!(
            sum <= limit,
            "the {process} may take {sum} MiB, more than its limit of {limit} MiB: {items:?}"
        );
        let documented = documented(&document, process);
        assert_eq!(documented.len(), items.len(), "{documented:?}");
        for (what, bytes) in items {
            let (stated, takes) = (documented.get(what).copied(), mib(bytes));
            assert!(
                stated.is_some_and(|most| takes <= most),
                "docs/security-memory.md: `{what}` of the {process} has {stated:?} MiB; the process may take {takes}"
            );
        }
        let together: usize = documented.values().sum();
        assert!(
            together <= limit,
            "{process}: the document has {together} MiB in total"
        );
        let end = format!(" | {together} | {limit} |");
        assert!(
            document.contains(&end),
            "docs/security-memory.md lacks `{end}`"
        );
    }
}
