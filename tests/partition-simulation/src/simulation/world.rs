//! The world of one run: its state, and its event loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ipu_api::ipupartition::ControllerRef;
use ipu_api::uid::Uid;
use ipu_api::vipu_controller::CordonStates;
use ipu_jobs::build::PodSettings;
use ipu_jobs::job_object::job_uid;
use ipu_ledger::step::Settings;
use jiff::{SignedDuration, Timestamp};

use super::api_server::{self, ApiServer, Key, SLOTS, job_of};
use super::assigned_ipus::AssignedIpus;
use super::controllers::Controller;
use super::coverage::{Coverage, CoveragePoint};
use super::event_queue::{Event, EventQueue, Fate};
use super::executor::CallFault;
use super::faults::FaultRates;
use super::invariants::{ONE_USABLE, RunHistory, demand};
use super::job_objects::pod_settings;
use super::job_rules::JobHistory;
use super::job_server::{JobServer, NAMESPACE};
use super::job_watches::Kind;
use super::missing::Missing;
use super::owners::{Job, Pod};
use super::replica::Replica;
use super::restore::Backup;
use super::rng::Rng;
use super::sim_adapter;
use super::trace::Trace;

/// A planned crash of replica 0 after one of its steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    /// Steps before it.
    pub after: u32,
    /// The fault of the last step, if it is a call.
    pub call_fault: CallFault,
}

#[derive(Debug)]
pub(super) struct World {
    pub api: ApiServer,
    pub controllers: Vec<Controller>,
    pub replicas: [Replica; 2],
    pub jobs: Vec<Job>,
    /// IPUJobs and their Pods in the API server.
    pub server: JobServer,
    /// The index of each IPUJob, by what the operator knows it by.
    pub job_ids: BTreeMap<Uid, usize>,
    pub pod_settings: Arc<PodSettings>,
    pub job_history: JobHistory,
    /// The number of Pods that their nodes reject next.
    pub rejections: u32,
    /// The Pods whose programs use partitions.
    pub pods: BTreeMap<u64, Pod>,
    /// Partitions of other clients, with their controller.
    pub foreign: BTreeSet<(usize, String)>,
    /// Cordoned and draining controllers.
    pub cordons: CordonStates,
    /// The present name of each renamed controller, by each earlier name.
    pub renamed: BTreeMap<String, ControllerRef>,
    /// Entries of the admin's list that name a controller a second time, each with the index of the
    /// controller.
    pub second_names: Vec<(ControllerRef, usize)>,
    /// Why the admin's list may lack a controller.
    pub list_problem: Option<String>,
    /// The numbers of IPUs in the VIPUControllers, by name.
    pub published_sizes: BTreeMap<String, u32>,
    /// IPUPartitions whose deletion by the sweep fails.
    pub undeletable: BTreeSet<Key>,
    /// By how much the clock was set back.
    pub behind: SignedDuration,
    pub event_queue: EventQueue,
    /// The time at which the run began, for caches: only differences count.
    pub epoch: Instant,
    pub rng: Rng,
    pub fault_rates: FaultRates,
    pub history: RunHistory,
    pub missing: Missing,
    pub coverage: Coverage,
    pub trace: Trace,
    pub settings: Settings,
    /// The last number that was assigned.
    pub numbers: u64,
    /// Whether only one replica is active as long as no fault occurs.
    pub has_lease: bool,
    pub api_down_until: u64,
    /// Whether no new faults occur.
    pub is_over: bool,
    /// Whether no IPU that a Pod uses may be assigned to another owner. Two active replicas, or one
    /// whose watch is late, may do so where the controller has lost its state.
    pub assigns_once: bool,
    pub assigned_ipus: AssignedIpus,
    pub death: Option<Death>,
    /// Longest time that a Pod runs or takes to end, in milliseconds.
    pub longest_run: u64,
    /// The backup from which the API server will be restored.
    pub backup: Option<Backup>,
    /// The number of restores.
    pub restores: u64,
    /// The number of releases after the first one.
    pub handovers: u64,
    /// Changes that the watches have delivered, and those that the watches of the reconciler of
    /// jobs have, by kind.
    announced: usize,
    pub announced_to_jobs: [usize; 3],
}

