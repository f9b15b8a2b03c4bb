//! Pure: the worlds of the contract as words of the command line.

use clap::ValueEnum;
use ipu_api::ipupolicy::Hook;

/// The worlds of package `ipu:policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum World {
    /// Fills in what the user of an IPUJob left open.
    Defaulting,
    /// Says what is wrong with an IPUJob.
    Validation,
    /// Decides on which V-IPU controller a partition is made.
    Placement,
}

impl From<World> for Hook {
    fn from(world: World) -> Self {
        match world {
            World::Defaulting => Self::Defaulting,
            World::Validation => Self::Validation,
            World::Placement => Self::Placement,
        }
    }
}
