//! Pure: UIDs of objects, and other identifying texts, in compact form.

use sha2::{Digest, Sha256};

/// The UID of an object, or an id: a hundred thousand of them are kept. It may be any text, so it
/// is known by 128 bits of the text's digest; the default is that of no text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid([u8; 16]);

impl Uid {
    /// Of the text in an object.
    pub fn of(text: &str) -> Self {
        let digest = Sha256::digest(text);
        Self(std::array::from_fn(|index| digest[index]))
    }

    /// One of so many places, evenly over all UIDs.
    pub fn spread(self, places: usize) -> usize {
        usize::from(self.0[0]) % places.max(1)
    }
}
