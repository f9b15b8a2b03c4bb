//! `ipu-agent host-name`: runs a command with a host name of its own, although its container has
//! that of the node.
//!
//! A Pod on the host network shares the UTS namespace of its node. The command gets a new one,
//! because a host name that is set in the other would rename the node.

use std::convert::Infallible;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::sethostname;

use crate::run::{self, RunError};

/// Variable of every container with the address of the API server.
const API_SERVER: &str = "KUBERNETES_SERVICE_HOST";

/// File by which the programs of a container resolve their own host name.
const HOSTS: &str = "/etc/hosts";

/// Start of the hosts files that the kubelet writes. Each belongs to one Pod.
const OF_KUBELET: &str = "# Kubernetes-managed hosts file";

/// A command, and the host name for it.
#[derive(Clone, Debug)]
pub struct NamedCommand {
    /// The host name.
    pub name: String,
    /// Address of the container under that name. `None`: that from which it reaches the API server.
    pub address: Option<String>,
    /// The command and its arguments, without a shell.
    pub command: Vec<String>,
}

/// Replaces this process by the command. If the container lacks the right to a UTS namespace, the
/// command has the host name of the node: that is sufficient if a job has one worker on each node.
pub fn exec(named: &NamedCommand) -> Result<Infallible, RunError> {
    match set(&named.name) {
        Ok(()) => {
            if let Some(address) = named.address.clone().or_else(own_address) {
                make_resolvable(&named.name, &address);
            }
        }
        Err(error) => eprintln!(
            "ipu-agent: warning: {} has the host name of its node, because only root in a privileged container can \
             change it ({error}). Open MPI 5 takes workers with one host name for one node. If several workers of the \
             job are on this node, run them as root, use Open MPI 4, or set worker.hostNetwork to false",
            named.name
        ),
    }
    run::exec(&named.command)
}

fn set(name: &str) -> Result<(), Errno> {
    unshare(CloneFlags::CLONE_NEWUTS)?;
    sethostname(name)
}

/// The address from which this container reaches the API server. To connect a UDP socket selects a
/// route and sends nothing.
fn own_address() -> Option<String> {
    let server: IpAddr = env::var(API_SERVER).ok()?.parse().ok()?;
    let any: IpAddr = match server {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((server, 443)).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Adds the name to the hosts file, so that a program can resolve its own host name. Open MPI does
/// not need that, so an error, such as that of a read-only file, does not matter.
fn make_resolvable(name: &str, address: &str) {
    let text = fs::read_to_string(HOSTS).unwrap_or_default();
    if let Some(line) = added_line(&text, name, address) {
        let file = OpenOptions::new().append(true).open(HOSTS);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// Returns the line that a hosts file lacks. `None`: it has the name, or it is not of the kubelet
/// and can be that of the node.
fn added_line(hosts: &str, name: &str, address: &str) -> Option<String> {
    let has_name = || hosts.split_whitespace().any(|word| word == name);
    let separator = if hosts.ends_with('\n') { "" } else { "\n" };
    (hosts.starts_with(OF_KUBELET) && !has_name())
        .then(|| format!("{separator}{address}\t{name}\n"))
}

#[cfg(test)]
mod tests {
    use super::added_line;

    #[test]
    fn name_is_added_once_to_the_file_of_the_kubelet() {
        let hosts = "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n";
        let line = added_line(hosts, "mnist-worker-0", "10.0.0.2").unwrap();
        assert_eq!(line, "10.0.0.2\tmnist-worker-0\n");
        let hosts = format!("{hosts}{line}");
        assert_eq!(added_line(&hosts, "mnist-worker-0", "10.0.0.2"), None);
        assert!(added_line(&hosts, "mnist-worker-1", "10.0.0.2").is_some());
        let unfinished = added_line(hosts.trim_end(), "mnist-worker-1", "10.0.0.2");
        assert_eq!(unfinished.unwrap(), "\n10.0.0.2\tmnist-worker-1\n");
    }

    #[test]
    fn other_hosts_files_are_unchanged() {
        for hosts in ["", "127.0.0.1\tlocalhost\n"] {
            assert_eq!(added_line(hosts, "mnist-worker-0", "10.0.0.2"), None);
        }
    }
}
