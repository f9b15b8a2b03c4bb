//! The built operator as the process that compiles policies: its limits hold, and the parent goes
//! on.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ipu_api::guest::admission::{Admission, Operation};
use ipu_api::guest::digest::digest_of;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::{
    BUILT_IN, Guest, GuestHost, GuestHostOptions, Limits, LoadError, ModuleConfig, OpenError,
    componentize,
};
use ipu_text::explain;
use serde_json::json;
use tempfile::TempDir;

const OPERATOR: &str = env!("CARGO_BIN_EXE_ipu-operator");
const FILE: &str = "validation.wasm";

/// Memory that the small policy below is compiled within many times over, also where every core has
/// a thread of its own.
const MEMORY: u64 = 256 << 20;

/// Time that the small policy is compiled within many times over, also on a busy machine.
const TIME: Duration = Duration::from_secs(10);

/// A validation policy that finds nothing wrong, with a function more.
fn policy(more: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
          (memory (export "memory") 2)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
          (func (export "ipu:policy/validator@0.1.0#validate-settings") (param i32 i32) (result i32)
            (i32.const 16))
          (func (export "ipu:policy/validator@0.1.0#validate")
            (param i32) (result i32)
            (i32.const 16))
          {more})"#
    );
    let core = wat::parse_str(text).unwrap();
    componentize(&core, Some(Hook::Validation)).unwrap()
}

/// Some kilobytes that are not compiled within minutes and gigabytes: loops within loops, each of
/// which hands every local on to the next round.
fn bomb() -> Vec<u8> {
    let (locals, depth) = (4000, 2000);
    let (types, starts) = (" i64".repeat(locals), " loop".repeat(depth));
    let change = |local| format!(" local.get {local} i64.const 1 i64.add local.set {local}\n");
    let changes = (0..locals).map(change).collect::<Vec<_>>().concat();
    let ends = " local.get 0 i32.wrap_i64 br_if 0 end".repeat(depth);
    policy(&format!("(func (local{types}) {starts}\n{changes}{ends})"))
}

/// The folders of a process and the built-in policies that it has loaded.
struct Fixture {
    folders: TempDir,
    policies: GuestHost,
}

impl Fixture {
    /// The small policy is the built-in one; a process of the operator's own compiles.
    async fn open(limits: Limits) -> Self {
        let folders = tempfile::tempdir().unwrap();
        for folder in ["guests", "cache"] {
            std::fs::create_dir(folders.path().join(folder)).unwrap();
        }
        std::fs::write(folders.path().join("guests").join(FILE), policy("")).unwrap();
        let options = options(folders.path(), limits, Path::new(OPERATOR));
        let policies = GuestHost::open(options).await.unwrap();
        Self { folders, policies }
    }

    /// Makes a guest of a policy beside the built-in one.
    async fn prepare(&self, bytes: Vec<u8>) -> Result<Guest, LoadError> {
        let config = ModuleConfig {
            settings: "{}".to_owned(),
            ..ModuleConfig::default()
        };
        self.policies.prepare(Hook::Validation, bytes, config).await
    }

    /// Returns why no guest is made of a policy. The built-in one must continue, and nothing be
    /// left behind.
    async fn refused(&self, bytes: Vec<u8>) -> String {
        let (compiled, begun) = self.cached();
        assert_eq!((compiled.len(), begun), (1, Vec::new()));
        let error = self.prepare(bytes).await.map(drop).unwrap_err();
        assert_eq!(self.cached(), (compiled, Vec::new()));
        let admission = Admission::of(Operation::Create);
        let object = json!({});
        let answered = self.policies.validate(&BUILT_IN, &admission, &object, None);
        answered.await.unwrap();
        explain(&error)
    }

    /// The files in the folder for compiled modules: compiled ones, and others.
    fn cached(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut found = Vec::new();
        list(&self.folders.path().join("cache"), &mut found);
        found.sort();
        let is_compiled = |path: &PathBuf| path.extension().is_some_and(|end| end == "cwasm");
        found.into_iter().partition(is_compiled)
    }
}

fn options(folders: &Path, limits: Limits, compiler: &Path) -> GuestHostOptions {
    GuestHostOptions {
        guests_dir: folders.join("guests"),
        compile_cache_dir: Some(folders.join("cache")),
        compiler: Some(compiler.to_owned()),
        settings: json!({}),
        hooks: vec![Hook::Validation],
        limits,
    }
}

