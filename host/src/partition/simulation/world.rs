//! The model: one API object, two controllers, two replicas of the reconciler, Pods, and calls that
//! are still on their way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::ipupartition::{
    Attempt, AttemptOutcome, ControllerRef, IPUPartition, IPUPartitionSpec, IPUPartitionStatus,
    PartitionOwner, PartitionPhase, WaitingReason,
};
use crate::names;
use crate::partition::knowledge::{Answer, Fact, Intent, Knowledge, Reply, Seen, SeenState, Truth};
use crate::partition::orphans;
use crate::partition::step::{self, Settings, Step};

/// What goes wrong with one call to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mishap {
    None,
    LostReply,
    Late,
    Refused,
}

#[derive(Clone, Debug)]
enum Call {
    Create(String),
    Remove(String),
    Reset(String),
}

#[derive(Debug, Default)]
struct Controller {
    is_down: bool,
    partitions: BTreeMap<String, SeenState>,
}

#[derive(Debug, Default)]
struct Replica {
    seen: Option<(u64, IPUPartition)>,
    knowledge: Knowledge,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) object: Option<IPUPartition>,
    version: u64,
    uids: u64,
    controllers: [Controller; 2],
    replicas: [Replica; 2],
    late: Vec<(usize, Call)>,
    pods: Vec<String>,
    recorded: BTreeSet<String>,
    asked: BTreeSet<String>,
    suspects: BTreeMap<orphans::Place, Timestamp>,
    want_again: bool,
    now: Timestamp,
}

impl World {
    pub(super) fn new() -> Self {
        let mut world = World {
            object: None,
            version: 0,
            uids: 0,
            controllers: Default::default(),
            replicas: Default::default(),
            late: Vec::new(),
            pods: Vec::new(),
            recorded: BTreeSet::new(),
            asked: BTreeSet::new(),
            suspects: BTreeMap::new(),
            want_again: false,
            now: Timestamp::from_second(1_700_000_000).unwrap(),
        };
        world.want();
        world
    }

    fn want(&mut self) {
        self.uids += 1;
        self.version += 1;
        let mut object = IPUPartition::new("default.mnist-0", spec());
        object.metadata.uid = Some(format!("uid-{}", self.uids));
        self.object = Some(object);
    }

    /// One step of one replica. Answers false once it rests.
    pub(super) fn step(&mut self, who: usize, mishap: Mishap) -> bool {
        if self.replicas[who].seen.is_none() {
            let Some(object) = self.object.clone() else {
                return false;
            };
            self.replicas[who].seen = Some((self.version, object));
            self.replicas[who].knowledge = Knowledge::default();
        }
        let (_, object) = self.replicas[who].seen.clone().unwrap();
        let step = step::next(
            &object,
            &self.replicas[who].knowledge,
            &settings(),
            self.now,
        );
        self.carry_out(who, step, mishap)
    }

    pub(super) fn step_until_created(&mut self, who: usize) {
        while self.left().is_empty() {
            self.step(who, Mishap::None);
        }
    }

    fn carry_out(&mut self, who: usize, step: Step, mishap: Mishap) -> bool {
        let fact = match step {
            Step::Rest(_) => {
                self.replicas[who].seen = None;
                return false;
            }
            Step::AddFinalizer => {
                let finalizer = vec![names::PARTITION_FINALIZER.to_owned()];
                self.write(who, |object| object.metadata.finalizers = Some(finalizer));
                return true;
            }
            Step::RemoveFinalizer { .. } => {
                if self.write(who, |object| object.metadata.finalizers = None) {
                    self.vanish_object();
                }
                return true;
            }
            Step::Write(status) => {
                if !self.write(who, |object| object.status = Some(*status)) {
                    return true;
                }
                Fact::Written
            }
            Step::Record(status, intent) => {
                if !self.write(who, |object| object.status = Some(*status)) {
                    return true;
                }
                if let Intent::Create(id) = &intent {
                    assert!(self.recorded.insert(id.clone()), "{id} was recorded twice");
                }
                Fact::Recorded(intent)
            }
            Step::Create(attempt) => {
                assert!(
                    self.recorded.contains(&attempt.id),
                    "created before it was recorded"
                );
                assert!(
                    self.asked.insert(attempt.id.clone()),
                    "{} asked for twice",
                    attempt.id
                );
                let is_down = self.controllers[index(&attempt.controller.name)].is_down;
                let reply = match self.call(&attempt, Call::Create(attempt.id.clone()), mishap) {
                    None => Reply::Done,
                    Some(error) if is_down => Reply::NotSent(error),
                    Some(error) => Reply::Failed(error),
                };
                Fact::Created {
                    id: attempt.id,
                    reply,
                }
            }
            Step::Remove { attempt, .. } => {
                let error = self.call(&attempt, Call::Remove(attempt.id.clone()), mishap);
                Fact::Removed {
                    id: attempt.id,
                    error,
                }
            }
            Step::Reset(attempt) => {
                let error = self.call(&attempt, Call::Reset(attempt.id.clone()), mishap);
                Fact::Reset {
                    id: attempt.id,
                    error,
                }
            }
            Step::AskTruth(attempt) => Fact::Truth {
                truth: self.truth(&attempt),
                id: attempt.id,
            },
            Step::CountUsers(id) => Fact::Users {
                pods: self
                    .pods
                    .iter()
                    .filter(|used| **used == id)
                    .cloned()
                    .collect(),
                id,
            },
            Step::Place => Fact::Placed(self.place(who)),
        };
        self.replicas[who].knowledge.learn(fact);
        true
    }

