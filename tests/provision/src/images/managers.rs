//! The images of Kueue's and JobSet's managers. Their charts start `/manager`.

use super::{
    Image, ImageError, make,
    oci::{self, Entry, ImageConfig},
};
use crate::{files::sha256, progress::Progress, settings::Settings, tools::Tools};

/// Tag of the images.
pub const TAG: &str = "1";

/// Builds a manager and makes its image. `name` is the name of its folder in `tests/tools` and of
/// its program.
pub fn ensure(settings: &Settings, progress: &Progress, name: &str) -> Result<Image, ImageError> {
    let tools = Tools::fetch_some(settings, progress, &[name])?;
    let binary = tools.program(name);
    let image = format!("{}:{TAG}", repository(name));
    make(settings, progress, &image, &sha256(binary)?, |dir| {
        let layer = oci::layer(dir, &[Entry::program("manager", binary)])?;
        let config = ImageConfig {
            user: Some("65532:65532".to_owned()),
            ..ImageConfig::entrypoint(&["/manager"])
        };
        Ok((layer, config))
    })
}

/// Name of a manager's image, without the tag.
pub fn repository(name: &str) -> String {
    format!("ipu-operator.local/{name}")
}
