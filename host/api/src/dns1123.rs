//! Pure: the rules of Kubernetes for names of objects, and for keys and values of labels.

use crate::ipupartition::PartitionOwner;

/// Whether an owner can exist by its names. An IPUPartition written by hand may have any text
/// there, and the names become part of a path.
pub fn can_exist(owner: &PartitionOwner) -> bool {
    is_label(&owner.namespace) && is_subdomain(&owner.name)
}

/// Whether the text is a valid name of most kinds of objects (RFC 1123 subdomain).
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether the text is a valid name of a namespace (RFC 1123 label).
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether the text is a valid key of a label or an annotation: a name of at most 63 characters,
/// with an optional subdomain and `/` before it.
pub fn is_label_key(text: &str) -> bool {
    let name = match text.split_once('/') {
        Some((prefix, name)) if is_subdomain(prefix) => name,
        Some(_) => return false,
        None => text,
    };
    !name.is_empty() && is_label_value(name)
}

/// Whether the text is a valid value of a label. It may be empty.
pub fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
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

    #[test]
    fn keys_and_values_of_labels_are_those_that_kubernetes_takes() {
        let long = "x".repeat(64);
        for good in ["a", "A", "a.b_c-d", "1", &long[1..]] {
            assert!(is_label_value(good) && is_label_key(good), "{good}");
        }
        for bad in ["-a", "a-", "a b", "ä", "a/b", &long] {
            assert!(!is_label_value(bad), "{bad}");
        }
        assert!(is_label_value("") && !is_label_key(""));
        assert!(is_label_key("example.com/A_b") && is_label_key("a/b"));
        for bad in ["/", "/a", "a/", "A/b", "a/b/c", "-a/b", "a/-b"] {
            assert!(!is_label_key(bad), "{bad}");
        }
    }
}
