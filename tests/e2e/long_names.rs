//! The longest names that Kubernetes accepts, and names with a dot, on real nodes and under
//! `mpirun`.

use cluster::images::openmpi::OpenMpi;
use ipu_api::ipujob_status::JobState;
use libtest_mimic::Failed;
use tests::described::COMPLETED;

use crate::described::once_described;
use crate::fixture::Fixture;

/// Characters of the longest name that validation accepts, and of its namespace: the kubelet names
/// a folder of logs after the namespace, the Pod and its UID, and a file name has at most 255
/// characters.
const LONGEST: usize = 208;

/// A rank that communicates: Open MPI knows by their host names which ranks share memory.
const RANK: &str = r#"
import os
from mpi4py import MPI
sum = MPI.COMM_WORLD.allreduce(1)
print("GCD %s: %d ranks\n" % (os.environ["IPUOF_VIPU_API_GCD_ID"], sum), end="", flush=True)
"#;

/// The ranks of both workers communicate, although a host name has at most 63 characters. A user
/// reads each name in full: the events of the job name its Pods.
pub(crate) fn run_mpirun(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let mpirun = ["mpirun", "-np", "2", "--bind-to", "none"];
        let command = [&mpirun[..], &["python3", "-c", RANK]].concat();
        let long = |length: usize| format!("j{}", "0".repeat(length - 1));
        let longest = long(LONGEST - fixture.namespace.len());
        // Open MPI cuts host names at the first dot.
        let dotted = "resnet50.v1".to_owned();
        for (version, name) in [
            (OpenMpi::Four, long(64)),
            (OpenMpi::Four, longest.clone()),
            (OpenMpi::Five, longest),
            (OpenMpi::Four, dotted.clone()),
            (OpenMpi::Five, dotted),
        ] {
            let mut job = fixture.parallel(version, 0, &command)?;
            job.metadata.name = Some(name.clone());
            fixture.create(&job).await?;
            fixture.once(&name, JobState::Completed).await?;
            let log = fixture
                .kubectl(&["logs", &format!("{name}-launcher")])
                .await?;
            for gcd in 0..2 {
                assert!(log.contains(&format!("GCD {gcd}: 2 ranks\n")), "{log}");
            }
            let described = once_described(fixture, &name, &COMPLETED).await?;
            let created = described.messages("SuccessfulCreate").join("\n");
            for pod in ["worker-0", "worker-1", "launcher"] {
                let pod = format!("{name}-{pod}");
                assert!(created.contains(&pod), "no event names {pod}: {created}");
            }
            fixture.clear().await?;
        }
        Ok(())
    })
}
