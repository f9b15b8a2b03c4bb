//! The model: one API object, two replicas of the reconciler, the sweep, and what they act on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::platform::{Call, Mishap, Platform};
use crate::api::ipupartition::{
    Attempt, IPUPartition, IPUPartitionSpec, IPUPartitionStatus, PartitionOwner, PartitionPhase,
};
use crate::names;
use crate::partition::knowledge::{Fact, Intent, Knowledge, Reply};
use crate::partition::orphans;
use crate::partition::step::{self, Settings, Step};
use crate::partition::surroundings::Surroundings;

#[derive(Debug, Default)]
struct Replica {
    seen: Option<(u64, IPUPartition)>,
    knowledge: Knowledge,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) object: Option<IPUPartition>,
    pub(super) platform: Platform,
    version: u64,
    uids: u64,
    replicas: [Replica; 2],
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
            platform: Platform::default(),
            version: 0,
            uids: 0,
            replicas: Default::default(),
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
        self.carry_out(who, object, step, mishap)
    }

    pub(super) fn step_until_created(&mut self, who: usize) {
        while self.platform.left().is_empty() {
            self.step(who, Mishap::None);
        }
    }

    fn carry_out(&mut self, who: usize, object: IPUPartition, step: Step, mishap: Mishap) -> bool {
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
            Step::Create(attempt) => Fact::Created {
                reply: self.create(&attempt, mishap),
                id: attempt.id,
            },
            Step::Remove { attempt, .. } => Fact::Removed {
                error: self
                    .platform
                    .call(&attempt, Call::Remove(attempt.id.clone()), mishap),
                id: attempt.id,
            },
            Step::Reset(attempt) => Fact::Reset {
                error: self
                    .platform
                    .call(&attempt, Call::Reset(attempt.id.clone()), mishap),
                id: attempt.id,
            },
            Step::AskTruth(attempt) => Fact::Truth {
                truth: self.platform.truth(&attempt),
                id: attempt.id,
            },
            Step::CountUsers(id) => Fact::Users {
                pods: self.platform.users(&id),
                id,
            },
            Step::LookAround => Fact::Surroundings(Surroundings::default()),
            Step::Place => {
                let status = object.status.unwrap_or_default();
                Fact::Placed(self.platform.place(&status.attempts))
            }
        };
        self.replicas[who].knowledge.learn(fact);
        true
    }

    fn create(&mut self, attempt: &Attempt, mishap: Mishap) -> Reply {
        let id = &attempt.id;
        assert!(
            self.recorded.contains(id),
            "{id} created before it was recorded"
        );
        assert!(self.asked.insert(id.clone()), "{id} asked for twice");
        let is_down = self.platform.is_down(attempt);
        match self
            .platform
            .call(attempt, Call::Create(id.clone()), mishap)
        {
            None => Reply::Done,
            Some(error) if is_down => Reply::NotSent(error),
            Some(error) => Reply::Failed(error),
        }
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

    pub(super) fn crash(&mut self, who: usize) {
        self.replicas[who] = Replica::default();
    }

    pub(super) fn progress(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.platform.progress();
    }

    pub(super) fn start_pod(&mut self) {
        let is_deleted = self
            .object
            .as_ref()
            .is_none_or(|object| object.metadata.deletion_timestamp.is_some());
        if let Some(id) = self.ready_id()
            && !is_deleted
        {
            self.platform.start_pod(id);
        }
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
        self.platform.heal();
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
        let found = self.platform.places();
        let held = orphans::held(self.object.as_ref());
        let grace = SignedDuration::from_secs(30);
        let told = orphans::tell(&found, &held, &self.suspects, "here", grace, self.now);
        for (name, id) in &told.due {
            self.platform.remove_unused(name, id);
        }
        self.suspects = told.suspects;
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
        gang_patience: Duration::from_mins(2),
        overtaking_limit: Duration::from_mins(10),
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
