//! The built agent as a program: PID 1 of a container, and a copy of itself.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

#[path = "agent/hold.rs"]
mod hold;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::{TempDir, tempdir};

const AGENT: &str = env!("CARGO_BIN_EXE_ipu-agent");

/// Far beyond what any step takes, so that only a real hang reaches it.
const BOUND: Duration = Duration::from_secs(30);

fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(
            start.elapsed() < BOUND,
            "{what} did not happen in {BOUND:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn folder() -> TempDir {
    tempdir().unwrap()
}

/// The agent as PID 1 of a PID namespace, as it is in a container.
struct Container {
    unshare: Guarded,
    agent: i32,
}

impl Container {
    fn start(arguments: &[&str]) -> Self {
        let mut unshare = Self::namespaces();
        unshare.args([AGENT, "idle"]).args(arguments);
        let unshare = start_agent(&mut unshare);
        let agent = child(unshare.0.id());
        Self { unshare, agent }
    }

    /// The agent in a PID namespace whose PID 1 is that of a Pod. It ends with 7 if the agent ends
    /// with 0.
    fn start_in_pod() -> Self {
        let idle = format!("unshare --mount {AGENT} idle --grace-seconds 600 --shares-processes");
        let script = format!("{idle} && exit 7");
        let unshare = start_agent(Self::namespaces().args(["sh", "-c", &script]));
        let pause = u32::try_from(child(unshare.0.id())).unwrap();
        let agent = child(pause);
        Self { unshare, agent }
    }

    fn namespaces() -> Command {
        let mut unshare = Command::new("unshare");
        if !is_root() {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        unshare
    }

    /// Starts a shell in the container, as `kubectl exec` would.
    fn shell(&self, script: &str) -> Guarded {
        let shell = Command::new("nsenter")
            .args(["--target", &self.agent.to_string(), "--pid", "--mount"])
            .args(if is_root() {
                &["--"][..]
            } else {
                &["--user", "--"]
            })
            // A shell cannot trap signals that were ignored when it started, and tests in the
            // background have SIGINT ignored.
            .args(["env", "--default-signal", "sh", "-c", script])
            .spawn()
            .unwrap();
        Guarded(shell)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.agent), signal).unwrap();
    }
}

/// The only child of a process.
fn child(id: u32) -> i32 {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    children.trim().parse().unwrap()
}

/// A process that does not outlive its test, also where that fails.
struct Guarded(Child);

