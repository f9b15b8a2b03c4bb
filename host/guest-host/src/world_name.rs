//! Pure: writes a hook as the name of its world, as records and the tools for authors have it.

use ipu_api::ipupolicy::Hook;
use serde::{Deserialize, Deserializer, Serializer, de};

/// Serializes a hook as the name of its world. The signature is that of `serde(with)`.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(super) fn serialize<S: Serializer>(hook: &Hook, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(hook.world())
}

/// Reads the name of a world.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Hook, D::Error> {
    const WORLDS: &[&str] = &["defaulting", "validation", "placement"];
    let world = String::deserialize(deserializer)?;
    let hook = world.parse();
    hook.map_err(|_| de::Error::unknown_variant(&world, WORLDS))
}

/// Serializes the hook of a component, if it has one.
#[expect(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
pub(super) fn serialize_option<S: Serializer>(
    hook: &Option<Hook>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match hook {
        Some(hook) => serialize(hook, serializer),
        None => serializer.serialize_none(),
    }
}
