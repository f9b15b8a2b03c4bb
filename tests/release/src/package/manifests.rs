//! The objects of an installation without Helm: those that Helm would install, in one file.

use std::path::Path;
use std::process::Command;

use cluster::command::{self, CommandError};

use crate::image;

/// The file of the objects, in the archive and beside it.
pub const NAME: &str = "manifests.yaml";

/// Helm's release and its namespace.
const RELEASE: &str = "ipu-operator";

/// The first lines. Helm creates the Namespace itself, so the chart has none.
const BEGIN: &str = "\
# The IPU Operator without Helm: the CRDs, and the objects of the chart in the namespace ipu-operator.
# charts/ipu-operator/docs/install-manifests.md describes how to apply, upgrade and delete them.
---
apiVersion: v1
kind: Namespace
metadata:
  name: ipu-operator
";

/// Renders the chart in a folder with Helm, for the image of the archive. Jobs are not privileged,
/// as in the commands of the documents.
pub fn render(helm: &Path, chart: &Path) -> Result<Vec<u8>, CommandError> {
    let mut template = Command::new(helm);
    template
        .args(["template", RELEASE])
        .arg(chart)
        .args(["--namespace", RELEASE, "--include-crds", "--skip-tests"])
        .arg(format!(
            "--set=worker.hostNetwork=false,controller.image.repository={}",
            image::REPOSITORY
        ));
    let objects = command::output(&mut template)?;
    Ok(format!("{BEGIN}{objects}").into_bytes())
}
