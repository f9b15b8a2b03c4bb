//! Pure: converts between the types of the contract and plain values.

use std::collections::BTreeMap;

use ipu_api::guest::admission::{Admission, Operation, Verdict, Violation};
use ipu_api::guest::namespace::{NamespaceContext, Usage};
use ipu_api::guest::placement::{
    ControllerView, Decision, Options, PartitionRequest, PassedOver, PlaceAttempt, PlaceOutcome,
    SizeCount,
};

use super::{DefaultingText, defaulter, placer, types, validator};

pub(super) fn defaulting(answer: defaulter::Answer) -> DefaultingText {
    match answer {
        defaulter::Answer::Defaulted(defaulter::Defaulted { object, warnings }) => {
            DefaultingText::Defaulted { object, warnings }
        }
        defaulter::Answer::Refused(broken) => DefaultingText::Refused(violations(broken)),
    }
}

fn violations(violations: Vec<types::Violation>) -> Vec<Violation> {
    let violations = violations.into_iter();
    violations
        .map(|types::Violation { field, message }| Violation { field, message })
        .collect()
}

pub(super) fn verdict(wire: validator::Verdict) -> Verdict {
    Verdict {
        violations: violations(wire.violations),
        warnings: wire.warnings,
    }
}

pub(super) fn admission(admission: &Admission) -> types::Admission {
    types::Admission {
        operation: match admission.operation {
            Operation::Create => types::Operation::Create,
            Operation::Update => types::Operation::Update,
        },
        user: types::User {
            name: admission.user.name.clone(),
            groups: admission.user.groups.clone(),
        },
        dry_run: admission.dry_run,
        sub_resource: admission.sub_resource.clone(),
        namespace: namespace(&admission.namespace, &admission.context),
    }
}

fn namespace(name: &str, context: &NamespaceContext) -> types::Namespace {
    types::Namespace {
        name: name.to_owned(),
        labels: context.labels.as_ref().map(pairs),
        usage: context.usage.map(usage),
    }
}

fn usage(usage: Usage) -> types::Usage {
    types::Usage {
        ipus: usage.ipus,
        partitions: usage.partitions,
        waiting_ipus: usage.waiting_ipus,
        waiting_partitions: usage.waiting_partitions,
    }
}

fn pairs(pairs: &BTreeMap<String, String>) -> types::Pairs {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

pub(super) fn place_request(request: &PartitionRequest, settings: &str) -> placer::Request {
    let context = &request.context;
    let others = context.others.iter();
    placer::Request {
        owner: placer::Owner {
            api_version: context.owner.api_version.clone(),
            kind: context.owner.kind.clone(),
            name: request.owner.clone(),
            labels: pairs(&context.owner.labels),
            annotations: pairs(&context.owner.annotations),
            priority_class: context.owner.priority_class.clone(),
        },
        namespace: namespace(&request.namespace, &context.namespace),
        others: others
            .map(|(name, other)| types::NamespaceUsage {
                name: name.clone(),
                usage: usage(*other),
            })
            .collect(),
        waiting: counts(&context.waiting),
        slot: request.slot,
        ipus: request.ipus,
        gcds: request.gcds,
        node_selector: pairs(&request.node_selector),
        options: options(context.options),
        progress: placer::Progress {
            dry_run: context.progress.dry_run,
            asked_before: context.progress.asked_before,
            placed_before: context.progress.placed_before,
            waited_seconds: context.progress.waited_seconds,
        },
        settings: settings.to_owned(),
    }
}

fn counts(counts: &[SizeCount]) -> Vec<placer::SizeCount> {
    let counts = counts.iter();
    counts
        .map(|&SizeCount { ipus, count }| placer::SizeCount { ipus, count })
        .collect()
}

fn options(options: Options) -> placer::Options {
    placer::Options {
        gang: options.gang.map(|gang| placer::Gang {
            size: gang.size,
            held: gang.held,
        }),
        replicas: options.replicas,
        reconfigurable: options.reconfigurable,
        relocatable: options.relocatable,
        pinned: options.pinned,
    }
}

pub(super) fn controller(view: &ControllerView) -> placer::Controller {
    placer::Controller {
        name: view.name.clone(),
        label_key: view.label_key.clone(),
        label_value: view.label_value.clone(),
        has_nodes: view.has_nodes,
        unreachable: view.unreachable.clone(),
        unschedulable: view.unschedulable.clone(),
        total_ipus: view.total_ipus,
        used_ipus: view.used_ipus,
        largest_free: view.largest_free,
        free_blocks: counts(&view.blocks()),
        failures: view.failures,
    }
}

pub(super) fn attempt(attempt: &PlaceAttempt) -> placer::Attempt {
    placer::Attempt {
        controller: attempt.controller.clone(),
        outcome: match attempt.outcome {
            PlaceOutcome::Refused => placer::Outcome::Refused,
            PlaceOutcome::Unreachable => placer::Outcome::Unreachable,
        },
        reason: attempt.reason.clone(),
    }
}

pub(super) fn decision(wire: placer::Decision) -> Decision {
    match wire {
        placer::Decision::Try(controller) => Decision::Try(controller),
        placer::Decision::Wait(passed_over) => Decision::Wait(
            passed_over
                .into_iter()
                .map(|placer::PassedOver { controller, reason }| PassedOver { controller, reason })
                .collect(),
        ),
        placer::Decision::Reject(reason) => Decision::Reject(reason),
    }
}