fn list(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn what_takes_too_long_to_compile_is_refused() {
    let fixture = Fixture::open(Limits {
        compile_time: TIME,
        compile_memory: 4 << 30,
        ..Limits::default()
    })
    .await;
    let reason = fixture.refused(bomb()).await;
    assert!(
        reason.ends_with("compiling it took longer than 10s; make it smaller or simpler"),
        "{reason}"
    );
}

#[tokio::test]
async fn what_takes_too_much_memory_to_compile_is_refused() {
    let fixture = Fixture::open(Limits {
        compile_memory: MEMORY,
        ..Limits::default()
    })
    .await;
    let reason = fixture.refused(bomb()).await;
    let expected =
        format!("compiling it took more than {MEMORY} bytes of memory; make it smaller or simpler");
    assert!(reason.ends_with(&expected), "{reason}");
}

#[tokio::test]
async fn what_the_child_finds_invalid_is_refused_in_its_words() {
    let fixture = Fixture::open(Limits::default()).await;
    let reason = fixture.refused(b"<html>404</html>".to_vec()).await;
    for part in [
        "the compiling process ended with exit status: 1",
        "not a valid component",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

#[tokio::test]
async fn a_policy_that_is_compiled_by_the_child_is_kept_beside_the_built_in_one() {
    let fixture = Fixture::open(Limits::default()).await;
    let bytes = policy("(func (nop))");
    let digest = digest_of(&bytes);
    let guest = fixture.prepare(bytes).await.unwrap();
    assert_eq!(guest.digest(), Some(&digest));
    let (compiled, begun) = fixture.cached();
    assert_eq!((compiled.len(), begun), (2, Vec::new()));
}

#[tokio::test]
async fn a_policy_whose_code_is_too_large_is_refused() {
    let fixture = Fixture::open(Limits::default()).await;
    let own = std::fs::metadata(&fixture.cached().0[0]).unwrap().len();
    let limits = Limits {
        compiled: own,
        ..Limits::default()
    };
    let fixture = Fixture::open(limits).await;
    let reason = fixture.refused(policy(&"(func (nop))".repeat(4_000))).await;
    let expected = format!("more than the {own} that it may have; make it smaller or simpler");
    assert!(reason.ends_with(&expected), "{reason}");
}

#[tokio::test]
async fn what_was_compiled_before_is_loaded_without_the_child() {
    let fixture = Fixture::open(Limits::default()).await;
    let missing = fixture.folders.path().join("missing");
    let options = options(fixture.folders.path(), Limits::default(), &missing);
    let again = GuestHost::open(options).await.unwrap();
    let digest = again.built_in(Hook::Validation);
    assert_eq!(digest, Some(&digest_of(&policy(""))));
}

#[tokio::test]
async fn what_lies_in_the_folder_and_is_no_code_is_compiled_anew() {
    let fixture = Fixture::open(Limits::default()).await;
    let (compiled, _) = fixture.cached();
    let good = std::fs::read(&compiled[0]).unwrap();
    let too_large = vec![0; usize::try_from(Limits::default().compiled).unwrap() + 1];
    for bad in [Vec::new(), b"no code".to_vec(), vec![0x7f; 4096], too_large] {
        // As the operator does: what another process has loaded is not changed.
        std::fs::remove_file(&compiled[0]).unwrap();
        std::fs::write(&compiled[0], bad).unwrap();
        let options = options(
            fixture.folders.path(),
            Limits::default(),
            Path::new(OPERATOR),
        );
        GuestHost::open(options).await.unwrap();
        assert!(std::fs::read(&compiled[0]).unwrap() == good, "it is fixed");
    }
}

#[tokio::test]
async fn without_a_folder_the_child_compiles_all_the_same() {
    let fixture = Fixture::open(Limits::default()).await;
    let mut options = options(
        fixture.folders.path(),
        Limits::default(),
        Path::new(OPERATOR),
    );
    for folder in [None, Some(PathBuf::from("/proc/no-folder"))] {
        options.compile_cache_dir = folder;
        let policies = GuestHost::open(options.clone()).await.unwrap();
        assert!(policies.built_in(Hook::Validation).is_some());
    }
}

#[tokio::test]
async fn modules_that_do_not_fit_into_memory_together_are_refused_until_others_go() {
    let mut fixture = Fixture::open(Limits::default()).await;
    let limits = Limits {
        loaded: 0,
        ..Limits::default()
    };
    let mut options = options(fixture.folders.path(), limits, Path::new(OPERATOR));
    options.compile_cache_dir = None;
    let error = GuestHost::open(options.clone()).await.map(drop);
    let needed = match error.unwrap_err() {
        OpenError::Module {
            source: LoadError::NoMemory(error),
            ..
        } => Some(error.needed),
        _ => None,
    };
    // The built-in one and one other fit.
    options.limits.loaded = needed.unwrap() * 5 / 2;
    let [first, second] = [1, 2].map(|times| policy(&"(func (nop))".repeat(times)));
    for folder in [None, Some(PathBuf::from("/proc/no-folder"))] {
        options.compile_cache_dir = folder;
        fixture.policies = GuestHost::open(options.clone()).await.unwrap();
        let kept = fixture.prepare(first.clone()).await.unwrap();
        let error = fixture.prepare(second.clone()).await.map(drop).unwrap_err();
        let (text, limit) = (explain(&error), options.limits.loaded.to_string());
        for part in [
            limit.as_str(),
            "folder for compiled modules",
            "another IPUPolicy",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(error.is_retryable(), "{text}");
        drop(kept);
        fixture.prepare(second.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn without_the_child_nothing_is_compiled() {
    let fixture = Fixture::open(Limits::default()).await;
    let missing = fixture.folders.path().join("missing");
    let mut options = options(fixture.folders.path(), Limits::default(), &missing);
    options.compile_cache_dir = None;
    let error = GuestHost::open(options).await.map(drop).unwrap_err();
    let error = format!("{:?}", anyhow::Error::from(error));
    assert!(
        error.contains("failed to run the compiling process"),
        "{error}"
    );
    assert_eq!(fixture.cached().1, Vec::<PathBuf>::new());
}

/// The child reports its confinement before it reads the module, so the test looks at it in
/// between.
#[test]
fn the_child_is_confined_before_it_reads_the_module() {
    let module = policy("");
    let mut child = Command::new(OPERATOR)
        .args(["policy", "compile", "--seconds", "60", "--memory"])
        .arg(MEMORY.to_string())
        .arg("--module-bytes")
        .arg(module.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut report = [0];
    output.read_exact(&mut report).unwrap();
    assert!(b"fpa".contains(&report[0]), "{report:?}");

    let about = |file| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let (limits, status) = (about("limits"), about("status"));
    let open_files: Vec<_> = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(open_files, ["0", "0", "files"]);
    assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
    // Landlock restricts only the thread that asks for it.
    assert!(status.contains("Threads:\t1\n"), "{status}");

    input.write_all(&module).unwrap();
    let mut code = Vec::new();
    output.read_to_end(&mut code).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(code.len() > size_of::<u64>());
}
