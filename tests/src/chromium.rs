//! Debian's Chromium without a window, pinned by `tests/tools/chromium.lock`, and axe-core, which
//! finds accessibility problems on a page. Both are kept in the cache folder.

mod page;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cluster::command::{self, CommandError};
use cluster::debian::{DebianError, Pinned};
use cluster::files::{At, FileError, read, sha256_of, write};
use cluster::log_tail::LogTail;
use cluster::settings::{SettingsError, cache, checkout};
use cluster::supervisor::{Program, Supervisor};
use cluster::tools::stored;
use cluster::wait::{Seen, WaitedTooLong, until};
use parking_lot::Mutex;
use tempfile::TempDir;

pub use self::page::{Page, PageError};

/// Longest time until it listens.
const READY: Duration = Duration::from_mins(1);

/// Version of axe-core, as its lock file has it.
const AXE: &str = "4.14.1";

/// Line that Chromium prints when it listens.
const LISTENING: &str = "DevTools listening on ";

/// Failure to provide Chromium or axe-core.
#[derive(Debug, thiserror::Error)]
pub enum ChromiumError {
    /// The packages could not be fetched.
    #[error("failed to fetch Debian's Chromium")]
    Debian(#[from] DebianError),
    /// npm failed.
    #[error("failed to install axe-core")]
    Npm(#[from] CommandError),
    /// The folder for caches is not known.
    #[error(transparent)]
    Cache(#[from] SettingsError),
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// It cannot be started.
    #[error("failed to start Chromium")]
    Start(#[source] io::Error),
    /// It does not listen.
    #[error("Chromium does not listen; {log}")]
    NotReady {
        /// The end of its log.
        log: LogTail,
        /// The condition.
        #[source]
        source: WaitedTooLong,
    },
    /// No page opens.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// A running Chromium. When it is dropped, it ends and its files are removed.
#[derive(Debug)]
pub struct Browser {
    _supervisor: Supervisor,
    _folder: TempDir,
    endpoint: String,
}

impl Browser {
    /// Starts it with an empty profile, and waits until it listens.
    pub async fn start() -> Result<Self, ChromiumError> {
        let root = fetched()?;
        let folder = tempfile::tempdir().map_err(ChromiumError::Start)?;
        let log = folder.path().join("chromium.log");
        let fonts = folder.path().join("fonts.conf");
        write(&fonts, fonts_of(&root, folder.path()))?;
        let program = Program {
            name: "chromium",
            path: root.join("usr/lib/chromium/chromium-headless-shell"),
            args: arguments(folder.path()),
            env: environment(&root, &fonts),
            log: log.clone(),
        };
        let supervisor = Supervisor::start(vec![program]).map_err(ChromiumError::Start)?;
        let listens = until("Chromium listens", READY, async || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            Ok::<_, Infallible>(Seen::from(endpoint(&text)))
        });
        let endpoint = listens.await.map_err(|source| ChromiumError::NotReady {
            log: LogTail::read(&log, 15),
            source,
        })?;
        Ok(Self {
            _supervisor: supervisor,
            _folder: folder,
            endpoint,
        })
    }

    /// Opens an empty page.
    pub async fn open(&self) -> Result<Page, ChromiumError> {
        Ok(Page::open(&self.endpoint).await?)
    }
}

/// The source of axe-core, downloaded if it is missing.
pub fn axe() -> Result<String, ChromiumError> {
    static FETCHING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = FETCHING.lock();
    let pins = checkout().join("tests/tools/axe-core");
    let files = ["package.json", "package-lock.json"];
    let texts = files.map(|file| read(&pins.join(file)));
    let [package, lock] = texts;
    let inputs = sha256_of(package? + &lock?);
    let dir = cache()?.join(format!("axe-core-{AXE}"));
    if !stored::is_intact(&dir, &inputs) {
        stored::make(&dir, &inputs, |folder| {
            for file in files {
                let from = pins.join(file);
                fs::copy(&from, folder.join(file)).at("copy", &from)?;
            }
            let mut npm = Command::new("npm");
            npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
                .current_dir(folder);
            command::run(&mut npm).map_err(ChromiumError::Npm)
        })?;
    }
    Ok(read(&dir.join("node_modules/axe-core/axe.min.js"))?)
}

/// The root folder of the unpacked Chromium.
fn fetched() -> Result<PathBuf, ChromiumError> {
    // Two tests that download at the same time would write to the same folder.
    static FETCHING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = FETCHING.lock();
    let lock = read(&checkout().join("tests/tools/chromium.lock"))?;
    let inputs = sha256_of(&lock);
    let dir = cache()?.join(format!("chromium-{}", &inputs[..12]));
    if !stored::is_intact(&dir, &inputs) {
        let pinned = Pinned::parse("tests/tools/chromium.lock", "bookworm", &lock)?;
        stored::make(&dir, &inputs, |folder| {
            pinned.unpack(&dir.with_extension("apt"), folder)
        })?;
    }
    Ok(dir)
}

fn arguments(profile: &Path) -> Vec<String> {
    let fixed = [
        // Chromium's sandbox does not work for root, and this Chromium opens only pages of this
        // repository.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--font-render-hinting=none",
        "--force-color-profile=srgb",
        "--hide-scrollbars",
        "--lang=en-US",
        "--remote-debugging-port=0",
    ];
    let mut all = fixed.map(ToOwned::to_owned).to_vec();
    all.push(format!("--user-data-dir={}", profile.display()));
    all.push("about:blank".to_owned());
    all
}

fn environment(root: &Path, fonts: &Path) -> Vec<(&'static str, OsString)> {
    let folders = [
        "usr/lib/x86_64-linux-gnu",
        "usr/lib/x86_64-linux-gnu/nss",
        "usr/lib/x86_64-linux-gnu/pulseaudio",
        "lib/x86_64-linux-gnu",
        "usr/lib/chromium",
    ];
    let libraries = folders.map(|folder| root.join(folder).display().to_string());
    vec![
        ("LD_LIBRARY_PATH", libraries.join(":").into()),
        ("FONTCONFIG_FILE", fonts.into()),
        ("TZ", "UTC".into()),
    ]
}

/// Uses only the fonts of the packages, so that pictures look the same on every machine.
fn fonts_of(root: &Path, cache: &Path) -> String {
    let alias = |family: &str, font: &str| {
        format!("<alias><family>{family}</family><prefer><family>{font}</family></prefer></alias>")
    };
    format!(
        "<?xml version=\"1.0\"?>\n<fontconfig><dir>{}</dir><cachedir>{}</cachedir>{}{}{}</fontconfig>\n",
        root.join("usr/share/fonts").display(),
        cache.join("fonts").display(),
        alias("sans-serif", "Liberation Sans"),
        alias("system-ui", "Liberation Sans"),
        alias("monospace", "Liberation Mono"),
    )
}

/// The WebSocket address in Chromium's log.
fn endpoint(log: &str) -> Option<String> {
    let (_, rest) = log.split_once(LISTENING)?;
    let (address, _) = rest.split_once('\n')?;
    Some(address.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_is_read_once_its_line_is_complete() {
        let address = "ws://127.0.0.1:4711/devtools/browser/a-b";
        let log = format!("[0101/000000] dbus\n{LISTENING}{address}");
        assert_eq!(endpoint(&log), None);
        assert_eq!(endpoint(&(log + "\n")).as_deref(), Some(address));
        assert_eq!(endpoint("nothing\n"), None);
    }
}
