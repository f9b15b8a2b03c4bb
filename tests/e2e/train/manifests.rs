//! The manifests of `examples/train`, changed only so that the run can start them.

use std::fs;
use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::failing_pods::IMAGE;
use crate::fixture::Fixture;

/// The stand-ins by their names in `/stand-in`.
const STAND_INS: [(&str, &str); 5] = [
    ("torch.py", include_str!("torch.py")),
    ("poptorch.py", include_str!("poptorch.py")),
    ("popdist.py", include_str!("popdist.py")),
    ("poprun", include_str!("poprun")),
    ("jupyter", include_str!("jupyter")),
];

/// The Pod spec of each kind of manifest.
const PODS: [&str; 3] = [
    "/spec/workers/template/spec",
    "/spec/replicatedJobs/0/template/spec/template/spec",
    "/spec/template/spec",
];

/// The limit that a native Pod requests its IPUs with.
const IPUS: &str = "graphcore.ai/ipu";

/// Images of the data set in the run.
const IMAGES: usize = 32;

/// Returns the objects of a manifest in `examples/train`.
pub(super) fn objects(fixture: &Fixture, file: &str) -> Result<Vec<Value>, Failed> {
    let folder = fixture.operated.repository.join("examples/train");
    Ok(serde_saphyr::from_multiple(&fs::read_to_string(
        folder.join(file),
    )?)?)
}

/// Returns the objects of a manifest with Pods of the run.
pub(super) fn runnable(fixture: &Fixture, file: &str) -> Result<Vec<Value>, Failed> {
    let mut objects = objects(fixture, file)?;
    for object in &mut objects {
        let pod = PODS.iter().find(|pod| object.pointer(pod).is_some());
        if let Some(pod) = pod.and_then(|pod| object.pointer_mut(pod)) {
            make_runnable(pod);
        }
    }
    Ok(objects)
}

/// Gives a Pod the image of the run, the stand-ins, and requests that its nodes can fulfil.
fn make_runnable(pod: &mut Value) {
    // As the first process of its container, Python ignores the signal to end.
    pod["terminationGracePeriodSeconds"] = json!(1);
    push(
        &mut pod["volumes"],
        json!({"name": "stand-in", "configMap": {"name": "stand-in", "defaultMode": 0o555}}),
    );
    let container = &mut pod["containers"][0];
    container["image"] = json!(IMAGE);
    container["imagePullPolicy"] = json!("IfNotPresent");
    let ipus = container["resources"]["limits"][IPUS].clone();
    container["resources"] = json!({
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "512Mi"},
    });
    if !ipus.is_null() {
        container["resources"]["limits"][IPUS] = ipus;
    }
    push(
        &mut container["volumeMounts"],
        json!({"name": "stand-in", "mountPath": "/stand-in"}),
    );
    for (name, value) in [
        ("PATH", "/stand-in:/usr/local/bin:/usr/bin:/bin"),
        ("PYTHONPATH", "/stand-in"),
        // The folder is read-only.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("MNIST_MIRROR", "file:///stand-in"),
    ] {
        push(&mut container["env"], json!({"name": name, "value": value}));
    }
}

fn push(list: &mut Value, element: Value) {
    if let Some(list) = list.as_array_mut() {
        list.push(element);
    }
}

/// The ConfigMap with the stand-ins, and with a small data set instead of MNIST.
pub(super) fn stand_in() -> Result<Value, Failed> {
    let mut data = serde_json::Map::new();
    for (name, text) in STAND_INS {
        data.insert(name.to_owned(), json!(text));
    }
    let mut binary = serde_json::Map::new();
    for part in ["train", "t10k"] {
        for (kind, header, size) in [("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)] {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(&vec![0; header + size * IMAGES])?;
            let packed = BASE64_STANDARD.encode(packed.finish()?);
            binary.insert(format!("{part}-{kind}-ubyte.gz"), json!(packed));
        }
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stand-in"},
        "data": data,
        "binaryData": binary,
    }))
}

/// Applies objects of any kind, as a user does.
pub(super) async fn apply(fixture: &Fixture, objects: &[Value]) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(&file, list.to_string())?;
    fixture.operated.kubectl.apply(&file).await?;
    Ok(())
}
