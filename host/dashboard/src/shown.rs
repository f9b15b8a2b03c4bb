//! Pure: text of objects as the page shows it.

use ipu_text::sanitize;

/// Longest text of an object that is kept, in bytes: thousands of objects stay in memory.
const TEXT_MAX: usize = 1_024;

/// A text of bounded length, without characters that control a terminal or hide other characters.
pub fn shown(text: &str) -> String {
    sanitize(text, TEXT_MAX)
}
