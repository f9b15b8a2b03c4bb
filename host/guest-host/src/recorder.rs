//! The recorder of guest calls, for `ipu-operator policy record`.

use std::sync::Arc;

use ipu_api::guest::digest::ModuleDigest;
use tokio::sync::broadcast;

use super::policy_request::{Answer, PolicyRequest};
use super::record::Record;

/// Most calls in the buffer of a recording. A slower client loses the oldest ones. A call can be as
/// large as two jobs.
const CAPACITY: usize = 16;

/// A recorded call of a guest.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    request: PolicyRequest,
    answer: Result<Answer, String>,
    digest: ModuleDigest,
}

impl RecordedCall {
    /// Returns the redacted record of the call.
    pub fn record(&self) -> Record {
        Record::of(&self.request, &self.answer, self.digest.clone())
    }
}

/// The recorder of a process.
#[derive(Debug)]
pub(super) struct Recorder(broadcast::Sender<Arc<RecordedCall>>);

impl Default for Recorder {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Recorder {
    /// Whether a recording is under way. Otherwise nothing is copied.
    pub(super) fn is_active(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Receives every call from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<RecordedCall>> {
        self.0.subscribe()
    }

    /// Records a call.
    pub(super) fn record(
        &self,
        request: PolicyRequest,
        answer: Result<Answer, String>,
        digest: ModuleDigest,
    ) {
        let call = RecordedCall {
            request,
            answer,
            digest,
        };
        // It fails if the last recording has just ended.
        let _ = self.0.send(Arc::new(call));
    }
}
