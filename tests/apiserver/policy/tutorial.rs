//! Runs the commands of the tutorial for policy authors: from a new project to an active guest.

use std::path::Path;

use cluster::command;
use cluster::progress::Progress;
use cluster::settings::Settings;
use cluster::tools::Tools;
use release::cargo::clean;
use release::guests::checkout;
use tests::debug_operator;
use tests::documents::FOR_AUTHORS;
use tests::guests::project;

use super::fixture::Fixture;

/// All commands of the document in their order.
fn commands() -> String {
    let path = checkout().join(format!("{}.md", FOR_AUTHORS.document));
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = FOR_AUTHORS.blocks(&text).into_iter();
    blocks.flat_map(|block| [block.commands, "\n"]).collect()
}

/// Runs a script in an empty folder, with cargo, rustup, kubectl and the operator's program on the path.
fn run(script: &str, kubeconfig: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    project::programs(&programs).unwrap();
    let settings = Settings::from_env().unwrap();
    let tools = Tools::fetch_some(&settings, &Progress::start(), &["kubernetes"]).unwrap();
    let others = [
        tools.program("kubectl").to_owned(),
        debug_operator::program().unwrap(),
    ];
    let others = others
        .iter()
        .map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(programs).chain(others);
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap();
    let mut shell = clean("bash");
    shell.args(["-euxo", "pipefail", "-c", script]);
    shell.env("PATH", path).env("KUBECONFIG", kubeconfig);
    command::output(shell.current_dir(folder.path())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_new_project_to_promoted_in_the_shadow() {
    let fixture = Fixture::start().await;
    let kubeconfig = fixture.webhooks.kubeconfig();
    // The webhooks of the test belong to the namespace `default`.
    let script = commands().replace("--namespace ipu-operator", "--namespace default");
    let typed = tokio::task::spawn_blocking(move || run(&script, &kubeconfig));
    let said = typed.await.unwrap();
    for part in [
        "result: ok. 3 passed",
        "it would have been refused for metadata.labels.team",
        "ipupolicy.graphcore.ai \"require-team\" deleted",
        "300 jobs on 4 controllers with 256 IPUs",
    ] {
        assert!(said.contains(part), "no {part:?} in\n{said}");
    }
}
