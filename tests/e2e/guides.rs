//! The jobs of Graphcore's guides in `examples`, on real nodes: their manifests, with the image of
//! the run, and a small program instead of the training in an image that no registry has.

use std::fs;

use ipu_api::ipujob_status::JobState;
use ipu_api::naming;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::failing_pods::IMAGE;
use crate::fixture::Fixture;

/// The manifests, and the IPUs of each job.
const JOBS: [(&str, u32); 3] = [
    ("04-training.yaml", 1),
    ("05-training-with-volume.yaml", 1),
    ("08-alpha-5.yaml", 4),
];

/// Stands for the training in a worker. A worker of 05 leaves a file in its volume.
const TRAINS: &str = r#"
import os
if os.path.isdir("/mnt/sample"):
    open("/mnt/sample/checkpoint", "w").write(os.environ["IPUOF_VIPU_API_PARTITION_ID"])
print("trained with " + os.environ["IPUOF_VIPU_API_PARTITION_ID"])
"#;

/// `mpirun` of each launcher starts the program in the worker, which has the partition of the job.
/// The launcher of 05 has the volume too.
pub(crate) fn jobs_train(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let folder = tempfile::tempdir_in(&fixture.settings.run)?;
        let volume = create_volume(fixture, &folder.path().to_string_lossy()).await?;
        futures::try_join!(
            trains(fixture, JOBS[0]),
            trains(fixture, JOBS[1]),
            trains(fixture, JOBS[2]),
        )?;
        fixture.clear().await?;
        let volume = format!("persistentvolume/{volume}");
        let delete = [
            "delete",
            "--wait=false",
            "persistentvolumeclaim/nfs-pvc",
            &volume,
        ];
        fixture.kubectl(&delete).await?;
        let checkpoint = fs::read_to_string(folder.path().join("checkpoint"))?;
        assert!(checkpoint.starts_with("p-"), "{checkpoint}");
        Ok(())
    })
}

async fn trains(fixture: &Fixture, (file, ipus): (&str, u32)) -> Result<(), Failed> {
    let path = fixture.operated.repository.join("examples").join(file);
    let mut job: Value = serde_saphyr::from_str(&fs::read_to_string(path)?)?;
    make_runnable(&mut job);
    apply(fixture, &job).await?;
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    fixture.once(name, JobState::Completed).await?;
    let log = fixture.kubectl(&["logs", &naming::launcher(name)]).await?;
    assert!(log.contains("trained with p-"), "{file}: {log}");
    let size = fixture.job(name).await?.spec.ipus_per_job_instance;
    assert_eq!(size, ipus.to_string(), "{file}");
    Ok(())
}

/// Keeps `mpirun` and its options, and replaces the program and the image.
fn make_runnable(job: &mut Value) {
    if let Some(command) = job["spec"]["launcher"]["command"].as_array_mut() {
        let program = command.iter().position(|word| word == "python3");
        command.truncate(program.unwrap_or_default());
        command.extend(["python3", "-c", TRAINS].map(Value::from));
    }
    let container = &mut job["spec"]["workers"]["template"]["spec"]["containers"][0];
    container["image"] = json!(IMAGE);
    container["imagePullPolicy"] = json!("IfNotPresent");
}

async fn apply(fixture: &Fixture, object: &Value) -> Result<(), Failed> {
    let file = tempfile::NamedTempFile::with_suffix(".json")?;
    fs::write(file.path(), object.to_string())?;
    fixture.operated.kubectl.apply(file.path()).await?;
    Ok(())
}

/// Creates the volume and the claim of `storage/nfs.yaml`, with a folder of this machine instead of
/// an NFS server. Returns the name of the volume, which no other trial has.
async fn create_volume(fixture: &Fixture, folder: &str) -> Result<String, Failed> {
    let example = fixture
        .operated
        .repository
        .join("examples/storage/nfs.yaml");
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(example)?)?;
    let name = format!("nfs-{}", fixture.namespace);
    for object in &mut objects {
        let spec = &mut object["spec"];
        if spec.get("nfs").is_some() {
            spec["nfs"].take();
            spec["mountOptions"].take();
            spec["hostPath"] = json!({"path": folder});
            object["metadata"]["name"] = json!(name);
        } else {
            spec["volumeName"] = json!(name);
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    apply(fixture, &list).await?;
    Ok(name)
}