impl World {
    /// A world without faults and owners, with controllers of these sizes.
    pub(super) fn calm(seed: u64, sizes: &[u32], trace: Trace) -> Self {
        let sizes = sizes.iter().enumerate();
        let mut world = World {
            api: ApiServer::default(),
            controllers: sizes
                .map(|(index, total)| Controller::new(index, *total))
                .collect(),
            replicas: Default::default(),
            jobs: Vec::new(),
            server: JobServer::default(),
            job_ids: BTreeMap::new(),
            pod_settings: Arc::new(pod_settings()),
            job_history: JobHistory::default(),
            rejections: 0,
            pods: BTreeMap::new(),
            foreign: BTreeSet::new(),
            cordons: CordonStates::new(),
            renamed: BTreeMap::new(),
            second_names: Vec::new(),
            list_problem: None,
            published_sizes: BTreeMap::new(),
            undeletable: BTreeSet::new(),
            behind: SignedDuration::ZERO,
            event_queue: EventQueue::default(),
            epoch: Instant::now(),
            rng: Rng::new(seed),
            fault_rates: FaultRates::default(),
            history: RunHistory::default(),
            missing: Missing::default(),
            coverage: Coverage::default(),
            trace,
            settings: sim_adapter::settings(),
            numbers: 0,
            has_lease: true,
            api_down_until: 0,
            is_over: false,
            assigns_once: false,
            assigned_ipus: AssignedIpus::default(),
            death: None,
            longest_run: 400_000,
            backup: None,
            restores: 0,
            handovers: 0,
            announced: 0,
            announced_to_jobs: [0; 3],
        };
        world.replicas[0].acts = true;
        world.start(0);
        world.start(1);
        world
    }

    /// Adds a job, which is created now.
    pub(super) fn add_job(&mut self, job: Job) -> usize {
        self.add_job_later(job, 0)
    }

    /// Adds a job, which is created after these milliseconds.
    pub(super) fn add_job_later(&mut self, mut job: Job, delay: u64) -> usize {
        let index = self.jobs.len();
        job.uid = format!("job-uid-{index}");
        self.job_ids.insert(job_uid(NAMESPACE, &job.uid), index);
        self.jobs.push(job);
        self.event_queue.add(delay, Event::Fate(index, Fate::Come));
        index
    }

    pub(super) fn cover(&mut self, point: CoveragePoint) {
        self.coverage.count(point);
    }

    /// The V-IPU account of the operator. The admin changes it each hour.
    pub(super) fn account(&self) -> String {
        format!("user-{}", self.event_queue.now() / 3_600_000)
    }

    pub(super) fn timestamp(&self) -> Timestamp {
        let since = i64::try_from(self.event_queue.now()).expect("a run is short");
        Timestamp::UNIX_EPOCH
            + SignedDuration::from_secs(1_700_000_000)
            + SignedDuration::from_millis(since)
            - self.behind
    }

    /// The name of an object in the trace.
    pub(super) fn name(&self, key: Key) -> String {
        format!("{}/{}", self.jobs[job_of(key)].uid, key % SLOTS)
    }

    pub(super) fn is_api_down(&self) -> bool {
        self.api_down_until > self.event_queue.now()
    }

    /// Handles all events up to this time.
    pub(super) fn run_until(&mut self, time: u64) {
        while let Some(event) = self.event_queue.next(time) {
            self.coverage.steps += 1;
            self.happen(event);
            self.announce();
        }
    }

    fn happen(&mut self, event: Event) {
        let Some(event) = self.unless_it_stands(event) else {
            return;
        };
        match event {
            Event::Watch { who, upto } => self.watch(who, upto),
            Event::Wake { who, key, number } => self.wake(who, key, number),
            Event::Send(ticket) => {
                if self.rng.permille(self.fault_rates.stalls) && !self.is_over {
                    self.stand_still(ticket.who);
                    self.happen(Event::Send(ticket));
                } else {
                    self.send(ticket);
                }
            }
            Event::Reply(ticket, reply) => self.reply(ticket, reply),
            Event::Arrive(call) => self.arrive(&call),
            Event::Progress {
                controller,
                id,
                then,
            } => self.progress(controller, &id, then),
            Event::Sweep { who, life, stage } => self.sweep(who, life, stage),
            Event::Pass { who, life } => self.pass(who, life),
            Event::Refresh { who, life } => self.refresh(who, life),
            Event::JobWatch { who, kind, upto } => self.watch_jobs(who, kind, upto),
            Event::JobWake { who, job, number } => self.wake_job(who, job, number),
            Event::JobSend(ticket) => {
                if self.rng.permille(self.fault_rates.stalls) && !self.is_over {
                    self.stand_still(ticket.who);
                    self.happen(Event::JobSend(ticket));
                } else {
                    self.send_job(ticket);
                }
            }
            Event::JobReply(ticket, reply) => self.job_reply(ticket, *reply),
            Event::Kubelet(pod, stage) => self.kubelet(pod, stage),
            Event::Tick(job) => self.tick(job),
            Event::Fate(job, fate) => self.fate(job, fate),
            Event::PodEnds(pod) => self.pod_ends(pod),
            Event::Fault => self.inject_fault(),
            Event::Repair(repair) => self.repair(repair),
        }
    }

