//! Pure: collects the advice for everything that a page shows.

use crate::advice::{of_reason, of_waiting};
use crate::page::Page;

/// Reason of a job or Pod that waits because of V-IPU controllers.
pub(super) const WAITING: &str = "WaitingForPartition";

/// Sentences of advice, each once.
#[derive(Debug, Default)]
pub(super) struct Advice(Vec<String>);

impl Advice {
    /// Adds a sentence.
    pub(super) fn add(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.0.contains(&sentence) {
            self.0.push(sentence);
        }
    }

    /// Adds the advice for everything on the page, in its order.
    pub(super) fn add_all(&mut self, page: &Page) {
        for condition in &page.conditions {
            self.add_condition(page, &condition.reason, &condition.message);
        }
        for one in &page.partitions {
            for condition in &one.conditions {
                self.add_reason(&condition.reason);
            }
        }
        for pod in page.pods.iter().flat_map(|pods| &pods.others) {
            if let Some(cause) = &pod.cause {
                self.add_reason(&cause.reason);
            }
        }
    }

    /// The sentences, or else this one.
    pub(super) fn or(mut self, otherwise: &str) -> Vec<String> {
        if self.0.is_empty() {
            self.add(otherwise);
        }
        self.0
    }

    fn add_condition(&mut self, page: &Page, word: &str, message: &str) {
        match word {
            // Kueue resets `spec.suspend`.
            "JobSuspended" if page.kueue.is_some() => {}
            // The reasons of the Pods themselves are more specific.
            "PodsWaiting" if page.pods.iter().any(|pods| !pods.others.is_empty()) => {}
            WAITING => self.add_waiting(page, message),
            _ => self.add_reason(word),
        }
    }

    /// Adds the advice for the reasons of the V-IPU controllers: from the partitions, or from the
    /// message if the user may not read them.
    fn add_waiting(&mut self, page: &Page, message: &str) {
        let reasons = page.partitions.iter().flat_map(|one| &one.waiting);
        let mut texts: Vec<&str> = reasons.map(|one| one.reason.as_str()).collect();
        if texts.is_empty() {
            texts.push(message);
        }
        let before = self.0.len();
        for sentence in texts.into_iter().flat_map(of_waiting) {
            self.add(sentence);
        }
        if self.0.len() == before {
            self.add(
                "wait: the reason of each V-IPU controller is above, in the words of the placement guest; an admin can \
                 explain them",
            );
        }
        self.add_fit(page);
    }

    /// Adds the smaller request that would be served, if there is one.
    fn add_fit(&mut self, page: &Page) {
        let Some(fit) = page
            .capacity
            .as_ref()
            .and_then(|one| one.largest_fit.as_ref())
        else {
            return;
        };
        let waiting = page.partitions.iter().filter(|one| one.queue.is_some());
        if let Some(ipus) = waiting.map(|one| one.ipus).max()
            && ipus > fit.ipus
        {
            self.add(format!(
                "what would fit now: {} IPUs instead of {ipus}, on {}, unless a policy or a quota allows less",
                fit.ipus,
                fit.controllers.join(", ")
            ));
        }
    }

    fn add_reason(&mut self, word: &str) {
        if let Some(advice) = of_reason(word) {
            self.add(format!("{word}: {advice}"));
        }
    }
}
