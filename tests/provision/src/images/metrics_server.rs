//! The image of metrics-server, which measures what Pods use.

use super::{
    Image, ImageError, make,
    oci::{self, Entry, ImageConfig},
};
use crate::{files::sha256, progress::Progress, settings::Settings, tools::Tools};

/// Name of the image.
pub const NAME: &str = "ipu-operator.local/metrics-server:1";

/// Builds metrics-server and makes its image.
pub fn ensure(settings: &Settings, progress: &Progress) -> Result<Image, ImageError> {
    let tools = Tools::fetch_some(settings, progress, &["metrics-server"])?;
    let binary = tools.program("metrics-server");
    make(settings, progress, NAME, &sha256(binary)?, |dir| {
        let layer = oci::layer(dir, &[Entry::program("metrics-server", binary)])?;
        Ok((layer, ImageConfig::entrypoint(&["/metrics-server"])))
    })
}
