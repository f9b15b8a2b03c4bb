//! Lets whoever listens have the requests to guests and what they answered.

use std::sync::Arc;

use tokio::sync::broadcast;

use super::model::ModuleDigest;
use super::question::{Answer, Question};
use super::record::Record;

/// Calls that a listener may be behind; to one that is slower the oldest are lost. Each may be as large
/// as two jobs.
const BEHIND: usize = 16;

/// One call of a guest.
#[derive(Clone, Debug)]
pub struct Heard {
    question: Question,
    answer: Result<Answer, String>,
    digest: ModuleDigest,
}

impl Heard {
    /// What may be told of it.
    pub fn record(&self) -> Record {
        Record::of(&self.question, &self.answer, self.digest.clone())
    }
}

/// Where calls of guests are told of.
#[derive(Debug)]
pub(super) struct Tap(broadcast::Sender<Arc<Heard>>);

impl Default for Tap {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND))
    }
}

impl Tap {
    /// Whether anybody listens: nothing is copied otherwise.
    pub(super) fn is_open(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Every call from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<Arc<Heard>> {
        self.0.subscribe()
    }

    /// A guest was called.
    pub(super) fn tell(
        &self,
        question: Question,
        answer: Result<Answer, String>,
        digest: ModuleDigest,
    ) {
        let heard = Heard {
            question,
            answer,
            digest,
        };
        // Nobody listens any more where the last listener has just gone.
        let _ = self.0.send(Arc::new(heard));
    }
}
