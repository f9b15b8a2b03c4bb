//! The options of the commands about nodes.

use clap::Args;
use ipu_api::dns1123::is_subdomain;

use crate::output::{PageFormat, TableFormat};

/// Options of `nodes`.
#[derive(Args, Debug)]
pub struct NodesOptions {
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: TableFormat,
}

/// Options of `doctor`.
#[derive(Args, Debug)]
pub struct DoctorOptions {
    /// Name of a node [default: all nodes with IPUs].
    #[arg(value_name = "NODE", value_parser = node_name)]
    pub node: Option<String>,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: PageFormat,
}

/// A word that is not the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not the name of a node: give NODE or node/NODE, as kubectl get nodes lists it")]
pub struct NodeNameError(String);

fn node_name(text: &str) -> Result<String, NodeNameError> {
    let name = text.strip_prefix("node/").unwrap_or(text);
    if is_subdomain(name) {
        return Ok(name.to_owned());
    }
    Err(NodeNameError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_with_or_without_its_kind() {
        for word in ["node/a", "a"] {
            assert_eq!(node_name(word).unwrap(), "a");
        }
        let error = node_name("pod/a").unwrap_err().to_string();
        assert!(error.contains("give NODE or node/NODE"), "{error}");
    }
}
