//! Coverage points: situations that every simulation has to meet. A run fails if one is missing.

use std::fmt::Write as _;

macro_rules! coverage_points {
    ($($name:ident = $description:literal,)*) => {
        /// A situation that every simulation has to meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum CoveragePoint { $($name,)* }

        const DESCRIPTIONS: &[&str] = &[$($description,)*];
    };
}

coverage_points! {
    FinalizerAdded = "step: the finalizer is added",
    StatusWritten = "step: a status is written",
    CreateRecorded = "step: the intent to create is recorded",
    ResetRecorded = "step: the intent to reset is recorded",
    CreateSent = "step: a partition is requested",
    StateRead = "step: the state of a partition is read",
    UsersCounted = "step: live Pods are counted",
    RemoveSent = "step: a removal is requested",
    RemoveForced = "step: a forced removal is requested",
    ResetSent = "step: a reset is requested",
    Placed = "step: the placement guest is called",
    DecidedSeveral = "step: a pass decides on several requests",
    EvictionEvaluated = "step: the eviction of a partition is evaluated",
    FinalizerRemoved = "step: the finalizer is removed",
    Rested = "step: nothing is left to do for now",
    Adopted = "outcome: adopted by the reconcile that requested it",
    AdoptedLostReply = "outcome: adopted after a lost reply",
    AdoptedByAnother = "outcome: adopted by another reconcile than the one that requested it",
    BecameReady = "outcome: it became ready",
    Refused = "outcome: a refused attempt is recorded",
    NotListed = "outcome: a controller does not answer, and is not in the list",
    NotFound = "outcome: an earlier attempt has created nothing",
    SecondController = "outcome: another controller is chosen, because the first does not answer",
    WhileHeld = "outcome: another controller is chosen, because the first does not remove an unused partition",
    LostInUse = "outcome: an attempt that its controller has lost is held, because Pods use it",
    MissedInReset = "outcome: a partition that is being reset is missing for a moment",
    FoundLater = "outcome: an attempt is found when the slot no longer needs it",
    FormationFailed = "outcome: released before it was active",
    Left = "outcome: it leaves its controller, or is released without its gang",
    DrainRequested = "outcome: the owner is requested to end its Pods, so that it can move",
    Vanished = "outcome: it vanished while it was desired",
    Replaced = "outcome: replaced after a reset that failed or was not answered",
    ResetObserved = "outcome: a reset was carried out",
    ResetPutOff = "outcome: a reset is postponed for a Pod that started meanwhile",
    Failed = "outcome: in error for longer than the grace",
    Recovered = "outcome: ready again after an error",
    WaitsForCapacity = "outcome: no controller has free capacity",
    ExpectsMore = "outcome: a request waits for IPUs that a controller may have again",
    SecondNameFound = "outcome: the second name of a controller is found",
    ReservedForPinned = "outcome: a controller is reserved for a request that it alone suits",
    Rejected = "outcome: no controller can ever create it",
    HeldUpByPods = "outcome: a removal waits for live Pods",
    Abandoned = "outcome: released by force with attempts left",
    Conflicted = "API: a write is refused, because the object was changed meanwhile",
    WriteFailed = "API: a write fails before it takes place",
    WriteReplyLost = "API: a write takes place and its reply is lost",
    ReadFailed = "API: Pods cannot be listed",
    StaleRead = "API: a reconcile begins with an old version",
    NotSent = "call: the controller cannot be reached",
    RequestLost = "call: the request is lost",
    ReplyLost = "call: the reply is lost",
    Late = "call: the request arrives after its deadline",
    Duplicated = "call: the request arrives twice",
    SaidNo = "call: the controller refuses",
    LateCreate = "call: a create arrives after the controller had reported no partition",
    LateRemove = "call: a late remove finds its partition",
    LateReset = "call: a late reset finds its partition",
    Formed = "controller: a partition is formed",
    FormsNever = "controller: a partition stays pending for ever",
    FailsToForm = "controller: a partition goes to ERROR while it forms",
    ResetsNever = "controller: a reset never ends",
    ResetFails = "controller: a reset leads to ERROR",
    RemoveFails = "controller: a removal fails",
    WentDown = "fault: a controller is down for a time",
    Forgets = "fault: a controller does not know its partitions for a time",
    Denies = "fault: a controller denies access for a time",
    RefusesRemovals = "fault: a controller removes nothing for a time",
    Emptied = "fault: a controller loses its state while Pods use what it had",
    LostState = "fault: a controller loses its state",
    WentToError = "fault: a partition goes to ERROR",
    TakenByHand = "fault: a partition is removed by hand",
    CapacityTaken = "fault: others take capacity",
    LeftList = "fault: a controller leaves the list for a time",
    Renamed = "fault: a controller has another name",
    SetBack = "fault: the clock is set back",
    GangBroken = "fault: a gang loses a partition, and others take all capacity",
    ShortOfIpus = "fault: a controller reports fewer IPUs for a time",
    WrongLine = "fault: the list has a wrong line for a time",
    TwoNames = "fault: a controller is in the list under two names",
    Cordoned = "fault: a controller is cordoned or drained",
    Fragmented = "fault: free IPUs of a controller do not form a large partition",
    StaysBusy = "fault: a partition in use is busy for ever",
    OddState = "fault: a controller reports an unknown state",
    Crashed = "fault: a replica is killed",
    CrashedAtWork = "fault: a replica is killed between two effects",
    Paused = "fault: a replica is paused",
    ZombieActed = "fault: a replica acts late on a decision from before a pause",
    TookOver = "fault: the other replica takes over",
    StatusEdited = "fault: a status lists a partition of others",
    Outage = "fault: the API server is down",
    LaggingWatch = "fault: a replica's watch falls behind",
    DeletedByHand = "fault: an IPUPartition is deleted by hand",
    Forced = "fault: an IPUPartition is released by force",
    HandedOver = "fault: another release takes over",
    BroughtElsewhere = "fault: another cluster continues with the partitions of one",
    WentBack = "fault: the API server is restored from a backup",
    Forgot = "fault: a restored API server lacks a partition that is on a controller",
    Moved = "fault: an IPUPartition is gone for a time and restored",
    PodsStarted = "owner: Pods start on a partition",
    PodsEnded = "owner: a Pod ends",
    PodEndsLate = "owner: a Pod outlives its job",
    Hung = "owner: a program hangs, because its partition is busy",
    ScaledUp = "owner: a job grows",
    ScaledDown = "owner: a job shrinks",
    AskedReset = "owner: a reset is requested",
    OwnerVanished = "owner: a job is gone without cleaning up",
    Reborn = "owner: a job comes back under the same name",
    HeldInPart = "owner: a gang has some of its partitions, and not all",
    JobCacheStale = "jobs: a reconcile waits until the watches have shown its writes",
    JobConflicted = "jobs: a write is refused, because the job was changed meanwhile",
    JobWriteFailed = "jobs: a write fails before it takes place",
    JobReplyLost = "jobs: a write takes place and its reply is lost",
    JobZombieActed = "jobs: a replica acts late on a decision from before a pause",
    JobCrashedAtWork = "jobs: a replica is killed between two effects",
    JobProcessCrashedAtWork = "jobs: the process of jobs alone is killed between two effects",
    JobFinished = "jobs: a job has finished",
    JobExpired = "jobs: a finished job is deleted by its TTL",
    JobRestarted = "jobs: a job restarts after a run",
    LauncherReleased = "jobs: the command of a launcher is released",
    ResetForJob = "jobs: a reset is requested before the next use of a partition",
    ResetAverted = "jobs: no reset is requested, because there is a Pod that the cache lacks",
    UseKept = "jobs: a use stays recorded, because there is a partition that the cache lacks",
    PodExists = "jobs: a Pod of the name exists",
    PodRejected = "kubelet: a node rejects a Pod",
    PodNeverRan = "kubelet: a Pod is deleted before it has a node",
    PodDisrupted = "kubelet: a Pod is disrupted",
    PodDeletedByHand = "kubelet: a Pod is deleted by hand",
    NotAttached = "kubelet: a program cannot attach to its partition",
    SharedNode = "advertising: a node reaches controllers of two releases",
    NodeCleared = "advertising: a node reaches no controller any more",
    SweptObject = "sweep: an IPUPartition whose owner is gone is deleted",
    SweepFailed = "sweep: a list, a deletion or a count fails",
    NotDeleted = "sweep: an IPUPartition cannot be deleted for long",
    LeftBehind = "sweep: a controller that has left the list is swept",
    SweptOrphan = "sweep: a partition without an owner is removed",
    UsedOrphan = "sweep: a partition without an owner stays for its Pods",
}

/// Number of visits of each coverage point.
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
            counts: vec![0; DESCRIPTIONS.len()],
            lives: 0,
            steps: 0,
        }
    }
}

impl Coverage {
    pub(super) fn count(&mut self, point: CoveragePoint) {
        self.counts[point as usize] += 1;
    }

    /// Adds the counts of another run.
    pub(super) fn add(&mut self, other: &Coverage) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.lives += other.lives;
        self.steps += other.steps;
    }

    /// The points that were never met.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let counted = self.counts.iter().zip(DESCRIPTIONS);
        counted
            .filter(|(count, _)| **count == 0)
            .map(|(_, description)| *description)
            .collect()
    }

    /// The counts, one a line.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:>10}  lives\n{:>10}  events\n", self.lives, self.steps);
        for (count, description) in self.counts.iter().zip(DESCRIPTIONS) {
            writeln!(table, "{count:>10}  {description}").expect("a String takes everything");
        }
        table
    }
}
