//! Measures how long a program of a job takes to start, on idle real nodes: an IPUJob compared with
//! a batch Job, and a launcher with two workers compared with that of mpi-operator.

mod contender;
mod pods_made;

use std::time::{Duration, SystemTime};

use cluster::command::CommandError;
use cluster::http::{self, HttpError};
use cluster::progress::Progress;
use cluster::tools::{Tools, ToolsError};
use cluster::wait::{Seen, WaitedTooLong, until};
use harness::demo::Operated;
use harness::operator::{self, Installed};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, LogParams, PostParams};
use serde_json::json;

use crate::load::{LoadError, define_mpi_job, jobs, once_served, start_mpi_operator};
use contender::Contender;
use pods_made::PodsMade;

/// Number of starts of each contender. One start before these is not counted: it brings files into
/// memory.
const STARTS: usize = 10;

/// Longest time until one program has started, or is removed.
const PATIENCE: Duration = Duration::from_mins(2);

/// The time in which a V-IPU controller forms a partition, by the simulator's default, in
/// milliseconds.
const FORMING_MS: u64 = 1000;

/// Failure of the measurement.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// A tool could not be built.
    #[error(transparent)]
    Tools(#[from] ToolsError),
    /// mpi-operator could not be started.
    #[error("failed to start what the operator is compared with")]
    Peer(#[from] LoadError),
    /// The release could not be upgraded.
    #[error("failed to let Pods mount the agent's image")]
    Upgrade(#[source] CommandError),
    /// A simulated V-IPU controller refused its timings.
    #[error("failed to set the durations of a V-IPU controller's work")]
    Timings(#[from] HttpError),
    /// The API server refused a request.
    #[error("failed to {action}")]
    Api {
        /// The requested action.
        action: &'static str,
        /// The error.
        #[source]
        source: Box<kube::Error>,
    },
    /// A condition was not met in time.
    #[error(transparent)]
    Waited(#[from] WaitedTooLong),
    /// A program did not print when it started.
    #[error("{pod} should have printed the time, and printed {printed:?}")]
    Printed {
        /// The program's Pod.
        pod: String,
        /// Its output.
        printed: String,
    },
}

/// The measurements of a contender. Each time is in seconds from before the creation request.
#[derive(Clone, Debug)]
pub struct Starts {
    /// The contender.
    pub who: &'static str,
    /// Times until the Pod of the program existed.
    pub pod_made: Vec<f64>,
    /// Times until the program printed its first line.
    pub program: Vec<f64>,
}

impl Starts {
    /// The median until the Pod was made.
    pub fn until_pod(&self) -> f64 {
        median(&self.pod_made)
    }

    /// The median until the first line.
    pub fn until_program(&self) -> f64 {
        median(&self.program)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2);
    let lower = values.get(values.len().saturating_sub(1) / 2);
    match (lower, upper) {
        (Some(lower), Some(upper)) => f64::midpoint(*lower, *upper),
        _ => f64::NAN,
    }
}

/// Two contenders that were measured alternately.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The time in which a V-IPU controller forms a partition, in milliseconds.
    pub forming_ms: u64,
    /// The contender without the operator.
    pub peer: Starts,
    /// The contender with the operator.
    pub ours: Starts,
}

/// Measures all pairs.
pub async fn measure(
    installed: &Installed,
    operated: &Operated,
    progress: &Progress,
) -> Result<Vec<Pair>, StartupError> {
    let client = &operated.client;
    let cluster = &installed.cluster;
    let tools = Tools::fetch_some(&cluster.settings, progress, &["kubernetes", "mpi-operator"])?;
    define_mpi_job(&cluster.settings, &tools, &cluster.kubeconfig())?;
    once_served(&jobs(client, "kubeflow.org", "v2beta1", "MPIJob")).await?;
    let scratch = tempfile::tempdir().map_err(|error| LoadError::Start("mpi-operator", error))?;
    let _peer = start_mpi_operator(&tools, &cluster.kubeconfig(), scratch.path())?;
    let alone = (Contender::BatchJob, Contender::Worker);
    let together = (Contender::MpiJob, Contender::Launcher);
    let mut pairs = Vec::new();
    for (forming_ms, both) in [(0, alone), (0, together), (FORMING_MS, alone)] {
        form_within(operated, forming_ms).await?;
        pairs.push(pair(client, forming_ms, both).await?);
    }
    mount_agents(installed, client).await?;
    form_within(operated, 0).await?;
    let mounted = (Contender::MpiJob, Contender::LauncherOfImage);
    pairs.push(pair(client, 0, mounted).await?);
    Ok(pairs)
}

/// Lets new Pods mount the agent's image, and waits until no controller with the old value is left.
async fn mount_agents(installed: &Installed, client: &Client) -> Result<(), StartupError> {
    let upgraded = installed.release.upgrade(&["agent.delivery=image"]);
    upgraded.map_err(StartupError::Upgrade)?;
    let controllers: Api<Pod> = Api::namespaced(client.clone(), operator::NAMESPACE);
    let selected = ListParams::default().labels("app.kubernetes.io/component=controller");
    until("the former controller to end", PATIENCE, async || {
        let left = controllers.list_metadata(&selected).await?.items.len();
        Ok::<_, kube::Error>(Seen::when(left, |left| *left == 1))
    })
    .await?;
    Ok(())
}

/// Sets how long the simulated controllers take to form a partition. With 0, only the operator's
/// own time counts.
async fn form_within(operated: &Operated, forming_ms: u64) -> Result<(), HttpError> {
    for controller in &operated.controllers {
        let url = format!("http://{}/timings", controller.faults_at);
        let timings = json!({"forming_ms": forming_ms}).to_string();
        http::request("PUT", &url, &timings).await?;
    }
    Ok(())
}

async fn pair(
    client: &Client,
    forming_ms: u64,
    (peer, ours): (Contender, Contender),
) -> Result<Pair, StartupError> {
    let made = PodsMade::follow(client.clone());
    let mut both = [peer, ours].map(|contender| {
        let starts = Starts {
            who: contender.what(),
            pod_made: Vec::new(),
            program: Vec::new(),
        };
        (contender, starts)
    });
    for number in 0..=STARTS {
        for (contender, starts) in &mut both {
            let name = format!("{}-{forming_ms}-{number}", contender.prefix());
            let (pod, program) = start(client, &made, *contender, &name).await?;
            if number > 0 {
                starts.pod_made.push(pod);
                starts.program.push(program);
            }
        }
    }
    let [(_, peer), (_, ours)] = both;
    Ok(Pair {
        forming_ms,
        peer,
        ours,
    })
}

/// Starts one, and deletes it when its program has ended.
async fn start(
    client: &Client,
    made: &PodsMade,
    contender: Contender,
    name: &str,
) -> Result<(f64, f64), StartupError> {
    let api_of = contender.api(client);
    let object = contender.object(name);
    let begun = since_epoch();
    let created = api_of.create(&PostParams::default(), &object).await;
    created.map_err(api("make a job"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), contender::NAMESPACE);
    let prefix = contender.pod_of(name);
    let what = format!("the program of {name} to end");
    let (pod, pod_made) = until(what, PATIENCE, async || {
        let Some((pod, at)) = made.first_with(&prefix) else {
            return Ok(Seen::NotYet("no Pod".to_owned()));
        };
        let phase = pods.get(&pod).await?.status.and_then(|status| status.phase);
        let ended = Seen::when(phase, |phase| phase.as_deref() == Some("Succeeded"));
        Ok::<_, kube::Error>(match ended {
            Seen::Yes(_) => Seen::Yes((pod, at)),
            Seen::NotYet(seen) => Seen::NotYet(seen),
            Seen::Refused(error) => Seen::Refused(error),
        })
    })
    .await?;
    let printed = pods.logs(&pod, &LogParams::default()).await;
    let printed = printed.map_err(api("read what a program printed"))?;
    let at: f64 = match printed.trim().parse() {
        Ok(at) => at,
        Err(_) => return Err(StartupError::Printed { pod, printed }),
    };
    remove(client, &api_of, name).await?;
    Ok((pod_made - begun, at - begun))
}

/// Deletes a job, and waits until all its objects are gone, so that the next one starts on an idle
/// cluster.
async fn remove(
    client: &Client,
    api_of: &Api<DynamicObject>,
    name: &str,
) -> Result<(), StartupError> {
    let deleted = api_of.delete(name, &DeleteParams::foreground()).await;
    deleted.map_err(api("delete a job"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), contender::NAMESPACE);
    let partitions = contender::partitions(client);
    until(format!("{name} to be gone"), PATIENCE, async || {
        let all = ListParams::default();
        let left = (
            api_of.get_opt(name).await?.is_some(),
            pods.list_metadata(&all).await?.items.len(),
            partitions.list_metadata(&all).await?.items.len(),
        );
        Ok::<_, kube::Error>(Seen::when(left, |left| *left == (false, 0, 0)))
    })
    .await?;
    Ok(())
}

/// Seconds since 1970, by the clock that all nodes of the machine share.
fn since_epoch() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn api(action: &'static str) -> impl FnOnce(kube::Error) -> StartupError {
    move |source| StartupError::Api {
        action,
        source: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        for (values, expected) in [
            (vec![3.0], 3.0),
            (vec![4.0, 1.0], 2.5),
            (vec![9.0, 1.0, 2.0], 2.0),
            (vec![4.0, 3.0, 2.0, 100.0], 3.5),
        ] {
            assert!((median(&values) - expected).abs() < f64::EPSILON);
        }
        assert!(median(&[]).is_nan());
    }
}
