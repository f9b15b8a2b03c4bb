//! One run on real nodes: the demo, then everything around the first job is killed, taken down or
//! fed nonsense, and the jobs still end as they should.
//!
//! The cluster is brought up once for all trials and taken down after them, also when they fail.

mod autoscaled;
mod broken_list;
mod crowd;
mod down;
mod killed;
mod life;
mod lost_node;
mod parallel;
mod policies;
mod release;
mod scene;
mod service;
mod session;
mod undisturbed;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use scene::Scene;
use tests::lab::interrupt::{self, First};

/// The trials, in the order in which they run.
type Check = fn(&Scene) -> Result<(), Failed>;
const TRIALS: [(&str, Check); 22] = [
    ("three_jobs_from_apply_to_completed", scene::demo),
    (
        "proxy_killed_after_the_partition_was_formed_and_before_it_was_recorded",
        killed::proxy,
    ),
    ("controller_killed_while_the_job_starts", killed::controller),
    (
        "controller_down_and_the_job_goes_elsewhere",
        down::goes_elsewhere,
    ),
    (
        "job_that_fits_nowhere_waits_and_says_why",
        down::waits_and_says_why,
    ),
    (
        "failed_run_starts_again_on_the_same_partition",
        life::fails_and_starts_again,
    ),
    (
        "helper_that_runs_on_keeps_no_job_from_completing",
        life::completes_beside_a_helper,
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
        "service_grows_changes_and_heals",
        service::grows_changes_and_heals,
    ),
    (
        "session_runs_mpirun_by_exec_and_rests",
        session::runs_mpirun_and_rests,
    ),
    (
        "session_ends_as_completed_when_its_time_is_over",
        session::ends_by_itself,
    ),
    ("guests_of_policies_decide_and_go", policies::decide_and_go),
    (
        "live_requests_are_recorded_and_replayed",
        policies::are_recorded_and_replayed,
    ),
    (
        "bad_line_in_the_list_of_controllers",
        broken_list::the_rest_goes_on,
    ),
    ("release_is_tried_by_helm_test", release::is_tried),
    (
        "release_is_upgraded_rolled_back_and_installed_again_under_jobs",
        release::lives_under_jobs,
    ),
];

/// Trials of `make test-full`: they need more tools, or minutes of patience.
const LONG: [(&str, Check); 3] = [
    ("autoscaler_counts_instances", autoscaled::counts_instances),
    ("silent_node_lets_its_pods_go", lost_node::lets_its_pods_go),
    (
        "upgrade_disturbs_none_of_two_hundred_jobs",
        crowd::is_not_disturbed_by_an_upgrade,
    ),
];

/// Where this variable is `full`, the long trials run as well.
const EXTENT: &str = "IPU_OPERATOR_E2E";

fn main() -> ExitCode {
    // The first process of a node is the program that starts the cluster: this one.
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, spec] = words.as_slice()
        && word == "node"
    {
        return match tests::lab::node::run(std::path::Path::new(spec)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    // They share one cluster, and its kills and faults.
    arguments.test_threads = Some(1);
    if arguments.list {
        return libtest_mimic::run(&arguments, trials(None)).exit_code();
    }
    if let Err(error) = interrupt::watch(First::EndCluster) {
        eprintln!("failed to watch for Ctrl-C: {error}");
        return ExitCode::FAILURE;
    }
    let scene = match Scene::set() {
        Ok(scene) => scene,
        Err(error) => {
            eprintln!("the cluster did not come up: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials(Some(&scene)));
    if let Err(error) = scene.strike() {
        eprintln!("the cluster left something behind: {error:#}");
        return ExitCode::FAILURE;
    }
    if interrupt::came() {
        return ExitCode::from(interrupt::STATUS);
    }
    conclusion.exit_code()
}

fn trials(scene: Option<&std::sync::Arc<Scene>>) -> Vec<Trial> {
    let is_full = std::env::var_os(EXTENT).is_some_and(|extent| extent == "full");
    let long = LONG.into_iter().filter(|_| is_full);
    TRIALS
        .into_iter()
        .chain(long)
        .map(|(name, check)| {
            let scene = scene.cloned();
            Trial::test(name, move || {
                check(
                    scene
                        .as_deref()
                        .expect("a trial runs only once the scene is set"),
                )
            })
        })
        .collect()
}
