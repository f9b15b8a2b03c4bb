//! The objects that all trainings share: the program with the stand-ins, and the claim, whose
//! volume is a folder of this machine, because the cluster has no provisioner.

use std::fs;
use std::path::PathBuf;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::manifests::{apply, objects, stand_in};
use crate::fixture::Fixture;

/// The volume of the claim.
pub(super) struct Volume {
    name: String,
    folder: PathBuf,
}

impl Volume {
    /// Applies `program.yaml`, and creates the volume of its claim and the stand-ins.
    pub(super) async fn create(fixture: &Fixture) -> Result<Self, Failed> {
        let name = format!("training-{}", fixture.namespace);
        let folder = fixture.settings.run.join(&name);
        fs::create_dir_all(&folder)?;
        let mut objects = objects(fixture, "program.yaml")?;
        let claim = objects.iter_mut().find(is_claim);
        let claim = claim.ok_or("program.yaml has no claim")?;
        // Only this volume: another class would wait for a provisioner.
        claim["spec"]["storageClassName"] = json!("");
        claim["spec"]["volumeName"] = json!(name);
        let volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": folder},
            },
        });
        objects.push(volume);
        objects.push(stand_in()?);
        apply(fixture, &objects).await?;
        Ok(Self { name, folder })
    }

    /// Deletes the objects and the folder. No Pod may use the claim any more.
    pub(super) async fn delete(self, fixture: &Fixture) -> Result<(), Failed> {
        let volume = format!("persistentvolume/{}", self.name);
        let objects = [
            "persistentvolumeclaim/training",
            &volume,
            "configmap/training",
            "configmap/stand-in",
        ];
        let delete = ["delete", "--wait=false"];
        fixture.kubectl(&[&delete[..], &objects].concat()).await?;
        fs::remove_dir_all(self.folder)?;
        Ok(())
    }
}

fn is_claim(object: &&mut Value) -> bool {
    object["kind"] == "PersistentVolumeClaim"
}
