//! Runs the commands of the README and the documents on real nodes.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cluster::images::openmpi::OpenMpi;
use cluster::plan::bin;
use harness::operator::NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use libtest_mimic::Failed;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;
use tests::documents::{
    FOR_ADMINS, FOR_USERS, NATIVE_PODS, PLUGIN, Printed, QUICKSTART, REFUSED, Typed, UNINSTALL,
};

use crate::fixture::Fixture;
use crate::native_pods::{bare, create, delete};

/// The actions of a person around the commands: ends commands that follow changes, edits in an
/// editor, and repeats a command until its Pod has started or its forwarded port accepts
/// connections. Any other error is final. At the end it ends its background commands.
const PERSON: &str = r#"
export KUBE_EDITOR=true
trap '{ kill $(jobs -p) && wait; } 2>/dev/null || true' EXIT
not_yet='pods? "[^"]*" not found|is waiting to start|container not found|does not have a host assigned'
kubectl() {
    local words=() word tries=0 errors=$HOME/errors-$BASHPID
    for word; do [ "$word" = --watch ] || words+=("$word"); done
    case $1 in
        logs | exec) ;;
        *) command kubectl "${words[@]}"; return ;;
    esac
    until command kubectl "${words[@]}" 2>"$errors"; do
        if (( ++tries == 120 )) || ! command grep --extended-regexp --quiet "$not_yet" "$errors"; then
            cat "$errors" >&2
            return 1
        fi
        sleep 1
    done
}
curl() {
    local tries=0 status=7
    # 7: the connection was refused.
    while (( status == 7 && ++tries <= 60 )); do
        status=0
        command curl --silent --show-error --fail-with-body "$@" || status=$?
        (( status != 7 )) || sleep 1
    done
    return $status
}
"#;

/// A command that searches a log, and may find nothing.
const READER: &str = r#"
grep() { command grep "$@" || [ $? -eq 1 ]; }
"#;

/// Placeholders in documents, with their values in the run.
const OWN: [(&str, &str); 7] = [
    (
        "docker.io/library/debian:12",
        "ipu-operator.local/openmpi:4",
    ),
    ("pod1.example.com:8090", "pod1.vipu:8090"),
    ("pod1.example.com-8090", "pod1.vipu-8090"),
    ("pod2.example.com:8090", "pod2.vipu:8090"),
    // A drain that does not end fails the run before this limit.
    ("--timeout 1h", "--timeout 3m"),
    ("node-1", "node1"),
    ("train-x2v7k", "notebook-0"),
];

/// Runs the quickstart, which starts without an operator: uninstalls the operator of the run first,
/// and installs it again afterwards.
pub(crate) fn quickstart(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let desk = Desk::new(fixture)?;
        fixture.release.run(&["uninstall", NAMESPACE, "--wait"])?;
        let typed = desk.run(&QUICKSTART);
        fixture.release.install()?;
        typed?;
        fixture.clear().await
    })
}

/// Runs the documents for users, from the first job to the last.
pub(crate) fn for_users(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let desk = Desk::new(fixture)?;
        for document in &FOR_USERS {
            desk.run(document)?;
            fixture.clear().await?;
        }
        for_the_plugin(fixture, &desk).await
    })
}

/// Runs the documents of the plugin, with the job and the Pod that they name, and those of native
/// Pods. The job and the Pod get their IPUs from the second V-IPU controller, so that the drain of
/// the first one has nothing to wait for.
async fn for_the_plugin(fixture: &Fixture, desk: &Desk<'_>) -> Result<(), Failed> {
    let mut job = fixture.example("03-large.yaml")?;
    job.metadata.name = Some("train".to_owned());
    fixture.create(&job).await?;
    create::<Pod>(fixture, bare("notebook-0", 32)).await?;
    for document in PLUGIN.iter().chain(&NATIVE_PODS) {
        desk.run(document)?;
    }
    delete(fixture, "pod/notebook-0").await?;
    fixture.clear().await
}