    /// Defers the events of a paused replica.
    fn unless_it_stands(&mut self, event: Event) -> Option<Event> {
        let who = match &event {
            Event::Watch { who, .. }
            | Event::Wake { who, .. }
            | Event::Pass { who, .. }
            | Event::Refresh { who, .. }
            | Event::JobWatch { who, .. }
            | Event::JobWake { who, .. }
            | Event::Sweep { who, .. } => *who,
            Event::JobSend(ticket) | Event::JobReply(ticket, _) => ticket.who,
            Event::Send(ticket) | Event::Reply(ticket, _) => ticket.who,
            _ => return Some(event),
        };
        let wait = self.replicas[who]
            .stands_until
            .saturating_sub(self.event_queue.now());
        if wait == 0 {
            return Some(event);
        }
        if let Event::Send(ticket) = &event
            && let Some(task) = self.task(*ticket)
        {
            task.stood = true;
        }
        if let Event::JobSend(ticket) = &event {
            self.job_stands(*ticket);
        }
        self.event_queue.add(wait, event);
        None
    }

    /// Notifies the watches and the owners of changes.
    fn announce(&mut self) {
        for kind in Kind::ALL {
            self.announce_to_jobs(kind);
        }
        let upto = self.api.log().len();
        if self.announced == upto {
            return;
        }
        for index in self.announced..upto {
            let lag = self.rng.between(1, 200);
            let job = job_of(self.api.log()[index].key);
            self.schedule_tick(job, lag);
        }
        for who in 0..self.replicas.len() {
            let lag = self.replicas[who].lag + self.latency();
            self.event_queue.add(lag, Event::Watch { who, upto });
        }
        self.announced = upto;
    }

    /// A slot has at most one partition that Pods use or may use: this one.
    pub(super) fn check_partition(&self, id: &str) {
        let user = self.pods.values().find(|pod| pod.id == *id);
        if let Some(key) = user.map(|pod| pod.key) {
            self.check_slot(key);
        }
    }

    /// A slot has at most one partition that Pods use or may use.
    pub(super) fn check_slot(&self, key: Key) {
        let used = self.pods.values().filter(|pod| pod.key == key);
        let mut usable: BTreeSet<&str> = used
            .map(|pod| pod.id.as_str())
            .filter(|id| self.exists(id) && !self.history.was_abandoned(id))
            .collect();
        let object = self.api.get(key).map(|stored| stored.object.as_ref());
        usable.extend(object.and_then(api_server::offered));
        demand(usable.len() <= 1, ONE_USABLE, || {
            format!("{}: {usable:?}", self.name(key))
        });
    }

    pub(super) fn exists(&self, id: &str) -> bool {
        self.controllers.iter().any(|one| one.made.contains_key(id))
    }

    /// Whether the step that is being executed is the last one before a planned crash.
    pub(super) fn is_last_step(&mut self, who: usize) -> bool {
        match &mut self.death {
            Some(death) if who == 0 && death.after > 0 => {
                death.after -= 1;
                false
            }
            death => death.is_some() && who == 0,
        }
    }

    /// The partitions of a release, with their controllers.
    pub(super) fn ours(&self) -> Vec<(usize, &str)> {
        let all = self.controllers.iter().enumerate();
        all.flat_map(|(index, one)| one.made.keys().map(move |id| (index, id.as_str())))
            .filter(|(_, id)| self.history.is_ours(id))
            .collect()
    }

    /// A partition that is being removed does not count as present.
    pub(super) fn is_removing(&self, controller: usize, id: &str) -> bool {
        self.controllers[controller].is_removing(id)
    }
}
