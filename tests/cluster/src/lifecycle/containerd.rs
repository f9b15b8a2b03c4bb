//! Imports images on the nodes.

use std::{path::Path, process::Command, thread};

use super::ClusterError;
use crate::{
    command,
    images::Image,
    plan::{NODES, Node},
    tools::Tools,
};

/// Imports images on all nodes at the same time. An image that a node already has is not sent
/// again.
pub fn import(run: &Path, tools: &Tools, images: &[Image]) -> Result<(), ClusterError> {
    thread::scope(|scope| {
        let nodes = NODES.map(|node| scope.spawn(move || import_on(node, run, tools, images)));
        nodes.into_iter().try_for_each(|node| {
            node.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

fn import_on(node: Node, run: &Path, tools: &Tools, images: &[Image]) -> Result<(), ClusterError> {
    let ctr = || {
        let mut ctr = Command::new(tools.program("ctr"));
        ctr.arg("--address").arg(node.containerd(run));
        ctr.args(["--namespace", "k8s.io", "images"]);
        ctr
    };
    for image in images {
        let failed = |source| ClusterError::Import {
            image: image.name.clone(),
            node: node.name,
            source,
        };
        let list = command::output(ctr().arg("list")).map_err(failed)?;
        if !holds(&list, image) {
            command::run(ctr().arg("import").arg(&image.archive)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Whether the list that `ctr` prints has this image with this digest.
fn holds(list: &str, image: &Image) -> bool {
    list.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(&image.name) && words.any(|word| word == image.digest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_digest_counts() {
        let list = "REF TYPE DIGEST SIZE\na.b/c:d application/x sha256:1111 5 MiB\n";
        let image = |digest: &str| Image {
            name: "a.b/c:d".to_owned(),
            archive: "/x".into(),
            digest: digest.to_owned(),
        };
        assert!(holds(list, &image("sha256:1111")));
        assert!(!holds(list, &image("sha256:2222")));
    }
}
