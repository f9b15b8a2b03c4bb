//! `policy new`: the project for each world builds, passes its own tests and cases, and the
//! operator accepts the result.

use ipu_api::ipupolicy::Hook;
use tests::guests::project;

use super::{Folder, assert_says};

/// Creates a project, builds it as its README describes, and runs the commands of the README.
fn made_and_tested(hook: Hook) {
    let (folder, world) = (Folder::new(), hook.world());
    // Projects share a folder of builds.
    let name = format!("my-{world}");
    let printed = folder.policy(&format!("new {name} --world {world} --into ./"));
    assert_says(&printed, &["Its README.md says how"]);
    let core = project::build(&folder.path(&name)).unwrap();
    let readme = folder.read(&format!("{name}/README.md"));
    for (command, arguments) in [
        (
            "componentize",
            format!("{} --output ./mine.wasm", core.display()),
        ),
        ("check", "./mine.wasm".to_owned()),
        ("test", format!("./mine.wasm ./{name}/cases")),
    ] {
        assert_says(&readme, &[&format!("ipu-operator policy {command} ")]);
        let printed = folder.policy(&format!("{command} {arguments}"));
        assert!(
            command != "test" || printed.contains("result: ok. 2 passed"),
            "{printed}"
        );
    }
    let printed = folder.policy("inspect ./mine.wasm");
    let world = format!("world    {world}\n");
    assert_says(&printed, &[&world, "The operator would link it"]);
}

#[test]
fn a_placement_project_builds_and_passes() {
    made_and_tested(Hook::Placement);
}

#[test]
fn a_defaulting_project_builds_and_passes() {
    made_and_tested(Hook::Defaulting);
}

#[test]
fn a_validation_project_builds_and_passes() {
    made_and_tested(Hook::Validation);
}
