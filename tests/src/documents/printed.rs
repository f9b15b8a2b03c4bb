//! Pure: compares the output of commands with the output in their document.
//!
//! Values differ from run to run. The heads of tables and the variables of a Pod do not.

/// The end of a line that the document shortens.
const SHORTENED: &str = "...";

/// Returns the heads of tables and the variables in a documented output that the commands did not print.
pub fn missing(documented: &str, printed: &str) -> Vec<String> {
    let printed: Vec<String> = printed.lines().map(words).collect();
    let stable = documented.lines().map(words);
    let stable = stable.filter(|line| is_head(line) || is_variable(line));
    stable
        .filter(|line| !printed.iter().any(|printed| is_same(line, printed)))
        .collect()
}

/// A line with single blanks between its words.
fn words(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
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

    #[test]
    fn changed_column_and_variable_are_missing() {
        let documented =
            "NAME   STATUS   LARGEST-FREE\npod1   Ready    8\nHOST=pod1\nID=p-hello-...\n";
        let printed = "NAME STATUS LARGEST-FREE\npod1 Cordoned 16\nHOST=pod1\nID=p-hello-x7k2\n";
        assert_eq!(missing(documented, printed), [""; 0]);
        let printed = "NAME STATUS FREE\npod1 Ready 8\nHOST=pod2\nID=p-bye-1\n";
        let expected = ["NAME STATUS LARGEST-FREE", "HOST=pod1", "ID=p-hello-..."];
        assert_eq!(missing(documented, printed), expected);
    }

    #[test]
    fn values_are_not_compared() {
        let documented = "IPUJob team-a/train: Pending\ntotal   80   40\n\nConditions:\n";
        assert_eq!(missing(documented, ""), [""; 0]);
    }
}
