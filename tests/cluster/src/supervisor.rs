//! Child processes that cannot outlive this process.

use std::{
    ffi::OsString,
    fs::File,
    io,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use crate::process::Process;

/// A program to keep running.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in messages.
    pub name: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables beside those that are inherited.
    pub env: Vec<(&'static str, OsString)>,
    /// The file of its output.
    pub log: PathBuf,
}

/// Keeps programs running until it is dropped.
///
/// On request, the kernel kills a child when the *thread* that started it ends. So one thread
/// starts the children and lives as long as they may run: a test's thread may end earlier, and with
/// a killed test process all threads end.
#[derive(Debug)]
pub struct Supervisor {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    running: Vec<(&'static str, Process)>,
}

impl Supervisor {
    /// Starts all programs.
    pub fn start(programs: Vec<Program>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let (started, result) = channel();
        let thread = thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(move || supervise(&programs, &started, &stopped))?;
        let ended = || io::Error::other("the thread that starts them ended");
        let running = result.recv().map_err(|_| ended())??;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            running,
        })
    }

    /// The running process of a program.
    pub fn process(&self, name: &str) -> Option<Process> {
        let mut running = self.running.iter();
        running
            .find(|(found, _)| *found == name)
            .map(|(_, process)| *process)
    }

    /// Ends all programs.
    pub fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only waits and kills. If it panics, the kernel kills the children.
            let _ = thread.join();
        }
    }

    /// The first program that no longer runs.
    pub fn first_dead(&self) -> Option<&'static str> {
        let mut dead = self
            .running
            .iter()
            .filter(|(_, process)| !process.is_alive());
        dead.next().map(|(name, _)| *name)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

type Started = io::Result<Vec<(&'static str, Process)>>;

fn supervise(programs: &[Program], started: &Sender<Started>, stopped: &Receiver<()>) {
    let mut children = Vec::new();
    let result = programs.iter().map(|program| {
        let child = start(program)?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        children.push(child);
        let ended = || io::Error::other(format!("{} ended at once", program.name));
        Ok((program.name, Process::find(pid).ok_or_else(ended)?))
    });
    let result: Started = result.collect();
    let go_on = result.is_ok();
    let heard = started.send(result).is_ok();
    if go_on && heard {
        // An error means that the supervisor was dropped, which is the signal.
        let _ = stopped.recv();
    }
    for child in children.iter_mut().rev() {
        end(child);
    }
}

fn start(program: &Program) -> io::Result<Child> {
    let log = File::create(&program.log)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&program.path)
        .args(&program.args)
        .envs(program.env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Ends a child at once, because its data does not outlive the run.
fn end(child: &mut Child) {
    // Both fail only if it has already ended.
    let _ = child.kill();
    let _ = child.wait();
}
