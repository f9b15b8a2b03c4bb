//! Fuzz targets of `tests/fuzz`: functions from bytes, which panic where an invariant of parsed
//! input breaks.

use crate::invariants;

/// The ConfigMap of the controllers: the list, and after lines of dashes the gone and renamed
/// controllers.
pub fn controllers_yaml(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut values = text.split("---\n");
    let list = values.next().unwrap_or_default();
    invariants::check_list(list);
    invariants::check_departed(list, values.next(), values.next());
}

/// The bytes of a reply on the wire, decoded as each kind of reply.
pub fn vipu_replies(input: &[u8]) {
    invariants::check_bytes(input);
}

#[cfg(test)]
mod tests;
