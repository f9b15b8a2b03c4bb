//! The secret in the URL of the page. Other users of the machine can reach the port, and must not
//! get the rights of this user.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::error::Unspecified;
use ring::rand::{self, SystemRandom};

/// Bytes of a token.
const BYTES: usize = 32;

/// A secret that fits a path of a URL.
pub fn generate() -> Result<String, Unspecified> {
    let bytes = rand::generate::<[u8; BYTES]>(&SystemRandom::new())?;
    Ok(URL_SAFE_NO_PAD.encode(bytes.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_fit_a_path_and_differ() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert_eq!(one.len(), 43);
        assert_ne!(one, other);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        assert!(one.chars().all(is_plain), "{one}");
    }
}
