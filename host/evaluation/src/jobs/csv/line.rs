//! Pure: the values of one line of CSV, with or without quotes (RFC 4180).

use std::borrow::Cow;

/// Returns the values of a line, without the spaces around them. `None`: quotes are not closed, or
/// stand beside text.
pub(super) fn values(line: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut values = Vec::new();
    let mut rest = Some(line);
    while let Some(line) = rest {
        let (value, after) = first_value(line)?;
        values.push(value);
        rest = after;
    }
    Some(values)
}

/// Returns the first value, and what follows its comma.
fn first_value(line: &str) -> Option<(Cow<'_, str>, Option<&str>)> {
    let Some(quoted) = line.trim_start().strip_prefix('"') else {
        return Some(match line.split_once(',') {
            Some((value, after)) => (Cow::Borrowed(value.trim()), Some(after)),
            None => (Cow::Borrowed(line.trim()), None),
        });
    };
    let mut from = 0;
    let end = loop {
        let quote = from + quoted[from..].find('"')?;
        if !quoted[quote + 1..].starts_with('"') {
            break quote;
        }
        from = quote + 2;
    };
    let value = quoted[..end].trim();
    let value = if value.contains('"') {
        Cow::Owned(value.replace("\"\"", "\""))
    } else {
        Cow::Borrowed(value)
    };
    let after = quoted[end + 1..].trim_start();
    match after.strip_prefix(',') {
        None if !after.is_empty() => None,
        after => Some((value, after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_quotes_or_none() {
        let cases: [(&str, Option<&[&str]>); 14] = [
            ("a,b", Some(&["a", "b"])),
            (" a ,\tb\r", Some(&["a", "b"])),
            ("", Some(&[""])),
            (",", Some(&["", ""])),
            ("a,", Some(&["a", ""])),
            (r#""a",b"#, Some(&["a", "b"])),
            (r#" "a" , "b" "#, Some(&["a", "b"])),
            (r#""a, b","c""#, Some(&["a, b", "c"])),
            (r#""a ""b""",c"#, Some(&[r#"a "b""#, "c"])),
            (r#""","""#, Some(&["", ""])),
            (r#"a "b",c"#, Some(&[r#"a "b""#, "c"])),
            (r#""a,b"#, None),
            (r#""a"b,c"#, None),
            (r#""a"""#, None),
        ];
        for (line, expected) in cases {
            let found = values(line);
            let found: Option<Vec<&str>> = found
                .as_ref()
                .map(|found| found.iter().map(AsRef::as_ref).collect());
            assert_eq!(found.as_deref(), expected, "{line:?}");
        }
    }
}
