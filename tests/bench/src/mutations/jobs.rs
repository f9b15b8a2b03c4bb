//! Mistakes in the reconciler of jobs. The simulation runs its core, the model check does not.

use super::{FoundBy, Mutation, SIMULATION, Tests};

/// All library tests of the jobs.
const JOB_TESTS: FoundBy = FoundBy::Tests(Tests {
    package: "ipu-jobs",
    named: "",
    bound: None,
});

/// The simulation alone.
const BY_SIMULATION: FoundBy = FoundBy::Tests(SIMULATION);

/// A run of the simulation with a watch that is late.
const LATE_WATCH: FoundBy = FoundBy::Tests(Tests {
    package: "partition-simulation",
    named: "a_late_watch_of_partitions_skips_no_reset",
    bound: None,
});

/// Every mistake in the reconciler of jobs that is tried.
pub(super) const MUTATIONS: &[Mutation] = &[
    Mutation {
        name: "a Pod that is lost is created again without a reset of its partition",
        file: "host/jobs/src/facts/instance.rs",
        text: "        let has_lost = self.used && self.has_lost_pod();",
        instead: "        let has_lost = self.used && self.has_lost_pod() && self.pinned;",
        found_by: BY_SIMULATION,
    },
    Mutation {
        name: "a Pod holds up the reset that the missing ones wait for",
        file: "host/jobs/src/facts/instance.rs",
        text: "        has_lost || self.holds_up_its_reset()",
        instead: "        has_lost || (self.pinned && self.holds_up_its_reset())",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a job that has finished keeps its partitions",
        file: "host/jobs/src/plan/clean_up.rs",
        text: "    if !facts.launcher.live() {\n        for instance in facts.all() {",
        instead: "    if facts.launcher.live() {\n        for instance in facts.all() {",
        found_by: BY_SIMULATION,
    },
    Mutation {
        name: "a partition that was reset counts as used until a Pod uses it",
        file: "host/jobs/src/facts.rs",
        text: "self.run.used.get(&key) == Some(&one.use_key());",
        instead: "self.run.used.get(&key).is_some_and(|used| used.starts_with(&one.id));",
        found_by: BY_SIMULATION,
    },
    Mutation {
        name: "the use of a partition is recorded only when all of its Pods exist",
        file: "host/jobs/src/plan/instance.rs",
        text: "        if facts.run.used.get(&index) != Some(&key) {",
        instead: "        if !instance.incomplete() && facts.run.used.get(&index) != Some(&key) {",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a late watch erases the record that Pods have used a partition",
        file: "host/jobs/src/executor/uses.rs",
        text: "                effects.has_partition(&partition).await?",
        instead: "                effects.has_partition(&partition).await? && partition.is_empty()",
        found_by: LATE_WATCH,
    },
    Mutation {
        name: "a stricter limit stops what runs",
        file: "host/jobs/src/facts.rs",
        text: "        (has_not_started && !started).then(|| PartitionState::Rejected(error.to_string()))",
        instead: "        (has_not_started || started).then(|| PartitionState::Rejected(error.to_string()))",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a job is reconciled before the objects of jobs are listed",
        file: "host/jobs/src/cache_sync.rs",
        text: "kind.incomplete.fetch_sub(1, Ordering::Relaxed) == 1",
        instead: "kind.incomplete.fetch_sub(1, Ordering::Relaxed) > 0",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a queued job starts without an admission",
        file: "host/jobs/src/step.rs",
        text: "if context.shared.kueue.is_served()
        && !has_started",
        instead: "if !context.shared.kueue.is_served()
        && !has_started",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "an upgrade stops the running jobs of a queue",
        file: "host/jobs/src/step.rs",
        text: "let has_started = has_pods || has_partitions",
        instead: "let has_started = !has_pods && has_partitions",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a job that Kueue has stopped continues when a user resumes it",
        file: "host/jobs/src/step.rs",
        text: "let has_started = has_pods || has_partitions && status::has_started(&observed.status);",
        instead: "let has_started = !observed.pods.is_empty() || has_partitions;",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a deadline is late if an obstacle blocks the job",
        file: "host/jobs/src/executor.rs",
        text: "    blocked.into_iter().chain(due).min()",
        instead: "    blocked.or(due)",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a wait for Pods is reported again with every change of its text",
        file: "host/jobs/src/status/events.rs",
        text: "        before.reason == now.reason && (!is_failure || before.message == now.message)",
        instead: "        before.message == now.message",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a reconcile waits until its events are written",
        file: "host/jobs/src/context.rs",
        text: "        let events = events::status_events(old, &new);",
        instead: "        let events = events::status_events(old, &new);
        let namespace = snapshot.job.namespace().unwrap_or_default();
        let sent: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(self.client.clone(), &namespace);
        for _ in &events {
            let _ = sent.create(&Default::default(), &Default::default()).await;
        }",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "the status of a job is written because its Pods are not ready any more",
        file: "host/jobs/src/status.rs",
        text: "if status != *old || accounting::runs_again(&input, (state, &run), old) {",
        instead: "{",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "the time in which a job runs again counts as idle",
        file: "host/jobs/src/status.rs",
        text: "if status != *old || accounting::runs_again(&input, (state, &run), old) {",
        instead: "if status != *old {",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a Pod of any namespace belongs to the job whose UID it names",
        file: "host/jobs/src/job_object.rs",
        text: "Uid::of(&format!(\"{namespace}/{uid}\"))",
        instead: "Uid::of(&format!(\"{0}/{uid}\", &namespace[..0]))",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a Pod that has lost its owner reference stays for ever",
        file: "host/jobs/src/cache.rs",
        text: "let job = object.job().map(|job| job.uid).or_else(former)?;",
        instead: "let job = object.job().map(|job| job.uid).or_else(|| former().filter(|_| false))?;",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "the back-off after a reset counts as the reset",
        file: "host/jobs/src/status/activity.rs",
        text: "                changes.push((JobActivity::Restarting, ready));",
        instead: "",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a Pod that never became Ready makes its job idle",
        file: "host/jobs/src/facts/readiness.rs",
        text: "    if changed <= started {",
        instead: "    if changed < started && changed > started {",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "what ran before a reset is not wasted with its run",
        file: "host/jobs/src/status/accounting.rs",
        text: "            add(&mut accounting.wasted, failed);",
        instead: "",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a running launcher loses its rights when the admin shares those of new ones",
        file: "host/jobs/src/plan/rights.rs",
        text: "        Some(_) => facts.launcher.shares_rights,",
        instead: "        Some(_) => access::shares_rights(job, settings),",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "launchers share rights although the policy only audits",
        file: "host/jobs/src/build/shared_rights.rs",
        text: "    } else if !denies || bound.match_resources.is_some() {",
        instead: "    } else if bound.match_resources.is_some() {",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a list of any number of workers is an annotation",
        file: "host/jobs/src/build/agent.rs",
        text: "saturating_add(length) > ANNOTATIONS_MAX {",
        instead: "saturating_add(length) > usize::MAX - ANNOTATIONS_MAX {",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a Pod whose agent the API server drops counts as accepted",
        file: "host/runtime/src/image_volume.rs",
        text: "    has_agent(&json!(pod)) && !has_agent(&json!(answer))",
        instead: "    !has_agent(&json!(pod)) && has_agent(&json!(answer))",
        found_by: JOB_TESTS,
    },
    Mutation {
        name: "a Pod without its agent runs",
        file: "host/jobs/src/writes/pod.rs",
        text: "    if !image_volume::is_dropped(pod, &created) {",
        instead: "    if !image_volume::is_dropped(pod, pod) {",
        found_by: JOB_TESTS,
    },
];
