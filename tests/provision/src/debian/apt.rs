//! An apt with its own state, which uses the machine's mirror.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use super::{DebianError, Package, Pinned};
use crate::{
    command,
    files::{make_dir, write},
};

/// The keys of every Debian release that is supported.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt with a configuration, lists and a cache of its own.
pub(super) struct Apt {
    config: PathBuf,
}

impl Apt {
    /// Configures apt in `dir`, and fetches the package lists of the release.
    pub(super) fn update(dir: &Path, pinned: &Pinned) -> Result<Self, DebianError> {
        for part in ["state/lists/partial", "cache/archives/partial"] {
            make_dir(&dir.join(part))?;
        }
        write(&dir.join("status"), "")?;
        let source = format!(
            "deb [signed-by={KEYS}] {} {} main\n",
            mirror()?,
            pinned.suite
        );
        write(&dir.join("sources.list"), source)?;
        let config = dir.join("apt.conf");
        write(&config, configuration(dir, &pinned.architectures()))?;
        let apt = Self { config };
        let mut update = apt.get(["-qq", "update"]);
        command::run(&mut update).map_err(|source| DebianError::Command {
            action: "fetch the package lists",
            source,
        })?;
        Ok(apt)
    }

    /// Downloads all packages. One call is much faster than one for each, because apt reads its
    /// lists once.
    pub(super) fn download(&self, pinned: &Pinned, dir: &Path) -> Result<(), DebianError> {
        let mut download = self.get(["-qq", "download"]);
        download.args(pinned.packages.iter().map(Package::full_name));
        let Err(source) = command::run(download.current_dir(dir)) else {
            return Ok(());
        };
        // apt names only the first package that it does not have, and downloads none.
        let missing = pinned.packages.iter().find(|package| !self.has(package));
        Err(match missing {
            Some(package) => DebianError::Download {
                lock: pinned.lock,
                package: Box::new(package.clone()),
                source,
            },
            None => DebianError::Command {
                action: "download the Debian packages",
                source,
            },
        })
    }

    /// Whether the mirror has this version. For a missing version, `apt-cache` prints nothing and
    /// succeeds.
    fn has(&self, package: &Package) -> bool {
        let mut show = Command::new("apt-cache");
        show.env("APT_CONFIG", &self.config)
            .args(["show", &package.full_name()]);
        command::output(&mut show).is_ok_and(|said| !said.trim().is_empty())
    }

    fn get<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", &self.config).args(args);
        command
    }
}

fn configuration(dir: &Path, architectures: &BTreeSet<&str>) -> String {
    let dir = dir.display();
    let architectures: Vec<_> = architectures.iter().copied().collect();
    let architectures = architectures.join("\"; \"");
    format!(
        "Dir::State \"{dir}/state\";\n\
         Dir::State::status \"{dir}/status\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"{architectures}\"; }};\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n"
    )
}

/// The mirror that the machine itself uses. It has every release.
fn mirror() -> Result<String, DebianError> {
    let mut targets = Command::new("apt-get");
    targets
        .args(["indextargets", "--format"])
        .arg("$(REPO_URI) $(LABEL) $(COMPONENT) $(CODENAME)")
        .arg("Created-By: Packages")
        .env_remove("APT_CONFIG");
    let printed = command::output(&mut targets).map_err(|source| DebianError::Command {
        action: "ask apt for its mirrors",
        source,
    })?;
    main_archive(&printed).ok_or(DebianError::NoMirror)
}

/// The archive of a release itself. The archive of its security updates has another label, and
/// other archives have a codename such as `bookworm-updates`.
fn main_archive(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [uri, "Debian", "main", codename] if !codename.contains('-') => Some(uri.to_owned()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_a_release_itself() {
        let targets = "one Debian-Security main bookworm-security\n\
                       two Debian main bookworm-updates\n\
                       three Debian contrib bookworm\n\
                       four Debian main bookworm\n";
        assert_eq!(main_archive(targets).as_deref(), Some("four"));
        assert_eq!(main_archive("x Ubuntu main noble"), None);
    }
}
