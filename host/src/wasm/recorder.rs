//! Writes records, within a limit, so that a recording that is forgotten fills no disk.

use std::io;

use super::model::ModuleDigest;
use super::question::{Answer, Question};
use super::record::Record;

/// Where records are written.
pub struct Recorder<W> {
    out: W,
    /// Bytes that may still be written.
    left: u64,
    /// Records that were not written, because there was no room.
    dropped: u64,
}

impl<W: io::Write> Recorder<W> {
    /// Records into `out`, of which no more than `limit` bytes are written.
    pub fn new(out: W, limit: u64) -> Self {
        Self {
            out,
            left: limit,
            dropped: 0,
        }
    }

    /// Writes the record of a request and its answer as one line; a record that does not fit any
    /// more is dropped and counted.
    pub fn record(
        &mut self,
        question: &Question,
        answer: &Result<Answer, String>,
        digest: ModuleDigest,
    ) -> io::Result<()> {
        let line = Record::of(question, answer, digest).line();
        let Some(left) = self.left.checked_sub(line.len() as u64) else {
            self.dropped += 1;
            return Ok(());
        };
        self.left = left;
        self.out.write_all(line.as_bytes())
    }

    /// How many records were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wasm::model::Slot;
    use crate::wasm::samples;

    #[test]
    fn lines_are_whole_and_end_at_the_limit() {
        let mut written = Vec::new();
        let mut recorder = Recorder::new(&mut written, 1500);
        for _ in 0..9 {
            let question = samples::question(Slot::Placement);
            let digest = ModuleDigest::new("sha256:77");
            recorder
                .record(&question, &Err("late".to_owned()), digest)
                .unwrap();
        }
        let dropped = recorder.dropped();
        let text = String::from_utf8(written).unwrap();
        assert!(text.len() <= 1500);
        assert!(text.lines().all(|line| Record::parse(line).is_ok()));
        assert_eq!(text.lines().count() as u64, 9 - dropped);
        assert!(dropped > 0 && dropped < 9, "{dropped}");
    }
}
