//! Pure: what an admin requires of the nodes with IPUs.

use std::fmt;
use std::str::FromStr;

use clap::{ArgAction, Args};
use ipu_api::dns1123::is_subdomain;
use ipu_api::quantity;

use crate::facts::Amount;

/// Word for a limit of locked memory without an end.
const UNLIMITED: &str = "unlimited";

/// What an admin requires of a node. Each is a value below `ipuNode` of the chart.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Whether the node needs an RDMA device with an active port.
    #[arg(long, env = "IPU_OPERATOR_RDMA", action = ArgAction::Set, default_value_t = true)]
    pub rdma: bool,
    /// Names of RDMA devices that must be there with an active port, separated by commas. Empty:
    /// any device.
    #[arg(long, env = "IPU_OPERATOR_RDMA_DEVICES", value_delimiter = ',')]
    pub rdma_devices: Vec<String>,
    /// Resource of RDMA devices that the node must advertise. Empty: none.
    #[arg(long, env = "IPU_OPERATOR_RDMA_RESOURCE", default_value = "")]
    pub rdma_resource: String,
    /// NetworkAttachmentDefinitions that must exist, as namespace/name, separated by commas. If
    /// there are any, the node needs Multus.
    #[arg(long, env = "IPU_OPERATOR_NETWORKS", value_delimiter = ',')]
    pub networks: Vec<NetworkName>,
    /// Least limit of locked memory of a container: a quantity, or unlimited [default: none].
    #[arg(long, env = "IPU_OPERATOR_MEMLOCK", value_parser = memlock)]
    pub memlock: Option<Amount>,
    /// Least size of /dev/shm of a container: a quantity [default: none].
    #[arg(long, env = "IPU_OPERATOR_SHARED_MEMORY", value_parser = bytes)]
    pub shared_memory: Option<u64>,
    /// Least number of huge pages of the default size.
    #[arg(long, env = "IPU_OPERATOR_HUGE_PAGES", default_value_t = 0)]
    pub huge_pages: u64,
    /// Kernel modules that must be loaded or built in, separated by commas.
    #[arg(long, env = "IPU_OPERATOR_KERNEL_MODULES", value_delimiter = ',')]
    pub kernel_modules: Vec<String>,
}

/// The name of a NetworkAttachmentDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkName {
    /// Its namespace.
    pub namespace: String,
    /// Its own name.
    pub name: String,
}

/// A text that is not a requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// It is not the name of a NetworkAttachmentDefinition.
    #[error(
        "\"{0}\" is not namespace/name of a NetworkAttachmentDefinition, such as default/rdma-net"
    )]
    Network(String),
    /// It is not a quantity.
    #[error("\"{0}\" is not a number of bytes, such as 64Mi")]
    Quantity(String),
}

impl FromStr for NetworkName {
    type Err = RequirementError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || RequirementError::Network(text.to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(invalid)?;
        if !is_subdomain(namespace) || !is_subdomain(name) {
            return Err(invalid());
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for NetworkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str(UNLIMITED),
            Self::Bytes(bytes) => f.write_str(&shown(*bytes)),
        }
    }
}

/// A number of bytes as a quantity.
pub fn shown(bytes: u64) -> String {
    let digits = bytes.to_string();
    quantity::canonical(&digits).unwrap_or(digits)
}

fn memlock(text: &str) -> Result<Amount, RequirementError> {
    if text == UNLIMITED {
        return Ok(Amount::Unlimited);
    }
    bytes(text).map(Amount::Bytes)
}

fn bytes(text: &str) -> Result<u64, RequirementError> {
    quantity::whole_number(text).ok_or_else(|| RequirementError::Quantity(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_read_and_others_are_named() {
        assert_eq!(memlock("unlimited"), Ok(Amount::Unlimited));
        assert_eq!(memlock("64Mi"), Ok(Amount::Bytes(64 << 20)));
        let network: NetworkName = "default/rdma-net".parse().unwrap();
        assert_eq!(network.to_string(), "default/rdma-net");
        for (text, error) in [
            ("much", RequirementError::Quantity("much".to_owned())),
            ("-1", RequirementError::Quantity("-1".to_owned())),
        ] {
            assert_eq!(memlock(text), Err(error));
        }
        for text in ["rdma-net", "a/b/c", "/b", "A/b"] {
            let error = text.parse::<NetworkName>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn amounts_are_shown_as_quantities() {
        assert_eq!(Amount::Bytes(8 << 20).to_string(), "8Mi");
        assert_eq!(Amount::Unlimited.to_string(), "unlimited");
        assert!(Amount::Unlimited > Amount::Bytes(u64::MAX));
    }
}