impl Guarded {
    fn end(&mut self) -> ExitStatus {
        wait_for("the end of the process", || self.0.try_wait().unwrap())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an idle agent and waits until it reports that it is ready.
fn start_agent(command: &mut Command) -> Guarded {
    let mut child = Guarded(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ipu-agent: waiting for commands of the launcher\n");
    child
}

#[test]
fn orphans_are_reaped() {
    let container = Container::start(&[]);
    let folder = folder();
    let file = folder.path().join("pid");
    // The inner shell's child outlives it and so becomes a child of PID 1, and then ends.
    let script = format!("sh -c '(sleep 0.1; echo over > {}) &'", file.display());
    assert!(container.shell(&script).end().success());
    wait_for("the orphan's end", || file.exists().then_some(()));
    let children = format!("/proc/{0}/task/{0}/children", container.agent);
    wait_for("the reaping of the orphan", || {
        fs::read_to_string(&children)
            .unwrap()
            .trim()
            .is_empty()
            .then_some(())
    });
}

#[test]
fn each_signal_to_stop_is_passed_on_and_the_agent_ends_with_0() {
    // Images name another signal than SIGTERM by `STOPSIGNAL`, and templates by
    // `lifecycle.stopSignal`.
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        let mut container = Container::start(&["--grace-seconds", "600"]);
        let folder = folder();
        let (ready, reached) = (folder.path().join("ready"), folder.path().join("reached"));
        let trap = signal.as_str().trim_start_matches("SIG");
        let mut rank = container.shell(&format!(
            "trap 'echo reached > {}; exit 0' {trap}; echo > {}; while :; do sleep 0.05; done",
            reached.display(),
            ready.display()
        ));
        wait_for("the rank's start", || ready.exists().then_some(()));
        container.signal(signal);
        assert_eq!(container.unshare.end().code(), Some(0));
        assert!(reached.exists(), "{signal} did not reach the rank");
        rank.end();
    }
}

#[test]
fn a_process_that_ignores_the_signal_does_not_hold_the_agent() {
    let mut container = Container::start(&["--grace-seconds", "1"]);
    let folder = folder();
    let ready = folder.path().join("ready");
    let mut rank = container.shell(&format!(
        "trap '' TERM; echo > {}; while :; do sleep 0.05; done",
        ready.display()
    ));
    wait_for("the rank's start", || ready.exists().then_some(()));
    container.signal(Signal::SIGTERM);
    assert_eq!(container.unshare.end().code(), Some(0));
    // With PID 1 the namespace goes, and with it what would not end by itself.
    assert!(!rank.end().success());
}

/// The containers of a Pod with `shareProcessNamespace` differ by their mount namespaces.
#[test]
fn in_a_shared_namespace_the_processes_of_the_container_get_the_signal() {
    let mut container = Container::start_in_pod();
    let folder = folder();
    let (ready, reached) = (folder.path().join("ready"), folder.path().join("reached"));
    let mut rank = container.shell(&format!(
        "trap 'echo reached > {}; exit 0' TERM; echo > {}; while :; do sleep 0.05; done",
        reached.display(),
        ready.display()
    ));
    wait_for("the rank's start", || ready.exists().then_some(()));
    container.signal(Signal::SIGTERM);
    // The other container reports how the agent ended, and was not ended itself.
    assert_eq!(container.unshare.end().code(), Some(7));
    assert!(reached.exists(), "SIGTERM did not reach the rank");
    rank.end();
}

#[test]
fn outside_a_namespace_of_its_own_it_leaves_strangers_alone() {
    let mut stranger = Guarded(Command::new("sleep").arg("600").spawn().unwrap());
    let mut agent = start_agent(Command::new(AGENT).arg("idle"));
    let pid = i32::try_from(agent.0.id()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert_eq!(agent.end().code(), Some(0));
    assert_eq!(stranger.0.try_wait().unwrap(), None);
}

fn install(dir: &Path, further: &[&str]) -> (ExitStatus, String) {
    let mut child = Command::new(AGENT)
        .arg("install")
        .arg(dir)
        .args(further)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    (child.wait().unwrap(), said)
}

#[test]
fn the_copy_runs_and_is_replaced_whole() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    // The remains of an init container that was killed.
    fs::write(folder.path().join(".ipu-agent.new"), b"half").unwrap();
    for _ in 0..2 {
        assert_eq!(
            install(folder.path(), &[]),
            (ExitStatus::default(), String::new())
        );
    }
    let copy = folder.path().join("ipu-agent");
    assert_eq!(
        fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o755
    );
    assert!(fs::read(&copy).unwrap() == fs::read(AGENT).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn mpirun_finds_the_workers_and_a_script_that_reaches_them() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let workers = ["--job", "mnist", "--workers", "2"];
    for _ in 0..2 {
        assert_eq!(
            install(folder.path(), &workers),
            (ExitStatus::default(), String::new())
        );
    }
    let file = |name: &str| {
        let path = folder.path().join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        (fs::read_to_string(&path).unwrap(), mode)
    };
    let listed = "mnist-worker-0 slots=1\nmnist-worker-1 slots=1\n".to_owned();
    assert_eq!(file("hostfile"), (listed, 0o444));
    let (script, mode) = file("kubeexec.sh");
    let agent = folder.path().join("ipu-agent");
    let carries = format!(
        "exec {} exec --job mnist \"$POD\" -- /bin/sh -c \"$*\"\n",
        agent.display()
    );
    assert!(script.ends_with(&carries), "{script}");
    assert_eq!(mode, 0o555);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn a_host_name_is_only_that_of_the_command() {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut unshare = Command::new("unshare");
    if !is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    // The namespace of the node, and a shell that sees its name afterwards.
    let named = format!("{AGENT} host-name a-worker-0 -- cat /proc/sys/kernel/hostname");
    let script = format!("{named}; cat /proc/sys/kernel/hostname");
    let output = unshare
        .args(["--uts", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("a-worker-0\n{own}"),
        "{}",
        String::from_utf8(output.stderr).unwrap()
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = folder();
    let missing = folder.path().join("not-there");
    let (status, said) = install(&missing, &[]);
    assert_eq!(status.code(), Some(255));
    assert!(
        said.contains("not-there") && said.contains("No such file"),
        "{said}"
    );
}

#[test]
fn a_command_cannot_be_carried_outside_a_cluster() {
    let output = Command::new(AGENT)
        .args(["exec", "mnist-worker-0", "--", "true"])
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(
        said.contains("service account") && said.contains("KUBERNETES_SERVICE_HOST")
            || said.contains("environment variable"),
        "{said}"
    );
}
