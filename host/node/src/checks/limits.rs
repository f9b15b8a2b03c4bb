//! Pure: what containers get of the node: locked memory, shared memory, huge pages, kernel modules.

use std::fmt::Display;

use super::Finding;
use crate::facts::{Amount, Facts};
use crate::requirements::Requirements;

/// Whether containers may lock enough memory.
pub(super) fn memlock(facts: &Facts, requirements: &Requirements) -> Finding {
    let advice = "raise LimitMEMLOCK of the container runtime on the node, and restart the runtime and this Pod";
    let what = "the limit of locked memory of a container";
    let found = facts.files.memlock.clone();
    compare(
        (what, "ipuNode.memlock"),
        found,
        requirements.memlock,
        advice,
    )
}

/// Whether `/dev/shm` is large enough.
pub(super) fn shared_memory(facts: &Facts, requirements: &Requirements) -> Finding {
    let advice = "raise the default of the container runtime on the node, or mount an emptyDir with medium: Memory in jobs \
                  and lower the value";
    let what = "the size of /dev/shm of a container";
    let found = facts.files.shared_memory.clone().map(Amount::Bytes);
    let least = requirements.shared_memory.map(Amount::Bytes);
    compare((what, "ipuNode.sharedMemory"), found, least, advice)
}

/// Whether the node has enough huge pages.
pub(super) fn huge_pages(facts: &Facts, requirements: &Requirements) -> Finding {
    let least = Some(requirements.huge_pages).filter(|least| *least > 0);
    let advice = "raise vm.nr_hugepages on the node, and restart its kubelet";
    let what = "the number of huge pages";
    let found = facts.files.huge_pages.clone();
    compare((what, "ipuNode.hugePages"), found, least, advice)
}

/// Whether the kernel modules are there.
pub(super) fn modules(facts: &Facts, requirements: &Requirements) -> Finding {
    if requirements.kernel_modules.is_empty() {
        return Finding::skipped("ipuNode.kernelModules is empty");
    }
    let found = match &facts.files.modules {
        Ok(found) => found,
        Err(why) => return Finding::unknown(format!("the kernel modules cannot be read: {why}")),
    };
    let required = &requirements.kernel_modules;
    // The kernel writes both forms of a name with an underscore.
    let is_missing = |name: &&String| !found.contains(&name.replace('-', "_"));
    let missing: Vec<_> = required.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Finding::ok(format!("{} is loaded", required.join(", ")));
    }
    let missing = missing.join(", ");
    Finding::failed(format!(
        "the kernel module {missing} is not loaded: modprobe it on the node, and name it in /etc/modules-load.d"
    ))
}

/// Compares an amount with the least one that a value asks for. `what`: the amount and the value.
fn compare<T: Display + PartialOrd>(
    (what, value): (&str, &str),
    found: Result<T, String>,
    least: Option<T>,
    advice: &str,
) -> Finding {
    let found = match (found, &least) {
        (Ok(found), _) => found,
        (Err(why), Some(_)) => return Finding::unknown(format!("{what} cannot be read: {why}")),
        (Err(why), None) => {
            return Finding::skipped(format!(
                "{value} requires nothing; {what} cannot be read: {why}"
            ));
        }
    };
    match least {
        None => Finding::skipped(format!("{value} requires nothing; {what} is {found}")),
        Some(least) if found < least => Finding::failed(format!(
            "{what} is {found}, less than {least} of {value}: {advice}"
        )),
        Some(_) => Finding::ok(format!("{what} is {found}")),
    }
}
