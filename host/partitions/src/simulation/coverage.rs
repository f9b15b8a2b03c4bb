//! Counts what a simulation has met, so that it cannot become blind without anybody noticing.

use std::fmt::Write as _;

macro_rules! sights {
    ($($name:ident = $words:literal,)*) => {
        /// Something that every simulation has to meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Sight { $($name,)* }

        const WORDS: &[&str] = &[$($words,)*];
    };
}

sights! {
    FinalizerAdded = "step: the finalizer is put on",
    StatusWritten = "step: a status is written",
    CreateRecorded = "step: the intent to create is written down",
    ResetRecorded = "step: the intent to reset is written down",
    CreateSent = "step: a controller is asked to create",
    TruthAsked = "step: a controller is asked for the truth",
    UsersCounted = "step: live Pods are counted",
    RemoveSent = "step: a controller is asked to remove",
    RemoveForced = "step: a controller is asked to remove by force",
    ResetSent = "step: a controller is asked to reset",
    Placed = "step: the placement policy is asked",
    LetGoFirst = "step: an elder is let go first",
    EvictionEvaluated = "step: what surrounds a partition is looked at",
    FinalizerRemoved = "step: the finalizer is taken off",
    Rested = "step: nothing is to be done for now",
    Adopted = "outcome: adopted by the reconcile that asked for it",
    AdoptedLostReply = "outcome: adopted after a lost reply",
    AdoptedByAnother = "outcome: adopted by a reconcile that had not asked for it",
    BecameReady = "outcome: it became ready",
    Refused = "outcome: a refused attempt is remembered",
    NotListed = "outcome: a controller cannot be asked, and is not in the list",
    NotFound = "outcome: nothing of an earlier attempt was found",
    SecondController = "outcome: another controller is asked, since the first cannot be",
    WhileHeld = "outcome: another controller is asked, since the first does not remove what nobody uses",
    LostInUse = "outcome: an attempt that its controller has lost is held, since Pods use it",
    MissedInReset = "outcome: a partition that is being reset is missing for a moment",
    FoundLater = "outcome: an attempt is found when the slot no longer needs it",
    Stillborn = "outcome: given up before it was active",
    Left = "outcome: it leaves its controller, or is given back for its siblings",
    AskedToLeave = "outcome: the owner is asked to end its Pods, so that it can move",
    Vanished = "outcome: it vanished while it was wanted",
    Replaced = "outcome: replaced after a reset that failed or was not answered",
    ResetObserved = "outcome: a reset was carried out",
    ResetPutOff = "outcome: a reset is put off for a Pod that came in between",
    Failed = "outcome: in error for longer than the grace",
    Recovered = "outcome: ready again after an error",
    WaitsForRoom = "outcome: no controller has room",
    Rejected = "outcome: no controller can ever make it",
    HeldUpByPods = "outcome: a removal waits for live Pods",
    Abandoned = "outcome: let go by force with something left",
    Conflicted = "API: a write is refused, since the object was changed meanwhile",
    WriteFailed = "API: a write fails before it takes place",
    WriteReplyLost = "API: a write takes place and its reply is lost",
    ReadFailed = "API: Pods cannot be listed",
    StaleRead = "API: a reconcile begins with an old version",
    NotSent = "call: the controller cannot be reached",
    RequestLost = "call: the request is lost",
    ReplyLost = "call: the reply is lost",
    Late = "call: the request arrives after its caller gave up",
    Duplicated = "call: the request arrives twice",
    SaidNo = "call: the controller refuses",
    LateCreate = "call: a create arrives after the controller had said that there is nothing",
    LateRemove = "call: a late remove finds its partition",
    LateReset = "call: a late reset finds its partition",
    Formed = "controller: a partition is formed",
    FormsNever = "controller: a partition stays pending for ever",
    FailsToForm = "controller: a partition goes to ERROR while it forms",
    ResetsNever = "controller: a reset never ends",
    ResetFails = "controller: a reset leads to ERROR",
    RemoveFails = "controller: a removal fails",
    WentDown = "trouble: a controller is down for a time",
    Forgets = "trouble: a controller does not know its partitions for a time",
    Denies = "trouble: a controller lets the operator see nothing for a time",
    RefusesRemovals = "trouble: a controller removes nothing for a time",
    Emptied = "trouble: a controller loses its state while Pods use what it had",
    LostState = "trouble: a controller loses its state",
    WentToError = "trouble: a partition goes to ERROR",
    TakenByHand = "trouble: a partition is removed by hand",
    RoomTaken = "trouble: somebody else takes room",
    LeftList = "trouble: a controller leaves the list for a time",
    Renamed = "trouble: a controller has another name",
    SetBack = "trouble: the clock is set back",
    Torn = "trouble: a gang loses a partition, and others take all room",
    Closed = "trouble: a controller is cordoned or drained",
    Fragmented = "trouble: free IPUs of a controller do not form a large partition",
    StaysBusy = "trouble: a partition in use is busy for ever",
    OddState = "trouble: a controller tells an unknown state",
    Crashed = "trouble: a replica is killed",
    CrashedAtWork = "trouble: a replica is killed between two effects",
    Paused = "trouble: a replica stands still",
    ZombieActed = "trouble: a replica acts late on what it had decided before it stood still",
    TookOver = "trouble: the other replica takes over",
    StatusEdited = "trouble: a status names what is not ours",
    Outage = "trouble: the API server is down",
    LaggingWatch = "trouble: a replica's watch falls behind",
    DeletedByHand = "trouble: an IPUPartition is deleted by hand",
    Forced = "trouble: an IPUPartition is to go by force",
    HandedOver = "trouble: another release takes over",
    BroughtElsewhere = "trouble: another cluster goes on with what one has made",
    WentBack = "trouble: the API server is restored from a backup",
    Forgot = "trouble: a restored API server does not know of what is on a controller",
    Moved = "trouble: an IPUPartition is gone for a time and restored",
    PodsStarted = "owner: Pods start on a partition",
    PodsEnded = "owner: a Pod ends",
    PodEndsLate = "owner: a Pod outlives its job",
    Hung = "owner: a program hangs, as its partition is busy",
    ScaledUp = "owner: a job grows",
    ScaledDown = "owner: a job shrinks",
    AskedReset = "owner: a reset is asked for",
    OwnerVanished = "owner: a job is gone without cleaning up",
    Reborn = "owner: a job comes back under the same name",
    HeldInPart = "owner: a gang has some of its partitions, and not all",
    SweptObject = "sweep: an IPUPartition whose owner is gone is deleted",
    SweepFailed = "sweep: a list, a deletion or a count fails",
    NotDeleted = "sweep: an IPUPartition cannot be deleted for long",
    LeftBehind = "sweep: a controller that has left the list is swept",
    SweptOrphan = "sweep: a partition of nobody is removed",
    SparedOrphan = "sweep: a partition of nobody is spared for its Pods",
}

/// How often each sight was met.
#[derive(Clone, Debug)]
pub(super) struct Coverage {
    counts: Vec<u64>,
    /// Jobs that came and went.
    pub lives: u64,
    /// Events that happened.
    pub steps: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage {
            counts: vec![0; WORDS.len()],
            lives: 0,
            steps: 0,
        }
    }
}

impl Coverage {
    pub(super) fn count(&mut self, sight: Sight) {
        self.counts[sight as usize] += 1;
    }

    /// Adds what another run has met.
    pub(super) fn add(&mut self, other: &Coverage) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.lives += other.lives;
        self.steps += other.steps;
    }

    /// What was never met.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let counted = self.counts.iter().zip(WORDS);
        counted
            .filter(|(count, _)| **count == 0)
            .map(|(_, words)| *words)
            .collect()
    }

    /// The counts, one a line.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:>10}  lives\n{:>10}  events\n", self.lives, self.steps);
        for (count, words) in self.counts.iter().zip(WORDS) {
            writeln!(table, "{count:>10}  {words}").expect("a String takes everything");
        }
        table
    }
}
