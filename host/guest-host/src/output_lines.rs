//! Pure: the standard output and error of a guest, as lines for the log.

/// Longest line, in bytes. The log cuts it anyway.
const LINE: usize = 1024;

/// Level of a log line of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// The incomplete lines of the output streams.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputLines {
    streams: [Vec<u8>; 2],
}

impl OutputLines {
    /// Index of the standard output.
    pub(super) const STDOUT: u32 = 0;
    /// Index of the standard error.
    pub(super) const STDERR: u32 = 1;

    /// Returns the log level of a stream.
    pub(super) fn level(stream: u32) -> LogLevel {
        if stream == Self::STDERR {
            LogLevel::Warn
        } else {
            LogLevel::Info
        }
    }

    /// Appends output and returns the complete lines, at most `most`. The rest is dropped.
    pub(super) fn write(&mut self, stream: u32, bytes: &[u8], most: usize) -> Vec<String> {
        let Some(incomplete) = self.streams.get_mut(stream as usize) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if lines.len() == most {
                incomplete.clear();
                break;
            }
            let (text, is_complete) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            let free = LINE.saturating_sub(incomplete.len());
            incomplete.extend_from_slice(&text[..text.len().min(free)]);
            if is_complete {
                lines.push(String::from_utf8_lossy(&std::mem::take(incomplete)).into_owned());
            }
        }
        lines
    }

    /// Takes the incomplete lines, with their streams.
    pub(super) fn take_incomplete(&mut self) -> Vec<(u32, String)> {
        let streams = [Self::STDOUT, Self::STDERR]
            .into_iter()
            .zip(&mut self.streams);
        let incomplete = streams.filter(|(_, incomplete)| !incomplete.is_empty());
        incomplete
            .map(|(stream, incomplete)| {
                let text = std::mem::take(incomplete);
                (stream, String::from_utf8_lossy(&text).into_owned())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_separate_by_stream() {
        let mut output = OutputLines::default();
        assert_eq!(output.write(OutputLines::STDOUT, b"one\ntw", 16), ["one"]);
        assert_eq!(output.write(OutputLines::STDERR, b"oh\n\n", 16), ["oh", ""]);
        assert_eq!(output.write(OutputLines::STDOUT, b"o\n", 16), ["two"]);
        assert_eq!(output.write(7, b"lost\n", 16), [""; 0]);
        let long = [vec![b'x'; 5000], b"\nend".to_vec()].concat();
        let long = output.write(OutputLines::STDOUT, &long, 16);
        assert_eq!(long[0].len(), LINE);
        assert_eq!(
            output.take_incomplete(),
            [(OutputLines::STDOUT, "end".to_owned())]
        );
        assert_eq!(output.take_incomplete(), []);
    }

    #[test]
    fn no_more_lines_are_returned_than_the_limit() {
        let mut output = OutputLines::default();
        assert_eq!(output.write(OutputLines::STDOUT, b"begun", 1), [""; 0]);
        let flood = vec![b'\n'; 8 << 20];
        assert_eq!(output.write(OutputLines::STDOUT, &flood, 2), ["begun", ""]);
        assert_eq!(output.write(OutputLines::STDOUT, &flood, 0), [""; 0]);
        assert_eq!(output.take_incomplete(), []);
    }
}
