//! The end of a log, which explains a failure.

use std::{
    fmt,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

/// Size of the part at the end of a log that is read, in bytes.
const READ: u64 = 16 * 1024;

/// The last lines of a log, and where the rest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    path: PathBuf,
    lines: Vec<String>,
}

impl LogTail {
    /// Reads the last `count` lines of the file at `path`. A log that cannot be read gives no
    /// lines.
    pub fn read(path: &Path, count: usize) -> Self {
        let text = read_end(path).unwrap_or_default();
        Self {
            path: path.to_owned(),
            lines: last_lines(&text, count),
        }
    }
}

impl fmt::Display for LogTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "its log {} is empty", self.path.display());
        }
        write!(f, "the last lines of {}:", self.path.display())?;
        for line in &self.lines {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|line| line.chars().take(500).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept() {
        assert_eq!(last_lines("a\n\nb\nc\n", 2), ["b", "c"]);
        assert_eq!(last_lines("", 2), Vec::<String>::new());
        let long = "x".repeat(10_000);
        assert_eq!(last_lines(&long, 1)[0].len(), 500);
    }

    #[test]
    fn a_missing_log_is_reported() {
        let tail = LogTail::read(Path::new("/nonexistent/log"), 3);
        assert_eq!(tail.to_string(), "its log /nonexistent/log is empty");
    }
}
