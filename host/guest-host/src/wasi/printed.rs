//! What a policy prints, gathered into lines for the log.

use crate::store::LogLevel;

/// Longest line that is gathered; the log cuts it anyway.
const LINE: usize = 1024;

/// What was printed and has not come to the end of its line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed {
    streams: [Vec<u8>; 2],
}

impl Printed {
    /// Which stream is the standard output.
    pub(super) const STDOUT: u32 = 0;
    /// Which stream is the standard error.
    pub(super) const STDERR: u32 = 1;

    /// How loud the lines of a stream are.
    pub(crate) fn level(stream: u32) -> LogLevel {
        if stream == Self::STDERR {
            LogLevel::Warn
        } else {
            LogLevel::Info
        }
    }

    /// Takes in what was printed, and answers the lines that are whole, at most `most` of them. What comes after
    /// those is lost.
    pub(crate) fn print(&mut self, stream: u32, bytes: &[u8], most: usize) -> Vec<String> {
        let Some(begun) = self.streams.get_mut(stream as usize) else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if lines.len() == most {
                begun.clear();
                break;
            }
            let (text, is_whole) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            let room = LINE.saturating_sub(begun.len());
            begun.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                lines.push(String::from_utf8_lossy(&std::mem::take(begun)).into_owned());
            }
        }
        lines
    }

    /// The lines that were begun and not ended, by stream.
    pub(crate) fn rest(&mut self) -> Vec<(u32, String)> {
        let streams = [Self::STDOUT, Self::STDERR]
            .into_iter()
            .zip(&mut self.streams);
        let begun = streams.filter(|(_, begun)| !begun.is_empty());
        begun
            .map(|(stream, begun)| {
                let text = std::mem::take(begun);
                (stream, String::from_utf8_lossy(&text).into_owned())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_gathered_by_stream_and_bounded() {
        let mut printed = Printed::default();
        assert_eq!(printed.print(Printed::STDOUT, b"one\ntw", 16), ["one"]);
        assert_eq!(printed.print(Printed::STDERR, b"oh\n\n", 16), ["oh", ""]);
        assert_eq!(printed.print(Printed::STDOUT, b"o\n", 16), ["two"]);
        assert_eq!(printed.print(7, b"lost\n", 16), [""; 0]);
        let long = [vec![b'x'; 5000], b"\nend".to_vec()].concat();
        let long = printed.print(Printed::STDOUT, &long, 16);
        assert_eq!(long[0].len(), LINE);
        assert_eq!(printed.rest(), [(Printed::STDOUT, "end".to_owned())]);
        assert_eq!(printed.rest(), []);
    }

    #[test]
    fn no_more_lines_are_made_than_there_is_room_for() {
        let mut printed = Printed::default();
        assert_eq!(printed.print(Printed::STDOUT, b"begun", 1), [""; 0]);
        let flood = vec![b'\n'; 8 << 20];
        assert_eq!(printed.print(Printed::STDOUT, &flood, 2), ["begun", ""]);
        assert_eq!(printed.print(Printed::STDOUT, &flood, 0), [""; 0]);
        assert_eq!(printed.rest(), []);
    }
}
