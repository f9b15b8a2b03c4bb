//! Pure: what Kubernetes takes for the name of an object.

use crate::api::ipupartition::PartitionOwner;

/// Whether an owner that somebody wrote by hand can exist: its name becomes part of a path.
pub fn can_exist(owner: &PartitionOwner) -> bool {
    is_label(&owner.namespace) && is_subdomain(&owner.name)
}

/// Whether most kinds of objects may have this name (RFC 1123 subdomain).
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether a namespace may have this name (RFC 1123 label).
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

fn is_part(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_objects_can_have_become_part_of_a_path() {
        for good in ["a", "a-1", "1a", &"x".repeat(63)] {
            assert!(is_label(good) && is_subdomain(good), "{good}");
        }
        let long = "x".repeat(254);
        for bad in [
            "",
            ".",
            "..",
            "../secrets/x",
            "a/b",
            "a?b",
            "A",
            "-a",
            "a-",
            "ä",
            "a..b",
            &long,
        ] {
            assert!(!is_subdomain(bad), "{bad}");
        }
        assert!(is_subdomain("a.b") && !is_label("a.b"));
    }
}
