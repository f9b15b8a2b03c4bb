//! Pure: UIDs of objects, small in memory.

use sha2::{Digest, Sha256};

/// The UID of an object: a hundred thousand of them are kept. The API server may make it of any text,
/// so it is known by 128 bits of the text's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid([u8; 16]);

impl Uid {
    /// Of the text in an object.
    pub fn of(text: &str) -> Self {
        let digest = Sha256::digest(text);
        Self(std::array::from_fn(|index| digest[index]))
    }
}