/// Runs the documents for admins while a job runs. At the end the operator is uninstalled as the
/// document describes.
pub(crate) fn for_admins(fixture: &Fixture) -> Result<(), Failed> {
    fixture.block_on(async {
        let desk = Desk::new(fixture)?;
        let waits = ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.2; done"];
        let mut job = fixture.parallel(OpenMpi::Four, 0, &waits)?;
        job.metadata.name = Some("mnist".to_owned());
        fixture.create(&job).await?;
        let lists: Api<ConfigMap> = Api::namespaced(fixture.operated.client.clone(), NAMESPACE);
        let list = format!("{NAMESPACE}-vipu-controllers");
        let before = lists.get(&list).await?.data;
        for document in &FOR_ADMINS {
            desk.run(document)?;
            fixture.webhooks_answer().await?;
        }
        let before = Patch::Merge(json!({"data": before}));
        lists.patch(&list, &PatchParams::default(), &before).await?;
        fixture.clear().await?;
        for block in scripts(fixture, &UNINSTALL)? {
            desk.block(UNINSTALL.document, &block)?;
            fixture.release.install()?;
        }
        Ok(())
    })
}

/// A block of commands.
struct Script {
    /// The commands, with the placeholders of the run. `!` marks those that must be refused.
    commands: String,
    /// The output in the document, and whether it is an example.
    printed: Option<(String, bool)>,
}

/// Returns the blocks of a document that run, in their order.
fn scripts(fixture: &Fixture, typed: &Typed) -> Result<Vec<Script>, Failed> {
    let document = typed.document;
    let path = fixture.operated.repository.join(format!("{document}.md"));
    let text = fs::read_to_string(&path)?;
    let own = |text: &str| {
        OWN.iter().fold(text.to_owned(), |text, (theirs, ours)| {
            text.replace(theirs, ours)
        })
    };
    let found = typed.blocks(&text).into_iter().map(|block| {
        let refused = if block.mark == REFUSED { "! " } else { "" };
        Script {
            commands: format!("{refused}{}", own(block.commands)),
            printed: block
                .printed
                .map(|printed| (own(printed.text), printed.is_example)),
        }
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(format!("{document} has no commands").into());
    }
    Ok(found)
}

/// The shell of a person, with kubectl, its plugin and Helm, in a folder with access to those of
/// the repository.
struct Desk<'a> {
    fixture: &'a Fixture,
    folder: TempDir,
}

impl<'a> Desk<'a> {
    fn new(fixture: &'a Fixture) -> Result<Self, Failed> {
        let folder = TempDir::new()?;
        for name in ["charts", "examples"] {
            let there = fixture.operated.repository.join(name);
            symlink(there, folder.path().join(name))?;
        }
        Ok(Self { fixture, folder })
    }

    fn run(&self, typed: &Typed) -> Result<(), Failed> {
        for block in scripts(self.fixture, typed)? {
            self.block(typed.document, &block)?;
        }
        Ok(())
    }

    /// Runs a block, ends its background processes, and compares its output with the document.
    fn block(&self, document: &str, block: &Script) -> Result<(), Failed> {
        let path = self.folder.path();
        let said = path.join("said");
        let person = path.join("person");
        let reader = if document.starts_with("examples") {
            ""
        } else {
            READER
        };
        fs::write(&person, [PERSON, reader].concat())?;
        let script = &block.commands;
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", script]);
        shell.env("BASH_ENV", &person).env("PATH", self.path()?);
        shell.env("KUBECONFIG", &self.fixture.operated.kubectl.kubeconfig);
        shell.env("HOME", path).current_dir(path).process_group(0);
        let output = File::create(&said)?;
        shell.stdout(output.try_clone()?).stderr(output);
        let mut shell = shell.stdin(std::process::Stdio::null()).spawn()?;
        let group = Pid::from_raw(i32::try_from(shell.id())?);
        let status = shell.wait();
        match killpg(group, Signal::SIGTERM) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
        let said = fs::read_to_string(&said)?;
        if !status?.success() {
            return Err(format!("{document}.md says\n{script}\nand that said\n{said}").into());
        }
        let Some((text, is_example)) = &block.printed else {
            return Ok(());
        };
        let is_example = *is_example;
        let missing = Printed { text, is_example }.missing(&said);
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join("\n");
        Err(
            format!("{document}.md says that\n{script}\nprints\n{missing}\nIt printed\n{said}")
                .into(),
        )
    }

    fn path(&self) -> Result<std::ffi::OsString, Failed> {
        let programs = ["kubectl", "helm"].map(|name| self.fixture.tools.program(name));
        let folders = programs.iter().filter_map(|program| program.parent());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let others = std::env::split_paths(&path);
        // The plugin is only in the folder for users of the cluster.
        let plugin = std::iter::once(bin(&self.fixture.settings.run));
        let all = folders.map(Path::to_owned).chain(plugin).chain(others);
        Ok(std::env::join_paths(all)?)
    }
}
