//! Invariants of an admin's list and of a controller's answers, for any content.

use std::collections::{BTreeMap, BTreeSet};

use ipu_text::is_plain;
use jiff::{SignedDuration, Timestamp};
use prost::Message;

use super::controllers::{self, EntryProblem};
use super::departed;
use super::failure_stats::FailureLog;
use super::model::{
    GcdConfig, Inventory, ListedPartition, Lookup, PARTITIONS_MAX, PartitionState, ReadyState,
};
use super::model::{listed, size_mismatch, total_ipus};
use super::proto;
use super::proto::list_ipu_attributes_reply::Entry;

/// Longest text of a controller that is kept, in bytes.
const TEXT_MAX: usize = 256;

/// Longest message about an entry, in bytes. The entry and its parts are truncated to 80 characters
/// before, and an unprintable character takes ten bytes.
const PROBLEM_MAX: usize = 2_000;

/// Every entry of a list is accepted, or reported with its position; no controller is accepted
/// twice.
pub(crate) fn check_list(text: &str) {
    let list = controllers::parse(text);
    let mut names = BTreeSet::new();
    for entry in &list.entries {
        assert!(names.insert(&entry.name), "{} twice", entry.name);
        let written = format!("{}:{}={}", entry.name, entry.label_key, entry.label_value);
        let again = controllers::parse(&written);
        assert_eq!(again.entries.as_slice(), std::slice::from_ref(entry));
    }
    let pieces = check_problems(text, &list.problems);
    assert_eq!(list.entries.len() + list.problems.len(), pieces, "{text:?}");
}

/// Checks that no listed controller is gone or renamed, that each renamed one has a listed name,
/// and that every other entry is reported.
pub(crate) fn check_departed(list: &str, gone: Option<&str>, renamed: Option<&str>) {
    let entries = controllers::parse(list).entries;
    let (departed, problems) = departed::parse(gone, renamed, &entries);
    for name in departed.gone.iter().chain(departed.renamed.keys()) {
        assert!(entries.iter().all(|entry| entry.name != *name), "{name}");
    }
    for new in departed.renamed.values() {
        assert!(entries.contains(new), "{new:?}");
    }
    let mut pieces = 0;
    for (key, text) in [(departed::GONE, gone), (departed::RENAMED, renamed)] {
        let of_key = problems.iter().filter(|problem| problem.key == key);
        let of_key: Vec<_> = of_key.cloned().collect();
        pieces += check_problems(text.unwrap_or_default(), &of_key);
    }
    assert!(departed.gone.len() + departed.renamed.len() + problems.len() <= pieces);
}

/// Checks that the problems are in the order of the text, each with its line. Returns the number of
/// entries.
fn check_problems(text: &str, problems: &[EntryProblem]) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut before = 0;
    for problem in problems {
        assert!(problem.entry > before, "{problem}");
        before = problem.entry;
        let shown = problem.text.trim_end_matches('…');
        assert!(lines[problem.line - 1].contains(shown), "{problem}");
        assert!(!problem.rule.is_empty(), "{problem}");
        assert!(problem.to_string().len() < PROBLEM_MAX, "{problem}");
    }
    let pieces = lines.iter().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        line.strip_prefix("- ").unwrap_or(line).split(',')
    });
    let pieces = pieces.filter(|piece| !piece.trim().is_empty()).count();
    assert!(before <= pieces);
    pieces
}

/// Listed partitions count once, and never above the reported total.
pub(crate) fn check_listed(partitions: Vec<proto::Partition>, entries: Vec<Entry>) {
    let attributes = entries.iter().map(|entry| entry.ipu_attributes.len());
    let most: usize = attributes.sum();
    let total = total_ipus(&proto::ListIpuAttributesReply { entries });
    assert!(usize::try_from(total).is_ok_and(|total| total <= most));
    let mut largest: BTreeMap<String, usize> = BTreeMap::new();
    for one in &partitions {
        let ipus = one.spec.as_ref().map_or(0, |spec| spec.ipus.len());
        let most = largest.entry(one.id.clone()).or_default();
        *most = ipus.max(*most);
    }
    let number = partitions.len();
    let all = listed(proto::ListPartitionsReply { partitions });
    assert!(all.len() <= number);
    let inventory = Inventory::new(total, all.clone());
    let most: usize = largest.values().sum();
    assert!(usize::try_from(inventory.used).is_ok_and(|used| used <= most));
    check_inventory(&inventory, &all);
}

