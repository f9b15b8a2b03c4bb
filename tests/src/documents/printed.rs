//! Pure: compares the output of commands with the output in their document.
//!
//! Numbers, ages, digests and ids differ from run to run, and nothing else does.

/// The end of a line that the document shortens.
const SHORTENED: &str = "...";

/// Words between a number and the next one, which change with it.
const UNITS: [&str; 4] = ["ns", "µs", "ms", "s"];

/// The output in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Printed<'a> {
    /// Its lines.
    pub text: &'a str,
    /// Whether it shows another cluster than that of the test: only the heads of its tables and its
    /// variables are the same.
    pub is_example: bool,
}

impl Printed<'_> {
    /// Returns the lines that the commands did not print.
    pub fn missing(&self, printed: &str) -> Vec<String> {
        let printed: Vec<String> = printed.lines().map(words).collect();
        let masked: Vec<String> = printed.iter().map(|line| mask(line)).collect();
        let documented = self.text.lines().map(words).filter(|line| !line.is_empty());
        let missing = documented.filter(|line| {
            if is_head(line) || is_variable(line) {
                !printed.iter().any(|printed| is_same(line, printed))
            } else {
                let line = mask(line);
                !self.is_example && !masked.iter().any(|printed| is_same(&line, printed))
            }
        });
        missing.collect()
    }
}

/// A line with single blanks between its words.
fn words(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

/// A line without what differs from run to run.
fn mask(line: &str) -> String {
    let words = line.split(' ').filter(|word| !UNITS.contains(word));
    let words: Vec<String> = words.map(mask_word).collect();
    words.join(" ")
}

fn mask_word(word: &str) -> String {
    if let Some((before, digest)) = word.split_once("sha256:") {
        let after = digest.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        return format!("{before}sha256:#{after}");
    }
    let mut masked = String::new();
    for character in word.chars() {
        let is_of_number = character == '.' && masked.ends_with('#');
        if !character.is_ascii_digit() && !is_of_number {
            masked.push(character);
        } else if !masked.ends_with('#') {
            masked.push('#');
        }
    }
    masked
}

/// Whether a line names the columns of a table.
fn is_head(line: &str) -> bool {
    let is_name = |word: &str| {
        word.bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    };
    line.contains(' ') && line.split(' ').all(is_name)
}

/// Whether a line is the name of an environment variable and its value.
fn is_variable(line: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    line.split_once('=')
        .is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_of_name))
}

fn is_same(documented: &str, printed: &str) -> bool {
    match documented.strip_suffix(SHORTENED) {
        Some(begin) => printed.starts_with(begin),
        None => printed == documented,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str, printed: &str) -> Vec<String> {
        let is_example = false;
        Printed { text, is_example }.missing(printed)
    }

    #[test]
    fn changed_column_and_variable_are_missing() {
        let documented =
            "NAME   STATUS   LARGEST-FREE\npod1   Ready    8\nHOST=pod1\nID=p-hello-...\n";
        let printed = "NAME STATUS LARGEST-FREE\npod1 Ready 16\nHOST=pod1\nID=p-hello-x7k2\n";
        assert_eq!(missing(documented, printed), [""; 0]);
        let printed = "NAME STATUS FREE\npod1 Ready 8\nHOST=pod2\nID=p-bye-1\n";
        let expected = ["NAME STATUS LARGEST-FREE", "HOST=pod1", "ID=p-hello-..."];
        assert_eq!(missing(documented, printed), expected);
    }

    #[test]
    fn only_numbers_and_digests_may_differ() {
        let documented =
            "digest   sha256:3b2e05\n1000 calls  44.6 µs\n\"fuel\": 12072,\n2 answers differ\n";
        let printed = "digest sha256:ffff\n10 calls 1 ms\n\"fuel\": 7,\n3 answers are the same\n";
        assert_eq!(missing(documented, printed), ["2 answers differ"]);
    }

    #[test]
    fn lines_of_an_example_are_not_compared() {
        let text = "NAME READY\nIPUJob team-a/train: Pending\n\nConditions:\n";
        let is_example = true;
        let example = Printed { text, is_example };
        assert_eq!(example.missing(""), ["NAME READY"]);
        assert_eq!(example.missing("NAME READY"), [""; 0]);
    }
}
