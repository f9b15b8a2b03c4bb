//! Pure: the versions of the contract that the host can call.

use ipu_api::ipupolicy::Hook;

/// The current version of the contract, as WIT.
pub const CONTRACT: &str = include_str!("../../../wit/0.2.0/policy.wit");

/// A version of the contract. Each is the latest one of its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContractVersion {
    /// `ipu:policy@0.2.0`, the current one.
    V0_2,
    /// `ipu:policy@0.1.0`, which operator 0.1.0 released.
    V0_1,
}

impl ContractVersion {
    /// All versions, the newest first.
    pub const ALL: [Self; 2] = [Self::V0_2, Self::V0_1];

    /// The version that new guests are written for.
    pub const CURRENT: Self = Self::V0_2;

    /// Returns the number of the version.
    pub fn number(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1.0",
            Self::V0_2 => "0.2.0",
        }
    }

    /// Returns the contract as WIT.
    pub fn wit(self) -> &'static str {
        match self {
            Self::V0_1 => include_str!("../../../wit/0.1.0/policy.wit"),
            Self::V0_2 => CONTRACT,
        }
    }

    /// Returns package and version, such as `ipu:policy@0.1.0`.
    pub fn package(self) -> String {
        format!("ipu:policy@{}", self.number())
    }

    /// Returns the name of the interface that a component of `hook` exports.
    pub(super) fn interface(self, hook: Hook) -> String {
        let name = match hook {
            Hook::Defaulting => "defaulter",
            Hook::Validation => "validator",
            Hook::Placement => "placer",
        };
        format!("ipu:policy/{name}@{}", self.number())
    }

    /// Returns the name of the interface that writes to the log.
    pub(super) fn logging(self) -> String {
        format!("ipu:policy/logging@{}", self.number())
    }

    /// Whether a guest may import the interface with this name.
    pub(super) fn allows_import(self, name: &str) -> bool {
        name == self.logging() || name == format!("ipu:policy/types@{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_are_those_of_the_contract() {
        for version in ContractVersion::ALL {
            let package = version.package();
            assert!(version.wit().contains(&format!("\npackage {package};\n")));
            let imports = ["logging", "types"].map(|name| {
                let name = format!("ipu:policy/{name}@{}", version.number());
                assert!(version.allows_import(&name));
                name
            });
            let exports = Hook::ALL.map(|hook| version.interface(hook));
            for name in imports.iter().chain(&exports) {
                let interface = name
                    .strip_prefix("ipu:policy/")
                    .and_then(|name| name.strip_suffix(&format!("@{}", version.number())))
                    .unwrap_or_else(|| panic!("{name} is not of {package}"));
                let definition = format!("\ninterface {interface} {{\n");
                assert!(version.wit().contains(&definition), "{definition}");
            }
        }
    }

    #[test]
    fn the_first_version_is_the_current_one() {
        assert_eq!(ContractVersion::ALL[0], ContractVersion::CURRENT);
        assert_eq!(ContractVersion::CURRENT.wit(), CONTRACT);
    }
}
