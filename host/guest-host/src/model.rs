//! Pure: the files of built-in guests, and answers with the module that gave them.

use ipu_api::guest::digest::ModuleDigest;
use ipu_api::ipupolicy::Hook;

/// Returns the file name of the built-in guest of a hook.
pub const fn built_in_file(hook: Hook) -> &'static str {
    match hook {
        Hook::Defaulting => "defaulting.wasm",
        Hook::Validation => "validation.wasm",
        Hook::Placement => "serial-walk.wasm",
    }
}

/// An answer, and the module that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served<T> {
    /// The answer.
    pub answer: T,
    /// Digest of the module.
    pub digest: ModuleDigest,
}