    /// A write with the version that the replica read: on a conflict it starts again.
    fn write(&mut self, who: usize, change: impl FnOnce(&mut IPUPartition)) -> bool {
        let (version, _) = self.replicas[who].seen.clone().unwrap();
        let is_current = version == self.version && self.object.is_some();
        if !is_current {
            self.replicas[who].seen = None;
            return false;
        }
        let object = self.object.as_mut().unwrap();
        change(object);
        self.version += 1;
        self.replicas[who].seen = Some((self.version, object.clone()));
        true
    }

    fn vanish_object(&mut self) {
        self.object = None;
        self.version += 1;
        if std::mem::take(&mut self.want_again) {
            self.want();
        }
    }

    fn call(&mut self, attempt: &Attempt, call: Call, mishap: Mishap) -> Option<String> {
        let which = index(&attempt.controller.name);
        if self.controllers[which].is_down {
            return Some("connection refused".to_owned());
        }
        match mishap {
            Mishap::None => self.arrive(which, &call),
            Mishap::LostReply => {
                self.arrive(which, &call);
                Some("deadline exceeded".to_owned())
            }
            Mishap::Late => {
                self.late.push((which, call));
                Some("deadline exceeded".to_owned())
            }
            Mishap::Refused => Some("resource exhausted".to_owned()),
        }
    }

    fn arrive(&mut self, which: usize, call: &Call) -> Option<String> {
        let partitions = &mut self.controllers[which].partitions;
        match call {
            Call::Create(id) if partitions.len() >= 3 => Some(format!("no room for {id}")),
            Call::Create(id) => {
                partitions.insert(id.clone(), SeenState::Busy);
                None
            }
            Call::Remove(id) => {
                assert!(!self.pods.contains(id), "{id} removed under a live Pod");
                match partitions.get_mut(id) {
                    Some(state) => *state = SeenState::Removing,
                    None => return Some("not found".to_owned()),
                }
                None
            }
            Call::Reset(id) => {
                assert!(!self.pods.contains(id), "{id} reset under a live Pod");
                match partitions.get_mut(id) {
                    Some(state) => *state = SeenState::Busy,
                    None => return Some("not found".to_owned()),
                }
                None
            }
        }
    }

    fn truth(&self, attempt: &Attempt) -> Truth {
        let controller = &self.controllers[index(&attempt.controller.name)];
        if controller.is_down {
            return Truth::Unreachable("connection refused".to_owned());
        }
        match controller.partitions.get(&attempt.id) {
            None => Truth::Absent,
            Some(state) => Truth::Present(Seen {
                state: *state,
                errors: Vec::new(),
                auto_resets: None,
            }),
        }
    }

    fn place(&self, who: usize) -> Answer {
        let (_, object) = self.replicas[who].seen.as_ref().unwrap();
        let status = object.status.clone().unwrap_or_default();
        let mut reasons = Vec::new();
        for (which, controller) in self.controllers.iter().enumerate() {
            let reference = reference(which);
            let was_tried = status.attempts.iter().any(|attempt| {
                attempt.controller == reference && attempt.outcome == AttemptOutcome::Refused
            });
            let has_room = controller.partitions.len() < 3;
            if !was_tried && !controller.is_down && has_room {
                return Answer::Try(reference);
            }
            reasons.push(WaitingReason {
                controller: reference.name,
                reason: "busy".to_owned(),
            });
        }
        Answer::Wait(reasons)
    }

    pub(super) fn crash(&mut self, who: usize) {
        self.replicas[who] = Replica::default();
    }

    pub(super) fn deliver(&mut self, pick: usize) {
        if !self.late.is_empty() {
            let (which, call) = self.late.remove(pick % self.late.len());
            self.arrive(which, &call);
        }
    }

    pub(super) fn toggle(&mut self, which: usize) {
        self.controllers[which].is_down = !self.controllers[which].is_down;
    }

    pub(super) fn progress(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        for controller in &mut self.controllers {
            controller
                .partitions
                .retain(|_, state| *state != SeenState::Removing);
            for state in controller.partitions.values_mut() {
                if *state == SeenState::Busy {
                    *state = SeenState::Active;
                }
            }
        }
    }

