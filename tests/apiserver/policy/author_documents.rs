//! Runs the commands of the documents for policy authors: the tutorial, from a new project to an
//! active guest, the pages of commands that need no cluster, and the example policies in Rust.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cluster::command;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use release::cargo::clean;
use release::guests::{self, checkout};
use serde_json::json;
use tests::debug_operator;
use tests::documents::{COMMANDS_FOR_AUTHORS, EXAMPLES_FOR_AUTHORS, TUTORIAL_FOR_AUTHORS, Typed};
use tests::guests::project;

use super::fixture::Fixture;

/// One in this number of the repository's real jobs is replayed, because the operator is a debug
/// build.
const STEP: usize = 300;

/// The text of a document.
pub(super) fn text(typed: &Typed) -> String {
    fs::read_to_string(checkout().join(format!("{}.md", typed.document))).unwrap()
}

/// All commands of a document, in their order.
fn commands(typed: &Typed) -> String {
    let text = text(typed);
    let blocks = typed.blocks(&text).into_iter();
    blocks.flat_map(|block| [block.commands, "\n"]).collect()
}

/// Asserts that the commands of a document printed the output in it.
fn assert_printed(said: &str, typed: &Typed) {
    let text = text(typed);
    for block in typed.blocks(&text) {
        let missing = block.printed.map(|printed| printed.missing(said));
        let missing = missing.unwrap_or_default();
        assert!(
            missing.is_empty(),
            "{}.md says that\n{}\nprints\n{}\nIt printed\n{said}",
            typed.document,
            block.commands,
            missing.join("\n")
        );
    }
}

/// A shell with cargo, rustup, kubectl and the operator's program on its path.
#[derive(Debug)]
pub(super) struct Shell<'a> {
    pub(super) folder: &'a Path,
    pub(super) kubeconfig: &'a Path,
    /// Further programs.
    pub(super) programs: &'a [PathBuf],
    /// Further variables.
    pub(super) variables: &'a [(&'a str, PathBuf)],
}

impl Shell<'_> {
    /// Runs a script. Returns its output.
    pub(super) fn run(&self, script: &str) -> String {
        let programs = tempfile::tempdir().unwrap();
        project::programs(programs.path()).unwrap();
        let settings = Settings::from_env().unwrap();
        let tools = Tools::fetch_some(&settings, &Progress::start(), &["kubernetes"]).unwrap();
        let others = [
            tools.program("kubectl").to_owned(),
            debug_operator::program().unwrap(),
        ];
        let others = others
            .iter()
            .chain(self.programs)
            .map(|program| program.parent().unwrap().to_owned());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(programs.path().to_owned()).chain(others);
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap();
        let mut shell = clean("bash");
        shell.args(["-euxo", "pipefail", "-c", script]);
        shell.env("PATH", path).env("KUBECONFIG", self.kubeconfig);
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command::output(shell.current_dir(self.folder)).unwrap()
    }
}

/// Runs a script in a folder.
fn run(script: &str, folder: &Path, kubeconfig: &Path) -> String {
    let shell = Shell {
        folder,
        kubeconfig,
        programs: &[],
        variables: &[],
    };
    shell.run(script)
}

/// Runs the commands of documents in one shell with the cluster of the fixture, in a folder with
/// the repository's examples.
async fn follow(fixture: &Fixture, documents: &[Typed]) -> String {
    let kubeconfig = fixture.webhooks.kubeconfig();
    let script: String = documents.iter().map(commands).collect();
    // The webhooks of the test belong to the namespace `default`.
    let script = script.replace("--namespace ipu-operator", "--namespace default");
    let ran = tokio::task::spawn_blocking(move || {
        let parent = tempfile::tempdir().unwrap();
        let repository = parent.path().join("repository");
        fs::create_dir(&repository).unwrap();
        symlink(checkout().join("examples"), repository.join("examples")).unwrap();
        run(&script, &repository, &kubeconfig)
    });
    let said = ran.await.unwrap();
    for typed in documents {
        assert_printed(&said, typed);
    }
    said
}

/// Asserts that the commands printed these texts.
fn assert_said(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_new_project_to_promoted_in_the_shadow() {
    let fixture = Fixture::start().await;
    let said = follow(&fixture, &TUTORIAL_FOR_AUTHORS).await;
    let parts = [
        "result: ok. 3 passed",
        "it would have been refused for metadata.labels.team",
        "without an answer of the guest",
        "ipupolicy.graphcore.ai \"require-team\" deleted",
        "300 jobs on 4 controllers with 256 IPUs",
    ];
    assert_said(&said, &parts);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_in_rust_are_built_and_applied_as_their_readmes_describe() {
    let fixture = Fixture::start().await;
    for typed in &EXAMPLES_FOR_AUTHORS {
        let said = follow(&fixture, std::slice::from_ref(typed)).await;
        let folder = Path::new(typed.document).parent().unwrap();
        let name = folder.file_name().unwrap().to_string_lossy();
        let created = format!("ipupolicy.graphcore.ai/{name} created");
        assert_said(&said, &["world    placement", &created]);
    }
}

/// Records of two requests. best-fit answers the first one otherwise than the serial walk.
fn records() -> String {
    let controllers = json!([
        {"name": "pod1:8090", "totalIpus": 16, "usedIpus": 0, "largestFree": 16},
        {"name": "pod2:8090", "totalIpus": 16, "usedIpus": 8, "largestFree": 8},
    ]);
    let record = |ipus: u32| {
        let request = json!({"namespace": "team-a", "owner": "mnist", "ipus": ipus, "gcds": 1});
        json!({
            "hook": "placement",
            "request": {"request": request, "controllers": controllers},
            "answer": {"try": "pod1:8090"},
            "digest": "sha256:1",
        })
    };
    format!("{}\n{}\n", record(4), record(16))
}

/// A part of the repository's real jobs, as a CSV file.
fn jobs() -> String {
    let all = fs::read_to_string(checkout().join("tests/evaluation/msr-jobs.csv")).unwrap();
    let (header, jobs) = all.split_once('\n').unwrap();
    let some: Vec<_> = jobs.lines().step_by(STEP).collect();
    format!("{header}\n{}\n", some.join("\n"))
}

/// The list of controllers on the page about placement.
fn controllers() -> String {
    let [.., placement] = COMMANDS_FOR_AUTHORS;
    let lists = Typed {
        marks: &["yaml"],
        ..placement
    };
    let text = text(&lists);
    lists.blocks(&text)[0].commands.to_owned()
}

#[test]
fn the_commands_that_need_no_cluster_work() {
    let folder = tempfile::tempdir().unwrap();
    let (built_in, examples) = (guests::build().unwrap(), guests::build_examples().unwrap());
    for module in [
        built_in.join("serial-walk.wasm"),
        examples.join("best-fit.wasm"),
    ] {
        fs::copy(&module, folder.path().join(module.file_name().unwrap())).unwrap();
    }
    for (name, content) in [
        ("records.jsonl", records()),
        ("jobs.csv", jobs()),
        ("controllers.yaml", controllers()),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    let script: String = COMMANDS_FOR_AUTHORS.iter().map(commands).collect();
    let said = run(&script, folder.path(), Path::new("/dev/null"));
    for typed in &COMMANDS_FOR_AUTHORS {
        assert_printed(&said, typed);
    }
    assert_said(&said, &["on 5 controllers with 272 IPUs"]);
}