/// Checks an inventory from any source.
fn check_inventory(inventory: &Inventory, listed: &[ListedPartition]) {
    let sum: u64 = listed.iter().map(|one| u64::from(one.ipus)).sum();
    assert!(u64::from(inventory.used) <= sum);
    assert!(inventory.free() <= inventory.total);
    let largest = inventory.largest_free();
    assert!(largest <= inventory.free());
    assert!(largest == 0 || largest.is_power_of_two());
    if let Some(blocks) = &inventory.free_blocks {
        let free: u64 = blocks
            .iter()
            .map(|(ipus, count)| u64::from(ipus * count))
            .sum();
        assert_eq!(free, u64::from(inventory.total - inventory.listed));
        assert!(blocks.keys().all(|ipus| ipus.is_power_of_two()));
    }
    assert!(inventory.partitions.len() <= PARTITIONS_MAX);
    let mut ids = BTreeSet::new();
    for one in inventory.partitions.iter() {
        assert!(one.id.len() <= TEXT_MAX);
        assert!(one.id.chars().all(is_plain), "{:?}", one.id);
        // Truncated or sanitized ids may be equal.
        let is_new = ids.insert(&one.id);
        let was_changed = one.id.contains([' ', '…', char::REPLACEMENT_CHARACTER]);
        assert!(is_new || was_changed, "{:?} twice", one.id);
        assert!(one.ready_state != ReadyState::Removed);
    }
}

/// Checks that bytes can be decoded as any kind of reply.
pub(crate) fn check_bytes(bytes: &[u8]) {
    let attributes = proto::ListIpuAttributesReply::decode(bytes);
    let entries = attributes.map(|reply| reply.entries).unwrap_or_default();
    let partitions = proto::ListPartitionsReply::decode(bytes);
    let partitions = partitions.map(|reply| reply.partitions).unwrap_or_default();
    check_listed(partitions, entries);
    if let Ok(reply) = proto::GetPartitionStatusReply::decode(bytes) {
        check_failure_stats(reply.status.into_iter().map(|status| (status, 1)));
    }
    if let Ok(reply) = proto::GetPartitionIpuofConfigReply::decode(bytes) {
        let config = reply.ipuof_config.unwrap_or_default();
        for gcd in config.gcd_configs {
            check_devices(gcd, 4, 1);
        }
    }
}

/// Checks that devices are reported unchanged, and that a size mismatch is reported only if there
/// is one.
pub(crate) fn check_devices(gcd: proto::partition_config::Gcd, ipus: u32, gcds: u32) {
    let devices = gcd.devices.len();
    let config = GcdConfig::from(gcd);
    assert_eq!(config.devices.len(), devices);
    for device in &config.devices {
        for text in [&device.ip, &device.chip_id] {
            assert!(text.len() <= TEXT_MAX && text.chars().all(is_plain));
        }
    }
    let asked = ipus.checked_div(gcds).map(usize::try_from);
    let mismatch = size_mismatch(&config, ipus, gcds);
    assert!(
        asked != Some(Ok(devices)) || mismatch.is_none(),
        "{mismatch:?}"
    );
    if let Some(mismatch) = mismatch {
        let words = format!("made with {devices} IPUs for GCD 0, ");
        assert!(mismatch.starts_with(&words), "{mismatch}");
    }
}

/// Checks that the stats contain no more failures than observed, with this number of hours between
/// two observations.
pub(crate) fn check_failure_stats(looks: impl IntoIterator<Item = (proto::PartitionStatus, i64)>) {
    let mut log = FailureLog::default();
    let mut now = Timestamp::UNIX_EPOCH;
    let mut errors = 0;
    for (status, hours) in looks {
        now += SignedDuration::from_hours(hours);
        let id = status.partition_id.clone();
        let state = PartitionState::from(status);
        let last_reset = state.auto_resets.as_ref();
        let last_reset = last_reset.and_then(|resets| resets.last_time.as_ref());
        assert!(last_reset.is_none_or(|time| time.0 >= Timestamp::UNIX_EPOCH));
        errors += u32::from(state.ready_state == ReadyState::Error);
        let lookup = match state.ready_state {
            ReadyState::Removed => Lookup::Absent,
            _ => Lookup::Present(state),
        };
        if let Some(failure_id) = log.record_state("pod1:8090", &id, &lookup, now) {
            log.record_devices("pod1:8090", failure_id, &[], now);
        }
        let failure_stats = log.stats("pod1:8090", now);
        assert!(failure_stats.failed_partitions <= errors);
        assert!(failure_stats.devices.is_empty());
    }
}
