//! `policy new`: the project for each world builds, passes its own tests and cases, and the operator
//! accepts the result.

use std::path::Path;

use clap::Parser;
use ipu_guest_host::model::Hook;
use ipu_operator::cli::Arguments;
use tests::guests::project;

use super::{all_complain, policy, text};

/// Creates a project, builds it as its README describes, and returns the output of its commands.
fn made_and_tested(hook: Hook) {
    let folder = tempfile::tempdir().unwrap();
    let world = hook.world();
    let name = format!("my-{world}");
    let made = [
        "new",
        &name,
        "--world",
        world,
        "--into",
        text(folder.path()),
    ];
    let printed = policy(&made).unwrap();
    assert!(printed.contains("Its README.md says how"), "{printed}");
    let home = folder.path().join(&name);
    let readme = std::fs::read_to_string(home.join("README.md")).unwrap();
    let core = project::build(&home).unwrap();
    let component = home.join(format!("{name}.wasm"));
    let cases = home.join("cases");
    let commands: [&[&str]; 3] = [
        &["componentize", text(&core), "--output", text(&component)],
        &["check", text(&component)],
        &["test", text(&component), text(&cases)],
    ];
    for command in commands {
        let part = format!("ipu-operator policy {} ", command[0]);
        assert!(readme.contains(&part), "the README does not say {part:?}");
        policy(command).unwrap();
    }
    let printed = policy(&["test", text(&component), text(&cases)]).unwrap();
    assert!(printed.contains("result: ok. 2 passed"), "{printed}");
    let printed = policy(&["inspect", text(&component)]).unwrap();
    assert!(
        printed.contains(&format!("world    {world}\n")),
        "{printed}"
    );
    assert!(printed.contains("The operator would link it"), "{printed}");
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

#[test]
fn existing_files_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let into = text(folder.path());
    let taken = folder.path().join("taken");
    std::fs::write(&taken, "mine").unwrap();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let nowhere = folder.path().join("nowhere");
    let new = |name, into| ["new", name, "--world", "placement", "--into", into];
    all_complain(&[
        (
            &new("taken", into),
            &["taken exists already", "choose another name"],
        ),
        (&new("empty", into), &["empty exists already"]),
        (&new("a", text(&nowhere)), &["failed to write", "nowhere/a"]),
    ]);
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
    assert_eq!(entries(&empty), 0);
}

#[test]
fn a_name_that_would_not_build_is_refused() {
    for name in ["Mine", "../mine", "my_policy", "2fast", ""] {
        let line = [
            "ipu-operator",
            "policy",
            "new",
            name,
            "--world",
            "placement",
        ];
        let error = Arguments::try_parse_from(line).unwrap_err().to_string();
        assert!(error.contains("lower-case letter"), "{error}");
    }
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}
