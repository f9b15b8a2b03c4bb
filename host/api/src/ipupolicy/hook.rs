//! Pure: the hooks: the points at which guests decide.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

/// The decision that a guest takes. Each hook has a world of the same name in the contract.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
// As text, a hook is its world.
#[derive(Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Hook {
    /// Sets the missing fields of an IPUJob.
    Defaulting,
    /// Checks an IPUJob.
    Validation,
    /// Chooses the V-IPU controller of a partition.
    Placement,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Self; 3] = [Self::Defaulting, Self::Validation, Self::Placement];

    /// Returns the value of `spec.hook`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Defaulting => "Defaulting",
            Self::Validation => "Validation",
            Self::Placement => "Placement",
        }
    }

    /// Returns the name of the world in package `ipu:policy` that a guest of this hook implements.
    pub fn world(self) -> &'static str {
        self.into()
    }
}
