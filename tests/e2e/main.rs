//! One run on real nodes: the demo, then trials in which processes are killed, nodes become unreachable, or data is
//! invalid, and the jobs still end as expected.
//!
//! The cluster starts once for all trials and stops after them, also when they fail.

mod api_outage;
mod autoscaled;
mod described;
mod disruptions;
mod documents;
mod failing_pods;
mod fixture;
mod flooded;
mod interactive;
mod life;
mod long_names;
mod lost_node;
mod many_jobs;
mod namespaces;
mod native_pods;
mod parallel;
mod pods;
mod policies;
mod queued;
mod release;
mod service;
mod simulators;
mod streams;
mod unaffected;
mod upgraded;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use cluster::interrupt::{self, First};
use fixture::Fixture;

/// The trials, in the order in which they run.
type Check = fn(&Fixture) -> Result<(), Failed>;
const TRIALS: [(&str, Check); 41] = [
    ("three_jobs_from_apply_to_completed", fixture::demo),
    (
        "running_sidecar_does_not_prevent_completion",
        life::completes_beside_a_sidecar,
    ),
    (
        "open_mpi_4_reaches_more_workers_than_its_radix",
        parallel::four_reaches_more_workers_than_its_radix,
    ),
    (
        "open_mpi_5_reaches_more_workers_than_its_radix",
        parallel::five_reaches_more_workers_than_its_radix,
    ),
    (
        "open_mpi_4_runs_as_a_normal_user",
        parallel::four_runs_as_a_normal_user,
    ),
    (
        "open_mpi_5_runs_as_a_normal_user",
        parallel::five_runs_as_a_normal_user,
    ),
    (
        "worker_deleted_under_open_mpi_4_fails_the_job",
        parallel::four_loses_a_worker,
    ),
    (
        "worker_deleted_under_open_mpi_5_fails_the_job",
        parallel::five_loses_a_worker,
    ),
    (
        "mpirun_reaches_sixty_four_workers",
        parallel::reaches_sixty_four_workers,
    ),
    (
        "service_scales_updates_and_recovers",
        service::scales_updates_and_recovers,
    ),
    (
        "interactive_job_runs_mpirun_by_exec_and_is_suspended",
        interactive::runs_mpirun_and_is_suspended,
    ),
    (
        "interactive_job_completes_at_the_end_of_its_time",
        interactive::ends_by_itself,
    ),
    ("pods_that_do_not_start_say_why", failing_pods::do_not_start),
    (
        "init_container_that_fails_is_named",
        failing_pods::init_container_fails,
    ),
    (
        "worker_killed_for_memory_is_reported_as_oom_killed",
        failing_pods::killed_for_memory,
    ),
    (
        "worker_evicted_for_its_storage_fails_the_job",
        failing_pods::evicted_for_storage,
    ),
    ("preempted_worker_comes_back", disruptions::is_preempted),
    ("drained_worker_comes_back", disruptions::worker_is_drained),
    (
        "drain_under_mpirun_is_named",
        disruptions::parallel_job_is_drained,
    ),
    (
        "limit_range_holds_for_all_containers",
        namespaces::limit_range_is_kept,
    ),
    (
        "pod_security_baseline_accepts_a_parallel_job",
        namespaces::baseline_accepts_a_parallel_job,
    ),
    (
        "pod_security_restricted_accepts_a_job_with_the_required_fields",
        namespaces::restricted_accepts_a_job_with_the_required_fields,
    ),
    (
        "stdout_of_a_worker_that_floods_arrives_whole",
        streams::no_byte_of_a_flood_is_lost,
    ),
    ("longest_names_run_mpirun", long_names::run_mpirun),
    (
        "stream_is_not_needed_by_detached_ranks",
        streams::detached_ranks_need_no_stream,
    ),
    (
        "flood_from_a_pod_disturbs_nobody",
        flooded::users_are_unaffected,
    ),
    (
        "two_jobs_share_a_quota_of_kueue",
        queued::two_jobs_share_a_quota,
    ),
    ("jobset_gets_its_ipus", queued::a_jobset_gets_its_ipus),
    (
        "native_jobs_in_a_queue_of_kueue_wait_for_quota_and_partitions",
        native_pods::wait_for_quota_and_partitions,
    ),
    (
        "guests_of_policies_decide_until_they_are_deleted",
        policies::decide_until_they_are_deleted,
    ),
    (
        "live_requests_are_recorded_and_replayed",
        policies::are_recorded_and_replayed,
    ),
    ("release_is_tested_by_helm_test", release::is_tested),
    (
        "release_is_upgraded_rolled_back_and_installed_again_under_jobs",
        release::lives_under_jobs,
    ),
    (
        "previous_release_is_upgraded_and_rolled_back_under_jobs",
        upgraded::from_the_previous_release,
    ),
    (
        "native_pod_waits_for_ipus_though_the_operator_is_killed",
        native_pods::waits_for_its_ipus,
    ),
    (
        "native_pods_of_a_job_and_a_stateful_set_are_replaced",
        native_pods::replace_and_restart_pods,
    ),
    (
        "native_pod_deleted_while_its_partition_forms_leaves_nothing",
        native_pods::is_deleted_while_its_partition_forms,
    ),
    (
        "native_manifests_of_graphcores_guide_run",
        native_pods::examples_run,
    ),
    ("commands_of_the_quickstart_work", documents::quickstart),
    (
        "commands_of_the_documents_for_users_work",
        documents::for_users,
    ),
    (
        "commands_of_the_documents_for_admins_work",
        documents::for_admins,
    ),
];

