//! Replays the jobs of a real cluster with settings of the queue. The built-in serial walk decides.

use std::fs;
use std::path::PathBuf;

use ipu_evaluation::figures::{Figures, Input, figures};
use ipu_evaluation::report::{Evaluated, Report};
use ipu_evaluation::timeline::Timeline;
use ipu_evaluation::{
    Controller, ControllersError, Decided, Job, JobsError, Settings, controllers, jobs, plot,
    replay,
};
use ipu_guest_host::policy_request::PlacementRequest;
use ipu_guest_host::serial_walk;
use release::guests::checkout;

use super::{JOBS, LARGE};

/// Failure of a replay.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file of jobs cannot be read.
    #[error("failed to read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A line of the file is not valid.
    #[error("failed to read the jobs")]
    Jobs(#[from] JobsError),
    /// The list of controllers is not valid YAML.
    #[error("failed to read the list of controllers")]
    Yaml(#[source] serde_saphyr::Error),
    /// A controller is not valid.
    #[error("failed to read the list of controllers")]
    Controllers(#[from] ControllersError),
}

/// The jobs of a real cluster at an offered load, and the controllers that serve them.
#[derive(Clone, Debug)]
pub struct RealJobs {
    jobs: Vec<Job>,
    controllers: Vec<Controller>,
}

/// One replay of all jobs.
#[derive(Clone, Debug)]
pub struct Replayed {
    figures: Figures,
    timeline: Timeline,
}

impl RealJobs {
    /// Reads the jobs, and moves their arrivals, so that they need this percentage of the IPUs of the controllers.
    pub fn at_load(controllers: &str, percent: u32) -> Result<Self, SettingsError> {
        let controllers = serde_saphyr::from_str(controllers).map_err(SettingsError::Yaml)?;
        let controllers = controllers::parse(controllers)?;
        let path = checkout().join(JOBS);
        let text =
            fs::read_to_string(&path).map_err(|source| SettingsError::File { path, source })?;
        let mut jobs = jobs::parse(&text)?;
        jobs::at_load(&mut jobs, &controllers, percent);
        Ok(Self { jobs, controllers })
    }

    /// Replays the jobs with these settings.
    pub fn replayed(&self, settings: &Settings) -> Replayed {
        let replay = replay(&self.jobs, &self.controllers, settings, walk);
        Replayed {
            figures: figures(self.input(), &replay),
            timeline: replay.timeline,
        }
    }

    /// Returns the table of replays in Markdown. `compared` names the setting in which the named
    /// replays differ.
    pub fn markdown(&self, compared: &str, replays: &[(&str, &Replayed)]) -> String {
        let rows = replays.iter().map(|(name, replayed)| Evaluated {
            policy: (*name).to_owned(),
            digest: None,
            figures: replayed.figures.clone(),
        });
        let rows: Vec<_> = rows.collect();
        Report::new(self.input(), &rows).markdown(compared)
    }

    /// Draws named replays.
    pub fn svg(&self, replays: &[(&str, &Replayed)]) -> String {
        let replays = replays.iter();
        let named: Vec<_> = replays
            .map(|(name, replayed)| (*name, &replayed.timeline))
            .collect();
        plot::svg(&named, controllers::capacity(&self.controllers))
    }

    fn input(&self) -> Input<'_> {
        Input {
            jobs: &self.jobs,
            controllers: &self.controllers,
            large: LARGE,
        }
    }
}

/// Decides as the built-in serial walk does.
fn walk(_: u64, placement: PlacementRequest) -> Decided {
    let PlacementRequest {
        request,
        controllers,
        attempts,
    } = placement;
    Decided {
        decision: serial_walk(&request, &controllers, &attempts),
        overruled: None,
    }
}
