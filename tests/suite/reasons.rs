//! Checks that the documents name all reasons of conditions and events, on which users build
//! alerts, and all warnings of the logs.

use std::collections::BTreeSet;
use std::fs;

use crate::sources::{host_packages, literals, pages_that_begin_with, repository, shipped_files};

/// The pages of messages, which say what to do.
const MESSAGES: &str = "messages";

/// Words that are no reason of the operator: kinds, actions of events, types and states of
/// conditions, and reasons of Kubernetes and Kueue.
const NO_REASONS: &str = "AdmissionCheck AdmissionCheckStatus AdmissionReview Always Busy Check ContainerCreating \
    Create CreateContainerConfigError CreateContainerError Delete DisruptionTarget Drained \
    Duplicate End ErrImageNeverPull Error Exists Failure False FieldValueInvalid Fields IPUJob \
    In InternalError Invalid InvalidImageName InvalidNodeInfo JSONPatch Listed Missing \
    NetworkAttachmentDefinition Never NoExecute NoSchedule Node NodeAffinity NodeFailures \
    NodePorts NodeShutdown NotReady ObserveJob ObserveLauncherPolicy ObserveNode \
    ObserveServiceAccount OutOf PartialEq Partition Place Pod PodInitializing PodOSNotSupported \
    PodOSSelectorNodeLabelDoesNotMatch PodReadyToStartContainers PodScheduled PodTemplate \
    Preempted Preempting Queue Reconcile Release Reset ResourceFlavor Restart Restarting Resume \
    RunContainerError SMTAlignmentError Scale Shutdown Stalled Start StateUnknown StatefulSet \
    Stop Suspend TemplateCurrent Terminated TooManyRequests TopologyAffinityError True \
    UnexpectedAdmissionError Unknown Unlisted Unschedulable VIPUController Workload \
    WorkloadPriorityClass WorkloadStatus Write";

fn document(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

#[test]
fn every_reason_is_documented() {
    let packages = [
        "admission",
        "jobs",
        "kueue",
        "node",
        "partitions",
        "pods",
        "policies",
    ];
    let packages = packages
        .into_iter()
        .flat_map(|name| shipped_files(&format!("host/{name}")));
    let mut of_api = shipped_files("host/api");
    of_api.retain(|(path, _)| {
        path.ends_with("partition_conditions.rs") || path.ends_with("queueing.rs")
    });
    let files = packages.chain(of_api).filter(|(_, text)| {
        let mut words = ["reason", "condition", "events::"].iter();
        words.any(|word| text.contains(word))
    });
    let is_reason = |word: &String| {
        let is_word = word.len() > 1 && word.chars().all(char::is_alphanumeric);
        is_word && word.starts_with(char::is_uppercase) && word.contains(char::is_lowercase)
    };
    let words = files.flat_map(|(_, text)| literals(&text));
    let mut reasons: BTreeSet<String> = words.filter(is_reason).collect();
    reasons.retain(|word| NO_REASONS.split_whitespace().all(|other| other != word));
    assert!(
        reasons.len() > 70,
        "only these reasons were found: {reasons:?}"
    );
    let stable_words = [
        "crds/conditions.md",
        "crds/conditions-partitions.md",
        "crds/events.md",
    ];
    let stable_words = stable_words.map(document);
    for (pages, text) in [
        ("the lists of stable words", stable_words.concat()),
        ("the pages of messages", pages_that_begin_with(MESSAGES)),
    ] {
        let is_missing = |word: &&String| !text.contains(&format!("`{word}`"));
        let missing: Vec<_> = reasons.iter().filter(is_missing).collect();
        assert!(
            missing.is_empty(),
            "{pages} do not name {missing:?}, nor are they in NO_REASONS"
        );
    }
}

#[test]
fn every_warning_of_the_logs_is_documented() {
    let document = pages_that_begin_with(MESSAGES);
    let documented: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let files = host_packages()
        .into_iter()
        .flat_map(|package| shipped_files(&package));
    let logged: BTreeSet<String> = files.flat_map(|(_, text)| warnings(&text)).collect();
    assert!(
        logged.len() > 30,
        "only these warnings were found: {logged:?}"
    );
    let is_missing = |line: &&String| {
        let mut documented = documented.iter().filter(|said| said.len() > 9);
        !documented.any(|said| line.starts_with(said))
    };
    let missing: Vec<_> = logged.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "the pages of messages do not name {missing:?}"
    );
}

/// The sentences of `warn!` and `error!` before the tests of a file: the last literal of each. A
/// literal that consists only of a cause has the sentence of the cause.
fn warnings(text: &str) -> Vec<String> {
    let shipped = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let calls = ["warn!(", "error!("]
        .into_iter()
        .flat_map(|call| shipped.split(call).skip(1));
    let sentence = |call: &str| {
        let literal = arguments(call).rsplit('"').nth(1)?.replace("\\\n", " ");
        let words = literal.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_cause = ["{}", "{complaint}", "{line}", "{}; trying again"].contains(&&*words);
        (!is_cause).then_some(words)
    };
    calls.filter_map(sentence).collect()
}

/// The text before the parenthesis that ends a call.
fn arguments(call: &str) -> &str {
    let mut depth = 1;
    let end = call.find(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &call[..end.unwrap_or(call.len())]
}
