//! The trials, in the order in which they run, and how each uses the cluster.

use libtest_mimic::Failed;

use crate::fixture::Fixture;
use crate::managers::Managers;
use crate::{
    api_outage, autoscaled, disruptions, documents, failing_pods, fenced, fixture, flooded, guides,
    host_network, interactive, launcher, life, long_names, lost_node, many_jobs, mounted_agent,
    namespaces, native_pods, networks, parallel, policies, queued, release, service, shared_rights,
    streams, train, upgraded,
};

/// The function of a trial.
pub(crate) type Check = fn(&Fixture) -> Result<(), Failed>;

/// How a trial uses the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Beside other trials, in a namespace of its own. It changes and counts nothing outside of it,
    /// expects no particular V-IPU controller, and needs at most 16 IPUs, so that all trials at the
    /// same time get theirs at once.
    Shared,
    /// Alone, beside these managers.
    Alone(Managers),
    /// Alone, with little other work on the machine: programs of MPI do not reach each other on
    /// busy cores.
    Sparing,
    /// Alone, once no other work loads the machine.
    Quiet,
}

impl Use {
    /// Whether a trial with this use passes while other work keeps both cores busy. The quiet ones
    /// wait until it has ended. Helm and kubectl wait a fixed time for the schemas of a manager.
    pub(crate) const fn tolerates_load(self) -> bool {
        matches!(self, Self::Alone(Managers::Neither) | Self::Quiet)
    }
}

/// A trial.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) usage: Use,
    pub(crate) check: Check,
}

/// The trials of `make test`. Neighbours with the same use form a phase of the run.
pub(crate) const TRIALS: [Case; 47] = [
    alone("three_jobs_from_apply_to_completed", fixture::demo),
    // It waits two minutes for the kubelet, so it begins first.
    shared(
        "worker_evicted_for_its_storage_fails_the_job",
        failing_pods::evicted_for_storage,
    ),
    shared(
        "service_scales_updates_and_recovers",
        service::scales_updates_and_recovers,
    ),
    shared(
        "stream_is_not_needed_by_detached_ranks",
        streams::detached_ranks_need_no_stream,
    ),
    shared(
        "stdout_of_a_worker_that_floods_arrives_whole",
        streams::no_byte_of_a_flood_is_lost,
    ),
    shared("longest_names_run_mpirun", long_names::run_mpirun),
    shared(
        "launcher_holds_the_template_and_keeps_its_log_beside_a_sidecar",
        launcher::holds_the_template_and_keeps_its_log,
    ),
    shared(
        "native_pods_of_a_job_and_a_stateful_set_are_replaced",
        native_pods::replace_and_restart_pods,
    ),
    shared(
        "native_manifests_of_graphcores_guide_run",
        native_pods::examples_run,
    ),
    shared("trainings_run_with_stand_ins", train::trainings_run),
    shared("jobs_of_graphcores_guides_train", guides::jobs_train),
    shared(
        "open_mpi_4_reaches_more_workers_than_its_radix",
        parallel::four_reaches_more_workers_than_its_radix,
    ),
    shared(
        "open_mpi_5_reaches_more_workers_than_its_radix",
        parallel::five_reaches_more_workers_than_its_radix,
    ),
    shared(
        "open_mpi_4_runs_as_a_normal_user",
        parallel::four_runs_as_a_normal_user,
    ),
    shared(
        "open_mpi_5_runs_as_a_normal_user",
        parallel::five_runs_as_a_normal_user,
    ),
    shared(
        "worker_deleted_under_open_mpi_4_fails_the_job",
        parallel::four_loses_a_worker,
    ),
    shared(
        "worker_deleted_under_open_mpi_5_fails_the_job",
        parallel::five_loses_a_worker,
    ),
    shared(
        "interactive_job_runs_mpirun_by_exec_and_is_suspended",
        interactive::runs_mpirun_and_is_suspended,
    ),
    shared(
        "interactive_job_completes_at_the_end_of_its_time",
        interactive::ends_by_itself,
    ),
    shared("pods_that_do_not_start_say_why", failing_pods::do_not_start),
    shared(
        "pod_that_its_node_rejects_is_created_again",
        failing_pods::are_rejected,
    ),
    shared(
        "init_container_that_fails_is_named",
        failing_pods::init_container_fails,
    ),
    shared(
        "worker_killed_for_memory_is_reported_as_oom_killed",
        failing_pods::killed_for_memory,
    ),
    shared(
        "limit_range_holds_for_all_containers",
        namespaces::limit_range_is_kept,
    ),
    shared(
        "pod_security_baseline_accepts_a_parallel_job",
        namespaces::baseline_accepts_a_parallel_job,
    ),
    shared(
        "pod_security_restricted_accepts_a_job_with_the_required_fields",
        namespaces::restricted_accepts_a_job_with_the_required_fields,
    ),
    shared(
        "running_sidecar_does_not_prevent_completion",
        life::completes_beside_a_sidecar,
    ),
    sparing(
        "mpirun_reaches_sixty_four_workers",
        parallel::reaches_sixty_four_workers,
    ),
    sparing(
        "jobs_share_the_network_of_their_node",
        host_network::is_shared_by_jobs,
    ),
    sparing(
        "launchers_share_rights_on_the_network_of_their_node",
        shared_rights::suffice_for_jobs,
    ),
    sparing(
        "image_delivery_runs_mpirun_on_nodes",
        mounted_agent::run_mpirun,
    ),
    sparing(
        "jobs_exchange_messages_over_the_network_preset",
        networks::preset_connects_workers,
    ),
    sparing(
        "drain_under_mpirun_is_named",
        disruptions::parallel_job_is_drained,
    ),
    with_jobset("jobset_gets_its_ipus", queued::a_jobset_gets_its_ipus),
    with_jobset("jobset_trains_with_stand_ins", train::jobset_trains),
    with_kueue(
        "native_jobs_in_a_queue_of_kueue_wait_for_quota_and_partitions",
        native_pods::wait_for_quota_and_partitions,
    ),
    with_kueue(
        "two_jobs_share_a_quota_of_kueue",
        queued::two_jobs_share_a_quota,
    ),
    alone("preempted_worker_comes_back", disruptions::is_preempted),
    alone("drained_worker_comes_back", disruptions::worker_is_drained),
    alone(
        "native_pod_waits_for_ipus_though_the_operator_is_killed",
        native_pods::waits_for_its_ipus,
    ),
    alone(
        "guests_of_policies_decide_until_they_are_deleted",
        policies::decide_until_they_are_deleted,
    ),
    alone(
        "live_requests_are_recorded_and_replayed",
        policies::are_recorded_and_replayed,
    ),
    alone("release_is_tested_by_helm_test", release::is_tested),
    alone("commands_of_the_quickstart_work", documents::quickstart),
    alone(
        "commands_of_the_documents_for_users_work",
        documents::for_users,
    ),
    alone(
        "commands_of_the_documents_for_admins_work",
        documents::for_admins,
    ),
    in_quiet(
        "flood_from_a_pod_disturbs_nobody",
        flooded::users_are_unaffected,
    ),
];

