//! Pure: sanitizes text from outside: short enough for its place, on one line, and without
//! characters that control a terminal or hide other characters.

/// Marks the end of truncated text.
const CUT: char = '…';

/// Sanitizes a text to at most `max` bytes. White space that breaks a line becomes a space. Other
/// control characters, bidirectional controls and characters without a width become U+FFFD, so that
/// a reader sees their positions. Other text is unchanged.
pub fn sanitize(text: &str, max: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(max));
    for character in text.chars().map(shown) {
        if clean.len() + character.len_utf8() > max {
            return truncate(clean, max);
        }
        clean.push(character);
    }
    clean
}

/// The same for a text of several lines. Each line has at most `max` bytes.
pub fn sanitize_lines(text: &str, max: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| sanitize(line, max)).collect();
    lines.join("\n")
}

/// Whether a character can be shown as it is.
pub fn is_plain(character: char) -> bool {
    shown(character) == character
}

fn truncate(mut text: String, max: usize) -> String {
    let end = max.saturating_sub(CUT.len_utf8());
    text.truncate(text.floor_char_boundary(end));
    if text.len() + CUT.len_utf8() <= max {
        text.push(CUT);
    }
    text
}

fn shown(character: char) -> char {
    match character {
        '\t' | '\n' | '\u{b}' | '\u{c}' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => ' ',
        _ if character.is_control() => char::REPLACEMENT_CHARACTER,
        // Soft hyphen, Arabic letter mark, Mongolian vowel separator.
        '\u{ad}' | '\u{61c}' | '\u{180e}'
        // No width, and the marks of direction.
        | '\u{200b}'..='\u{200f}'
        // Embeddings, overrides and isolates of direction; invisible operators.
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // Byte order mark, annotations, tags.
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => {
            char::REPLACEMENT_CHARACTER
        }
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_people_read_is_plain_and_fits() {
        for (text, max, expected) in [
            ("", 0, ""),
            ("2 of its 64 IPUs are used", 64, "2 of its 64 IPUs are used"),
            ("größer, 日本語, é, 🙂", 64, "größer, 日本語, é, 🙂"),
            ("one\r\ntwo\tthree\u{2028}four", 64, "one  two three four"),
            (
                "\u{1b}[31mred\u{7}\0",
                64,
                "\u{fffd}[31mred\u{fffd}\u{fffd}",
            ),
            ("\u{9b}31m\u{7f}", 64, "\u{fffd}31m\u{fffd}"),
            (
                "a\u{202e}b\u{2066}c\u{200f}d",
                64,
                "a\u{fffd}b\u{fffd}c\u{fffd}d",
            ),
            (
                "\u{61c}\u{feff}\u{200b}\u{2060}",
                64,
                "\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abc…"),
            ("ééééé", 8, "éé…"),
            ("🙂🙂", 7, "🙂…"),
            ("abc", 2, ""),
            ("\u{202e}", 2, ""),
        ] {
            assert_eq!(sanitize(text, max), expected, "{text:?} in {max}");
        }
    }

    #[test]
    fn lines_stay_lines_and_each_is_plain_and_fits() {
        for (text, expected) in [
            ("", ""),
            ("failed to pull r.io/a:1", "failed to pull r.io/a:1"),
            ("one\r\n  two\n", "one\n  two"),
            (
                "red \u{1b}[31m\n\u{202e}evil",
                "red \u{fffd}[31m\n\u{fffd}evil",
            ),
            ("one\rtwo\u{2028}three", "one two three"),
            (
                "123456789012345678901234567890\nshort",
                "123456789012345678901…\nshort",
            ),
        ] {
            assert_eq!(sanitize_lines(text, 24), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_fits_its_place_and_is_plain(text in any::<String>(), max in 0_usize..200) {
            let clean = sanitize(&text, max);
            prop_assert!(clean.len() <= max);
            prop_assert!(clean.chars().all(is_plain));
            prop_assert_eq!(sanitize(&clean, max), clean.as_str());
            if text.len() <= max && text.chars().all(is_plain) {
                prop_assert_eq!(clean, text);
            }
        }
    }
}
