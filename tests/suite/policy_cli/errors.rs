//! Errors of all commands: each names the file or the option, and the cause.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use insta::assert_snapshot;
use release::guests::{GUESTS, core_module};
use tests::guests::hostile;

use super::Folder;

/// A folder with guests, and with files that a command refuses.
fn folder() -> Folder {
    let folder = Folder::new();
    symlink(core_module(GUESTS[0]), folder.path("core.wasm")).unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    folder.write("html.wasm", "<html>404</html>");
    folder.write("empty.wasm", "");
    folder.write("none.wasm", hostile::component("(component)"));
    folder.write("trap.wasm", hostile::validation("unreachable"));
    folder.write(
        "large.yaml",
        format!("operation: create\nobject: {}\n", "x".repeat(8_192)),
    );
    folder.write("broken.json", "{\"request\": ");
    folder.write("broken.yaml", "a: [");
    folder.write("latin.json", b"\"\xe4\"");
    folder.write(
        "validation.json",
        "{\"operation\": \"create\", \"object\": {}}",
    );
    folder.write("broken.jsonl", "\n{\"hook\"");
    folder.write(
        "jobs.csv",
        "namespace,arrival_seconds,ipus,duration_seconds\na,0,1,60\n",
    );
    folder.write("broken.csv", "namespace,ipus\n");
    folder.write("controllers.yaml", "[{name: pod, ipus: 16}]");
    folder.write("none.json", "[]");
    for (name, bytes) in [("huge.wasm", 100 << 20), ("huge.json", 9 << 20)] {
        File::create(folder.path(name))
            .unwrap()
            .set_len(bytes)
            .unwrap();
    }
    folder
}

#[test]
fn errors_about_guests_name_the_file_and_the_cause() {
    assert_snapshot!(folder().transcript(&[
        "check ./missing.wasm",
        "check ./folder",
        "check ./html.wasm",
        "check ./empty.wasm",
        "check ./huge.wasm",
        "check ./core.wasm",
        "check ./none.wasm",
        "check ./serial-walk.wasm --world validation",
        "check ./validation.wasm --settings {\"maxIpusPerJob\":0}",
        "inspect ./missing.wasm",
        "inspect ./core.wasm",
        "inspect ./huge.wasm",
        "run ./html.wasm",
        "run ./serial-walk.wasm --world validation",
        "run ./validation.wasm --settings {\"maxIpusPerJob\":0}",
        "test ./core.wasm ./folder",
        "diff ./none.wasm ./core.wasm",
        "bench ./missing.wasm",
        "bench ./trap.wasm --request ./large.yaml",
        "bench ./serial-walk.wasm --against ./trap.wasm",
        "evaluate ./validation.wasm --jobs ./jobs.csv --controllers ./controllers.yaml",
        "evaluate ./missing.wasm --jobs ./jobs.csv --controllers ./controllers.yaml",
    ]));
}

#[test]
fn errors_about_other_files_name_the_file_and_the_cause() {
    let folder = folder();
    folder.write("taken", "mine");
    assert_snapshot!(folder.transcript(&[
        "run ./serial-walk.wasm --request ./missing.json",
        "run ./serial-walk.wasm --request ./broken.json",
        "run ./serial-walk.wasm --request ./broken.yaml",
        "run ./serial-walk.wasm --request ./latin.json",
        "run ./serial-walk.wasm --request ./huge.json",
        "run ./serial-walk.wasm --request ./validation.json",
        "test ./serial-walk.wasm ./folder",
        "test ./serial-walk.wasm ./missing",
        "replay ./serial-walk.wasm ./serial-walk.wasm ./missing.jsonl",
        "replay ./serial-walk.wasm ./serial-walk.wasm ./broken.jsonl",
        "replay ./serial-walk.wasm ./serial-walk.wasm ./latin.json",
        "replay ./serial-walk.wasm ./validation.wasm ./none.json",
        "evaluate built-in --jobs ./missing.csv --controllers ./controllers.yaml",
        "evaluate built-in --jobs ./broken.csv --controllers ./controllers.yaml",
        "evaluate built-in --jobs ./jobs.csv --controllers ./none.json",
        "record --socket /nowhere/requests.sock",
        "new taken --world placement --into ./",
        "new folder --world placement --into ./",
        "new a --world placement --into ./missing",
        "componentize ./core.wasm --output ./missing/out.wasm",
        "componentize ./core.wasm --output ./folder",
    ]));
    assert_eq!(folder.read("taken"), "mine");
    assert_eq!(fs::read_dir(folder.path("folder")).unwrap().count(), 0);
}

#[test]
fn a_module_that_is_no_component_of_the_world_is_not_written() {
    let folder = folder();
    for (line, cause) in [
        ("./missing.wasm", "failed to read"),
        ("./html.wasm", "into a component"),
        ("./defaulting.wasm", "into a component"),
        ("./core.wasm --world placement", "placer"),
    ] {
        let (_, error) = folder.run(&format!("componentize {line} --output ./out.wasm"));
        assert!(error.unwrap().contains(cause), "{line}");
        assert!(!folder.path("out.wasm").exists(), "{line}");
    }
}
