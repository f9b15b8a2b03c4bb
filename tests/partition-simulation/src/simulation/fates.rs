//! What users do to owners: they create, scale and delete them; and how owners end.

use super::api_server::{SLOTS, key_of};
use super::coverage::CoveragePoint;
use super::event_queue::Fate;
use super::owners::{Job, Stage};
use super::world::World;

impl World {
    /// A user changes an owner.
    pub(super) fn fate(&mut self, job: usize, fate: Fate) {
        let is_foreign = self.jobs[job].is_foreign;
        if fate == Fate::Come {
            self.jobs[job].stage = Stage::There;
            self.trace.say(self.event_queue.now(), || {
                format!("job {:?} comes", self.jobs[job])
            });
        }
        if !self.jobs[job].is_there() || self.is_over && fate != Fate::Delete {
            return;
        }
        match fate {
            Fate::Come if is_foreign => {}
            Fate::Come => self.submit_job(job),
            Fate::Scale(slots) => {
                let before = std::mem::replace(&mut self.jobs[job].slots, slots);
                if slots != before {
                    self.cover(if slots > before {
                        CoveragePoint::ScaledUp
                    } else {
                        CoveragePoint::ScaledDown
                    });
                }
                self.scale_job(job);
            }
            Fate::Delete => {
                self.jobs[job].stage = Stage::Ending;
                self.delete_job(job);
            }
            Fate::Vanish => self.vanish(job),
            Fate::AskReset => {
                let slot = self.rng.below(SLOTS);
                self.ask_reset(key_of(job, slot));
            }
        }
        self.schedule_tick(job, 0);
    }

    /// The owner's object is gone.
    pub(super) fn job_deleted(&mut self, job: usize) {
        self.jobs[job].stage = Stage::Away;
        self.coverage.lives += 1;
        self.trace.say(self.event_queue.now(), || {
            format!("job {} is gone", self.jobs[job].name)
        });
        if self.jobs[job].is_reborn && !self.is_over {
            self.cover(CoveragePoint::Reborn);
            let before = &self.jobs[job];
            let reborn = Job {
                is_foreign: before.is_foreign,
                gang: before.gang,
                workers: before.workers,
                ..Job::new(
                    before.name.clone(),
                    String::new(),
                    before.ipus,
                    before.slots,
                )
            };
            self.add_job(reborn);
        }
    }

    /// The job is gone at once. Its Pods end some time later.
    fn vanish(&mut self, job: usize) {
        self.cover(CoveragePoint::OwnerVanished);
        for slot in 0..SLOTS {
            for pod in self.pods_of(key_of(job, slot)) {
                self.cover(CoveragePoint::PodEndsLate);
                self.end_pod(pod, 120_000);
            }
        }
        if !self.jobs[job].is_foreign {
            self.job_vanishes(job);
        }
        self.job_deleted(job);
    }
}