    pub(super) fn harm(&mut self, pick: usize, vanish: bool) {
        let partitions = &mut self.controllers[pick % 2].partitions;
        if let Some(id) = partitions.keys().nth(pick / 2).cloned() {
            if vanish {
                partitions.remove(&id);
            } else {
                partitions.insert(id, SeenState::Failed);
            }
        }
    }

    pub(super) fn start_pod(&mut self) {
        let is_deleted = self
            .object
            .as_ref()
            .is_none_or(|object| object.metadata.deletion_timestamp.is_some());
        if let Some(id) = self.ready_id()
            && !is_deleted
        {
            let others = self.pods.iter().filter(|other| **other != id);
            let usable: Vec<&String> = others.filter(|other| self.left().contains(other)).collect();
            assert!(
                usable.is_empty(),
                "two partitions in use at once: {usable:?}, {id}"
            );
            self.pods.push(id);
        }
    }

    pub(super) fn stop_pods(&mut self) {
        self.pods.clear();
    }

    pub(super) fn ask_reset(&mut self) {
        if let Some(object) = &mut self.object {
            object.spec.reset_generation += 1;
            self.version += 1;
        }
    }

    pub(super) fn delete(&mut self, again: bool) {
        self.want_again = again;
        let Some(object) = &mut self.object else {
            return;
        };
        self.version += 1;
        if object.metadata.finalizers.is_some() {
            object
                .metadata
                .deletion_timestamp
                .get_or_insert(Time(self.now));
        } else {
            self.vanish_object();
        }
    }

    /// The trouble is over: what is late arrives, every controller is up, the replicas and the sweep
    /// run until nothing changes any more.
    pub(super) fn settle(&mut self) {
        while !self.late.is_empty() {
            self.deliver(0);
        }
        for controller in &mut self.controllers {
            controller.is_down = false;
        }
        self.replicas = Default::default();
        for _ in 0..60 {
            for who in 0..2 {
                let mut steps = 0;
                while self.step(who, Mishap::None) {
                    steps += 1;
                    assert!(steps < 200, "it never rests: {:?}", self.object);
                }
            }
            self.progress(20);
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let found: Vec<orphans::Place> = (0..2)
            .flat_map(|which| {
                let ids = self.controllers[which].partitions.keys();
                ids.map(move |id| (reference(which).name, id.clone()))
            })
            .collect();
        let held = orphans::held(self.object.as_ref());
        let grace = SignedDuration::from_secs(30);
        let told = orphans::tell(&found, &held, &self.suspects, "here", grace, self.now);
        for (name, id) in &told.due {
            if !self.pods.contains(id) {
                self.arrive(index(name), &Call::Remove(id.clone()));
            }
        }
        self.suspects = told.suspects;
    }

    /// The ids that are on any controller.
    pub(super) fn left(&self) -> Vec<String> {
        let each = self
            .controllers
            .iter()
            .flat_map(|one| one.partitions.keys().cloned());
        each.collect()
    }

    /// The id that the status offers for use.
    pub(super) fn ready_id(&self) -> Option<String> {
        let status = self.object.as_ref()?.status.as_ref()?;
        match status.phase {
            PartitionPhase::Ready => status.partition_id.clone(),
            _ => None,
        }
    }

    /// How many partitions an object in error still answers for.
    pub(super) fn failed_but_listed(&self) -> usize {
        let Some(object) = &self.object else { return 0 };
        let status: IPUPartitionStatus = object.status.clone().unwrap_or_default();
        assert_eq!(status.phase, PartitionPhase::Error, "{status:?}");
        usize::from(status.partition_id.is_some())
    }
}

fn settings() -> Settings {
    Settings {
        installation: "here".to_owned(),
        forming: Duration::from_mins(5),
        grace: Duration::from_secs(30),
    }
}

fn spec() -> IPUPartitionSpec {
    IPUPartitionSpec {
        owner: PartitionOwner {
            api_version: "graphcore.ai/v1alpha1".to_owned(),
            kind: "IPUJob".to_owned(),
            namespace: "default".to_owned(),
            name: "mnist".to_owned(),
            uid: "job-uid".to_owned(),
        },
        slot: 0,
        ipus: 4,
        gcds: 1,
        options: crate::api::ipupartition::PartitionOptions::default(),
        reset_generation: 0,
    }
}

fn reference(which: usize) -> ControllerRef {
    let host = format!("pod{}", which + 1);
    ControllerRef {
        name: format!("{host}:8090"),
        label_value: host.clone(),
        host,
        port: 8090,
        label_key: "vipu".to_owned(),
    }
}

fn index(name: &str) -> usize {
    usize::from(name == "pod2:8090")
}
