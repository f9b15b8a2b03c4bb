//! Pure: whether every name made from the job's name fits.

use serde_json::Value;

use super::fields::text;
use super::{Sizing, Verdict};

/// Longest name of a Pod.
const POD_NAME_MAX: usize = 253;

/// Longest name of a folder; the node keeps a Pod's logs in `<namespace>_<pod>_<uid>`.
const FOLDER_NAME_MAX: usize = 255;

/// Further length of that folder's name beside namespace and Pod: two `_` and a UID.
const FOLDER_NAME_REST: usize = 38;

/// Characters that the API server adds to `generateName`.
const GENERATED: usize = 5;

/// Checks the names of the Pods made for a job; their names are the longest ones made.
pub(super) fn check(object: &Value, sizing: Option<Sizing>, verdict: &mut Verdict) {
    let generated = || text(object, &["metadata", "generateName"]).filter(|name| !name.is_empty());
    let (field, length) = match text(object, &["metadata", "name"]).filter(|name| !name.is_empty())
    {
        Some(name) => ("metadata.name", name.len()),
        None => match generated() {
            Some(prefix) => ("metadata.generateName", prefix.len() + GENERATED),
            None => return,
        },
    };
    let namespace = text(object, &["metadata", "namespace"]).map_or(0, str::len);
    let limit = POD_NAME_MAX.min(
        FOLDER_NAME_MAX
            .saturating_sub(FOLDER_NAME_REST)
            .saturating_sub(namespace),
    );
    let last = sizing.map_or(0, |sizing| sizing.total_workers().saturating_sub(1));
    let suffix = format!("-worker-{last}").len().max("-launcher".len());
    if length + suffix > limit {
        verdict.violate(
            field,
            format!(
                "has {length} characters, and the names of the job's Pods ({suffix} more) would \
                 not fit on a node; use at most {} characters in this namespace",
                limit.saturating_sub(suffix)
            ),
        );
    }
}
