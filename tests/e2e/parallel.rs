//! mpirun across more workers than it would talk to directly.

use libtest_mimic::Failed;

use crate::scene::{PATIENCE, Scene};

/// Left alone, mpirun would have the first workers start the others. Only the launcher may: eight
/// workers, with a radix of two, run all the same.
pub(crate) fn more_workers_than_the_radix(scene: &Scene) -> Result<(), Failed> {
    scene.block_on(async {
        let mut job = scene.example("02-parallel.yaml")?;
        job.spec.workers_per_job_instance = Some("8".to_owned());
        let launcher = job.spec.launcher.as_mut().expect("it is a parallel job");
        let command = "mpirun -np 8 --bind-to none --mca routed_radix 2 hostname";
        launcher.command = command.split(' ').map(ToOwned::to_owned).collect();
        scene.create(&job).await?;
        let fact = scene.fact("02-parallel.yaml")?;
        scene.facts().completed(&fact, PATIENCE).await?;
        let log = scene.kubectl(&["logs", "parallel-launcher"]).await?;
        let mut ranks: Vec<&str> = log
            .lines()
            .filter(|line| line.starts_with("parallel-worker-"))
            .collect();
        ranks.sort_unstable();
        let workers: Vec<String> = (0..8)
            .map(|index| format!("parallel-worker-{index}"))
            .collect();
        assert_eq!(ranks, workers, "one rank on each: {log}");
        scene.delete_and_leave_nothing("02-parallel.yaml").await
    })
}