/// Trials of `make test-full` only: they need more tools or the programs of the previous release,
/// or take minutes.
pub(crate) const LONG: [Case; 10] = [
    shared("idle_stream_stays_open", streams::an_idle_stream_stays_open),
    shared("stream_that_is_cut_is_noticed", streams::a_cut_is_noticed),
    alone("autoscaler_counts_instances", autoscaled::counts_instances),
    alone(
        "outage_of_the_api_server_for_a_minute_is_survived",
        api_outage::is_survived,
    ),
    alone(
        "pods_of_an_unreachable_node_are_force_deleted",
        lost_node::pods_are_force_deleted,
    ),
    alone(
        "network_policies_are_enforced_on_nodes",
        fenced::are_enforced,
    ),
    alone(
        "ipus_of_restarted_and_new_nodes_are_advertised_again",
        native_pods::are_advertised_again,
    ),
    alone(
        "release_is_upgraded_rolled_back_and_installed_again_under_jobs",
        release::lives_under_jobs,
    ),
    alone(
        "previous_release_is_upgraded_and_rolled_back_under_jobs",
        upgraded::from_the_previous_release,
    ),
    alone(
        "upgrade_disturbs_none_of_two_hundred_jobs",
        many_jobs::is_not_disturbed_by_an_upgrade,
    ),
];

/// The trials of an extent, if there is one of this name. The last one needs a quiet machine.
pub(crate) fn chosen(extent: &str) -> Option<Vec<Case>> {
    let mut cases = match extent {
        "" => TRIALS.to_vec(),
        "long" => LONG.to_vec(),
        "full" => [&TRIALS[..], &LONG].concat(),
        _ => return None,
    };
    cases.sort_by_key(|case| case.usage == Use::Quiet);
    Some(cases)
}

const fn shared(name: &'static str, check: Check) -> Case {
    let usage = Use::Shared;
    Case { name, usage, check }
}

const fn alone(name: &'static str, check: Check) -> Case {
    let usage = Use::Alone(Managers::Neither);
    Case { name, usage, check }
}

const fn sparing(name: &'static str, check: Check) -> Case {
    let usage = Use::Sparing;
    Case { name, usage, check }
}

const fn with_jobset(name: &'static str, check: Check) -> Case {
    let usage = Use::Alone(Managers::JobSet);
    Case { name, usage, check }
}

const fn with_kueue(name: &'static str, check: Check) -> Case {
    let usage = Use::Alone(Managers::Both);
    Case { name, usage, check }
}

const fn in_quiet(name: &'static str, check: Check) -> Case {
    let usage = Use::Quiet;
    Case { name, usage, check }
}