/// Trials of `make test-full` only: they need more tools, or take minutes.
const LONG: [(&str, Check); 7] = [
    ("autoscaler_counts_instances", autoscaled::counts_instances),
    (
        "outage_of_the_api_server_for_a_minute_is_survived",
        api_outage::is_survived,
    ),
    ("idle_stream_stays_open", streams::an_idle_stream_stays_open),
    ("stream_that_is_cut_is_noticed", streams::a_cut_is_noticed),
    (
        "pods_of_an_unreachable_node_are_force_deleted",
        lost_node::pods_are_force_deleted,
    ),
    (
        "ipus_of_restarted_and_new_nodes_are_advertised_again",
        native_pods::are_advertised_again,
    ),
    (
        "upgrade_disturbs_none_of_two_hundred_jobs",
        many_jobs::is_not_disturbed_by_an_upgrade,
    ),
];

/// The variable that selects trials: `long` runs the long trials instead of the others, and `full` runs both.
const EXTENT: &str = "IPU_OPERATOR_E2E";

fn main() -> ExitCode {
    // The first process of a node is the program that starts the cluster: this one.
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, spec] = words.as_slice()
        && word == "node"
    {
        return match cluster::node::run(std::path::Path::new(spec)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    // The load of a trial runs as if it were in a Pod: this program, in a process of its own.
    if let [_, word, pid, targets] = words.as_slice()
        && word == "flood"
    {
        return match flooded::load(pid, targets) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // They share one cluster, and its kills and faults.
    arguments.test_threads = Some(1);
    let extent = std::env::var(EXTENT).unwrap_or_default();
    let Some(chosen) = chosen(&extent) else {
        eprintln!("{EXTENT} is {extent:?}; it can be `long` or `full`, or not set");
        return ExitCode::FAILURE;
    };
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(&chosen, None)).exit_code();
    }
    if let Err(error) = interrupt::watch(First::EndCluster) {
        eprintln!("failed to watch for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    let fixture = match Fixture::set_up() {
        Ok(fixture) => fixture,
        Err(error) => {
            eprintln!("the cluster did not start: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials(&chosen, Some(&fixture)));
    if let Err(error) = fixture.tear_down() {
        eprintln!("the cluster was not removed completely: {error:#}");
        return ExitCode::FAILURE;
    }
    if interrupt::came() {
        return ExitCode::from(interrupt::STATUS);
    }
    if conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no trial matches the arguments");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Name and function of a trial.
type Named = (&'static str, Check);

/// The trials of an extent, if there is one of this name.
fn chosen(extent: &str) -> Option<Vec<Named>> {
    match extent {
        "" => Some(TRIALS.to_vec()),
        "long" => Some(LONG.to_vec()),
        "full" => Some([&TRIALS[..], &LONG].concat()),
        _ => None,
    }
}

fn trials(chosen: &[Named], fixture: Option<&std::sync::Arc<Fixture>>) -> Vec<Trial> {
    let trial = |&(name, check): &Named| {
        let fixture = fixture.cloned();
        Trial::test(name, move || {
            let fixture = fixture.as_deref();
            check(fixture.expect("a trial runs only after the set-up"))
        })
    };
    chosen.iter().map(trial).collect()
}
