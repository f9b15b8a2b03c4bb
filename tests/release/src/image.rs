//! Builds the operator's image from the repository's Dockerfile with a real image builder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub mod joined;

use cluster::{
    command,
    files::{At, FileError, make_dir, read, remove, sha256, sha256_of, write},
    images::{Image, ImageError, folder, oci},
    platform::{AMD64, Platform},
    progress::Progress,
    settings::Settings,
    tools::{Tools, stored},
};

use crate::dist::Programs;

/// Name of the image without its tag, which is the version.
pub const REPOSITORY: &str = "ipu-operator.local/ipu-operator";

/// Name of the image.
pub const NAME: &str = concat!(
    "ipu-operator.local/ipu-operator:",
    env!("CARGO_PKG_VERSION")
);

/// Builds the image of these programs. The first stage of the Dockerfile builds these files for an
/// ordinary user. Here, the folder replaces that stage, so no base image is pulled.
pub fn ensure(
    settings: &Settings,
    tools: &Tools,
    programs: &Programs,
    progress: &Progress,
) -> Result<Image, ImageError> {
    let dockerfile = settings.checkout.join("Dockerfile");
    let mut inputs = read(&dockerfile)?;
    for file in programs.files() {
        inputs.push_str(&sha256(&file)?);
    }
    let inputs = sha256_of(inputs);
    let dir = place(settings, programs.platform);
    if !stored::is_intact(&dir, &inputs) {
        progress.run(
            format!(
                "built the image {NAME} for {} from the Dockerfile",
                programs.platform.architecture
            ),
            || {
                stored::make(&dir, &inputs, |partial| {
                    build(&dockerfile, tools, programs, partial)
                })
            },
        )?;
    }
    Ok(Image {
        name: NAME.to_owned(),
        archive: dir.join("image.tar"),
        digest: read(&dir.join("digest"))?,
    })
}

/// Removes the image for a platform from the cache, so that it is built again.
pub fn forget(settings: &Settings, platform: Platform) -> Result<(), FileError> {
    remove(&place(settings, platform))
}

/// Path of the image for a platform. The image for the platform of this machine has the name of
/// the image alone.
fn place(settings: &Settings, platform: Platform) -> PathBuf {
    if platform == AMD64 {
        return folder(settings, NAME);
    }
    folder(settings, &format!("{NAME}_{}", platform.architecture))
}

/// Size of the image as a registry would store it, in bytes: the builder compresses its layers.
pub fn compressed_size(image: &Image) -> Result<u64, FileError> {
    let metadata = fs::metadata(&image.archive).at("read", &image.archive)?;
    Ok(metadata.len())
}

fn build(
    dockerfile: &Path,
    tools: &Tools,
    programs: &Programs,
    dir: &Path,
) -> Result<(), ImageError> {
    let work = dir.join("work");
    // The last stage copies only from the first one, so the context may be empty.
    let context = work.join("context");
    make_dir(&context)?;
    write(&work.join("storage.conf"), "[storage]\ndriver = \"vfs\"\n")?;
    let binaries = format!("--build-context=binaries={}", programs.dir.display());
    let mut bud = buildah(tools, &work);
    bud.args([
        "bud",
        "--isolation=chroot",
        "--layers=false",
        "--timestamp=0",
        "--quiet",
        "--arch",
        programs.platform.architecture,
    ])
    .arg(policy(tools))
    .arg(binaries)
    .args(["--tag", NAME, "--file"])
    .arg(dockerfile)
    .arg(&context);
    let failed = |action| move |source| ImageError::Command { action, source };
    command::run(&mut bud).map_err(failed("build the operator's image"))?;
    let layout = work.join("layout");
    let mut push = buildah(tools, &work);
    push.args(["push", "--quiet", "--format=oci"])
        .arg(policy(tools))
        .arg(NAME)
        .arg(format!("oci:{}:dev", layout.display()));
    command::run(&mut push).map_err(failed("write the operator's image"))?;
    let digest = oci::pack(&layout, NAME, &dir.join("image.tar"))?;
    write(&dir.join("digest"), digest)?;
    Ok(remove(&work)?)
}

/// buildah with all its state in one folder, separate from the user's own storage.
fn buildah(tools: &Tools, work: &Path) -> Command {
    let debian = tools.debian();
    let mut buildah = debian.command("usr/bin/buildah");
    buildah
        .env("TMPDIR", work)
        .env("HOME", work)
        .env(
            "CONTAINERS_CONF",
            debian.path("usr/share/containers/containers.conf"),
        )
        .env("CONTAINERS_STORAGE_CONF", work.join("storage.conf"))
        .arg("--root")
        .arg(work.join("storage"))
        .arg("--runroot")
        .arg(work.join("runtime"))
        .args(["--storage-driver", "vfs", "--registries-conf", "/dev/null"]);
    buildah
}

fn policy(tools: &Tools) -> String {
    let path = tools.debian().path("etc/containers/policy.json");
    format!("--signature-policy={}", path.display())
}
