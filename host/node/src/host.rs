//! Reads the files of the node: `/sys`, `/proc`, the configuration of the container network, and
//! the list of V-IPU controllers.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use ipu_api::ipupartition::ControllerRef;
use tokio::fs;
use vipu_client::controllers;

use crate::facts::{Fact, FileFacts, RdmaDevice};
use crate::options::NodeOptions;
use crate::parse;

/// Reads what the files of a node contain. One that cannot be read prevents no other.
pub(crate) async fn files(options: &NodeOptions) -> FileFacts {
    let proc = &options.proc_dir;
    let mounts = text(&proc.join("self/mounts")).await;
    let limits = text(&proc.join("self/limits")).await;
    let meminfo = text(&proc.join("meminfo")).await;
    FileFacts {
        rdma: devices(&options.sys_dir.join("class/infiniband")).await,
        memlock: limits.and_then(|limits| parse::memlock(&limits)),
        huge_pages: meminfo.and_then(|meminfo| parse::huge_pages(&meminfo)),
        shared_memory: mounts.and_then(|mounts| parse::shared_memory(&mounts)),
        modules: modules(options).await,
        cni: names(&options.cni_dir).await,
    }
}

/// Reads the admin's list. Invalid entries are left out; the proxy reports them.
pub(crate) async fn controllers(path: &Path) -> Fact<Vec<ControllerRef>> {
    Ok(controllers::parse(&text(path).await?).entries)
}

/// The RDMA devices of a folder. A kernel without RDMA has no such folder.
async fn devices(folder: &Path) -> Fact<Vec<RdmaDevice>> {
    let mut found = Vec::new();
    for name in names_if_any(folder).await? {
        found.push(device(&folder.join(&name), name).await?);
    }
    Ok(found)
}

async fn device(folder: &Path, name: String) -> Fact<RdmaDevice> {
    let numa_node = text(&folder.join("device/numa_node")).await;
    let mut ports = Vec::new();
    for port in names_if_any(&folder.join("ports")).await? {
        let state = text(&folder.join("ports").join(&port).join("state")).await?;
        ports.push((port, parse::port_state(&state)));
    }
    Ok(RdmaDevice {
        name,
        // A machine with one NUMA node has -1 there.
        numa_node: numa_node.ok().and_then(|number| number.trim().parse().ok()),
        interfaces: names_if_any(&folder.join("device/net")).await?,
        ports,
    })
}

/// The modules that are loaded, and those with an entry in `/sys/module`, where built-in ones are
/// too.
async fn modules(options: &NodeOptions) -> Fact<BTreeSet<String>> {
    let mut modules = parse::modules(&text(&options.proc_dir.join("modules")).await?);
    modules.extend(names_if_any(&options.sys_dir.join("module")).await?);
    Ok(modules)
}

async fn text(path: &Path) -> Fact<String> {
    let read = fs::read_to_string(path).await;
    read.map_err(|error| fault(path, &error))
}

/// The names in a folder, in order. A folder that does not exist has none.
async fn names_if_any(folder: &Path) -> Fact<Vec<String>> {
    match list(folder).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| fault(folder, &error)),
    }
}

async fn names(folder: &Path) -> Fact<Vec<String>> {
    list(folder).await.map_err(|error| fault(folder, &error))
}

async fn list(folder: &Path) -> io::Result<Vec<String>> {
    let mut entries = fs::read_dir(folder).await?;
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn fault(path: &Path, error: &io::Error) -> String {
    format!("{}: {}", path.display(), error.kind())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use tempfile::TempDir;

    use super::*;
    use crate::facts::Amount;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        node: NodeOptions,
    }

    /// A node in a temporary folder.
    struct Tree(TempDir);

    impl Tree {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            tree.write(
                "proc/self/limits",
                "Max locked memory  65536  unlimited  bytes\n",
            );
            tree.write(
                "proc/self/mounts",
                "shm /dev/shm tmpfs rw,size=65536k 0 0\n",
            );
            tree.write("proc/meminfo", "HugePages_Total:  4\n");
            tree.write("proc/modules", "mlx5_ib 1 0 - Live 0x0\n");
            tree.write("sys/module/rdma_cm/refcnt", "0\n");
            let device = "sys/class/infiniband/mlx5_0";
            tree.write(&format!("{device}/ports/1/state"), "4: ACTIVE\n");
            tree.write(&format!("{device}/device/numa_node"), "1\n");
            tree.write(&format!("{device}/device/net/ens1f0/mtu"), "1500\n");
            tree.write("cni/00-multus.conf", "{}");
            tree
        }

        fn write(&self, name: &str, content: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn options(&self) -> NodeOptions {
            let at = |option: &str, name: &str| {
                format!("--{option}={}", self.0.path().join(name).display())
            };
            let arguments = [
                "test".to_owned(),
                "--node=node1".to_owned(),
                at("sys-dir", "sys"),
                at("proc-dir", "proc"),
                at("cni-dir", "cni"),
            ];
            Arguments::try_parse_from(arguments).unwrap().node
        }
    }

    #[tokio::test]
    async fn the_files_of_a_node_are_read() {
        let tree = Tree::new();
        let files = files(&tree.options()).await;
        let device = RdmaDevice {
            name: "mlx5_0".to_owned(),
            numa_node: Some(1),
            interfaces: vec!["ens1f0".to_owned()],
            ports: vec![("1".to_owned(), "ACTIVE".to_owned())],
        };
        assert_eq!(files.rdma, Ok(vec![device]));
        assert_eq!(files.memlock, Ok(Amount::Bytes(64 << 10)));
        assert_eq!(files.shared_memory, Ok(64 << 20));
        assert_eq!(files.huge_pages, Ok(4));
        let modules: Vec<_> = files.modules.unwrap().into_iter().collect();
        assert_eq!(modules, ["mlx5_ib", "rdma_cm"]);
        assert_eq!(files.cni, Ok(vec!["00-multus.conf".to_owned()]));
    }

    #[tokio::test]
    async fn a_node_without_rdma_has_no_devices_and_what_is_missing_is_named() {
        let tree = Tree::new();
        for folder in ["sys/class", "proc", "cni"] {
            fs::remove_dir_all(tree.0.path().join(folder)).unwrap();
        }
        let files = files(&tree.options()).await;
        assert_eq!(files.rdma, Ok(Vec::new()));
        let why = files.cni.unwrap_err();
        assert!(why.ends_with("cni: entity not found"), "{why}");
        assert!(files.memlock.is_err() && files.modules.is_err());
    }

    #[tokio::test]
    async fn invalid_entries_of_the_list_are_left_out() {
        let tree = Tree::new();
        tree.write("controllers.yaml", "- pod1:8090:ipunode=pod1\n- wrong\n");
        let found = controllers(&tree.0.path().join("controllers.yaml")).await;
        let names: Vec<_> = found
            .unwrap()
            .into_iter()
            .map(|controller| controller.name)
            .collect();
        assert_eq!(names, ["pod1:8090"]);
        assert!(controllers(&tree.0.path().join("missing")).await.is_err());
    }
}
