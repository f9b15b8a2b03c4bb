//! The image of the simulated V-IPU controller.

use std::path::Path;

use cluster::{
    files::sha256,
    images::{
        Image, ImageError, make,
        oci::{self, Entry, ImageConfig},
    },
    progress::Progress,
    settings::Settings,
};

/// Name of the image.
pub const NAME: &str = "ipu-operator.local/vipu-simulator:dev";

/// Builds the image from the static binary at `simulator`.
pub fn ensure(
    settings: &Settings,
    simulator: &Path,
    progress: &Progress,
) -> Result<Image, ImageError> {
    make(settings, progress, NAME, &sha256(simulator)?, |dir| {
        let layer = oci::layer(dir, &[Entry::program("vipu-simulator", simulator)])?;
        let config = ImageConfig {
            user: Some("65532:65532".to_owned()),
            ..ImageConfig::entrypoint(&["/vipu-simulator"])
        };
        Ok((layer, config))
    })
}
