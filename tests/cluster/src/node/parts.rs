//! The programs of a node: started, waited for, and followed to their end.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use nix::{
    errno::Errno,
    sys::{
        signal::Signal,
        wait::{WaitStatus, wait},
    },
};

use super::{NodeError, NodeSpec, PATIENCE};
use crate::{files::At, kubeconfig, log_tail::LogTail, process::Process, wait::until_or_ended};

/// The programs of the node.
#[derive(Default)]
pub(super) struct Parts {
    running: Vec<Part>,
}

/// A program that was started.
struct Part {
    name: &'static str,
    command: Command,
    child: Child,
    log: PathBuf,
}

impl Part {
    /// Starts it again, with the same log.
    fn start_again(&mut self) -> Result<(), NodeError> {
        let program = PathBuf::from(self.command.get_program());
        self.child = self.command.spawn().at("start", &program)?;
        Ok(())
    }

    fn ended(&self) -> NodeError {
        NodeError::Ended {
            name: self.name,
            log: LogTail::read(&self.log, 15),
        }
    }
}

impl Parts {
    /// Starts a program, with a log of its own.
    pub(super) fn start(
        &mut self,
        spec: &NodeSpec,
        name: &'static str,
        program: &Path,
        args: Vec<String>,
    ) -> Result<(), NodeError> {
        let log_path = spec.logs.join(format!("{name}-{}.log", spec.name));
        let log = File::create(&log_path).at("write", &log_path)?;
        let errors = log.try_clone().at("write", &log_path)?;
        let tools = spec.dir.join("tools");
        let own = program.parent().unwrap_or(Path::new("/"));
        let path = format!(
            "{}:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            tools.display(),
            own.display()
        );
        let mut command = Command::new(program);
        command
            .args(args)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors);
        let child = command.spawn().at("start", program)?;
        self.running.push(Part {
            name,
            command,
            child,
            log: log_path,
        });
        Ok(())
    }

    /// Waits until `answers`, while every part runs.
    pub(super) async fn wait(
        &self,
        what: &str,
        answers: impl AsyncFnMut() -> bool,
    ) -> Result<(), NodeError> {
        until_or_ended(what, PATIENCE, || self.check(), answers).await?
    }

    fn check(&self) -> Result<(), NodeError> {
        let is_alive = |child: &Child| {
            let pid = i32::try_from(child.id()).ok();
            pid.and_then(Process::find).is_some()
        };
        match self.running.iter().find(|part| !is_alive(&part.child)) {
            Some(part) => Err(part.ended()),
            None => Ok(()),
        }
    }

    /// Waits until the API server grants kube-proxy its rights. A kubelet that starts before the
    /// API server is ready, and a kube-proxy that starts before it has its rights, would back off
    /// for seconds.
    pub(super) async fn wait_for_api_server(&self, spec: &NodeSpec) -> Result<(), NodeError> {
        let client = kubeconfig::client(&spec.proxy_kubeconfig).await?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
        let question = may_list_services();
        self.wait("the API server grants kube-proxy its rights", async || {
            let answer = reviews.create(&PostParams::default(), &question).await;
            answer.is_ok_and(|review| review.status.is_some_and(|status| status.allowed))
        })
        .await
    }

    /// Reaps every process of the node that has lost its parent, until a part of the node ends. It
    /// restarts a killed kubelet, as systemd does on other nodes.
    pub(super) fn reap(mut self) -> Result<(), NodeError> {
        loop {
            let ended = match wait() {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(source) => {
                    return Err(NodeError::System {
                        action: "wait for a process",
                        source: source.into(),
                    });
                }
            };
            let id = ended.pid().and_then(|pid| u32::try_from(pid.as_raw()).ok());
            let mut running = self.running.iter_mut();
            let Some(part) = running.find(|part| Some(part.child.id()) == id) else {
                continue;
            };
            let is_killed = matches!(ended, WaitStatus::Signaled(_, Signal::SIGKILL, _));
            if part.name != "kubelet" || !is_killed {
                return Err(part.ended());
            }
            part.start_again()?;
        }
    }
}

fn may_list_services() -> SelfSubjectAccessReview {
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("list".to_owned()),
                resource: Some("services".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
