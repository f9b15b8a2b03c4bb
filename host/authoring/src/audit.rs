//! `policy audit`: lists the IPUJobs and native Pods of a cluster, with the rights of its user, and
//! prints those that a validation guest would refuse.

mod cluster;
mod output;
mod policy;
mod policy_report;
mod report;
mod scope;
mod served;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ipu_admission::audit::{Outcome, Subject};
use ipu_api::guest::admission::User;
use ipu_api::ipupolicy::Hook;
use ipu_guest_host::policy_request::{Answer, PolicyRequest};
use ipu_guest_host::{Budget, CallResult, GuestError, OfflineGuest};
use ipu_policies::match_evaluator::{MatchEvaluator, Purpose};
use ipu_policies::match_input::ReviewedResource;
use ipu_policies::match_samples::{IPUJOB, POD};
use ipu_policies::matcher::{MatchError, Matcher};
use ipu_text::explain;

use self::cluster::Cluster;
use self::output::Format;
use self::policy::{AuditedPolicy, ModuleError, Target};
use self::report::Report;
use self::scope::Scope;
use self::served::Served;
use super::document::document;
use super::host_verdict::held;
use super::settings::settings;
use super::{PolicyCliError, no_answer, no_policy, unusable};

#[derive(Args, Clone, Debug)]
pub(super) struct AuditArgs {
    /// The component of a validation guest, such as my-rule.wasm; the manifest of an IPUPolicy
    /// (.yaml, .yml or .json); or ipupolicy/NAME, an IPUPolicy of the cluster.
    subject: Target,
    /// The component of the IPUPolicy, if its source is a ConfigMap or a registry.
    #[arg(long)]
    module: Option<PathBuf>,
    /// Folder of the components in the operator's image.
    #[arg(long, env = "IPU_OPERATOR_GUESTS_DIR", default_value = "/guests")]
    guests_dir: PathBuf,
    /// Settings, as a JSON object; by default those of the IPUPolicy.
    #[arg(long, value_parser = settings)]
    settings: Option<String>,
    /// Audit this namespace alone; may be given again. By default all namespaces that the operator
    /// serves.
    #[arg(long, short)]
    namespace: Vec<String>,
    /// Context of the kubeconfig; by default the current one.
    #[arg(long)]
    context: Option<String>,
    /// Name of the user of the requests that the guest gets. The cluster does not store who created
    /// an object.
    #[arg(long, default_value = "")]
    user: String,
    /// Group of that user; may be given again.
    #[arg(long)]
    group: Vec<String>,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// Failure of an audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Objects would be refused.
    #[error("{refused} of {objects} objects would be refused")]
    Refused {
        /// Number of these objects.
        refused: usize,
        /// Number of all objects.
        objects: usize,
    },
    /// Not every object was judged.
    #[error(
        "the audit is incomplete: the guest gave no answer about {failed} objects, and {unlisted} lists cannot be read; \
         the output names them"
    )]
    Incomplete {
        /// Objects without an answer.
        failed: usize,
        /// Lists that the user may not read.
        unlisted: usize,
    },
    /// The guest is of another hook.
    #[error(
        "{policy} is at the hook {hook}, and `policy audit` calls guests at the hook Validation alone; try it on \
         single requests with `ipu-operator policy run`"
    )]
    OtherHook {
        /// Name of the policy.
        policy: String,
        /// Its hook.
        hook: &'static str,
    },
    /// The component of the policy is not at hand.
    #[error(transparent)]
    Module(Box<ModuleError>),
    /// `spec.match` is invalid.
    #[error("the operator would refuse the IPUPolicy {0}")]
    Match(String, #[source] Box<MatchError>),
    /// There is no kubeconfig.
    #[error(
        "failed to find the API server; set KUBECONFIG, or name a context of it with --context"
    )]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The asynchronous runtime cannot start.
    #[error("failed to start the asynchronous runtime")]
    Runtime(#[source] io::Error),
    /// The namespace does not exist.
    #[error("there is no namespace {0}; correct --namespace")]
    NoNamespace(String),
    /// The operator does not serve the namespace.
    #[error(
        "the operator calls the guest in the namespaces {served} alone (watchNamespaces), and {namespace} is none of \
         them; correct --namespace"
    )]
    NotServed {
        /// The namespace.
        namespace: String,
        /// The served namespaces.
        served: String,
    },
    /// No release applies the policy.
    #[error(
        "the label graphcore.ai/operator-namespace of the IPUPolicy {policy} is {namespace:?}, and no release of the \
         operator is in that namespace; correct the label"
    )]
    NoRelease {
        /// Name of the policy.
        policy: String,
        /// The value of the label.
        namespace: String,
    },
    /// The API server does not answer a read.
    #[error("failed to read {what}")]
    Read {
        /// The objects.
        what: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

pub(super) fn run(args: &AuditArgs, out: &mut impl io::Write) -> Result<(), PolicyCliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(AuditError::Runtime)?;
    let report = runtime.block_on(audited(args))?;
    out.write_all(output::rendered(&report, args.output).as_bytes())?;
    Ok(report.conclusion()?)
}

impl From<ModuleError> for AuditError {
    fn from(error: ModuleError) -> Self {
        Self::Module(Box::new(error))
    }
}

/// Judges every object of the cluster.
async fn audited(args: &AuditArgs) -> Result<Report, PolicyCliError> {
    let mut cluster = None;
    let mut policy = match &args.subject {
        Target::Module(file) => AuditedPolicy::of_module(file),
        Target::Manifest(file) => AuditedPolicy::of_manifest(document(file)?)
            .map_err(unusable(file, "is no IPUPolicy"))?,
        Target::Policy(name) => {
            let connected = cluster.insert(Cluster::connect(args.context.as_deref()).await?);
            let manifest = connected.policy(name).await?;
            AuditedPolicy::of_manifest(manifest)
                .map_err(unusable(name.as_ref(), "is no IPUPolicy that can be read"))?
        }
    };
    if let Some(settings) = &args.settings {
        policy.settings.clone_from(settings);
    }
    let judge = Judge::open(args, &policy)?;
    let cluster = match cluster {
        Some(cluster) => cluster,
        None => Cluster::connect(args.context.as_deref()).await?,
    };
    let releases = cluster.releases().await?;
    let served = Served::of(releases.as_deref(), &policy.name, policy.release.as_deref())?;
    let scope = Scope::read(&cluster, &served, &args.namespace).await?;
    let digest = judge.guest.digest().to_string();
    let report = Report::of(policy.name, digest, scope.audited(served));
    let pods = served::reviews_pods(releases.as_deref()).then_some(POD);
    let resources = [IPUJOB].into_iter().chain(pods);
    judge.all(&cluster, &scope, resources, report).await
}

/// Returns the answer to a request, of a verdict what holds.
fn answer(
    request: &PolicyRequest,
    ask: impl Fn(&PolicyRequest) -> Result<Answer, GuestError>,
) -> Result<Answer, GuestError> {
    match (ask(request)?, request) {
        (Answer::Verdict(verdict), PolicyRequest::Validation(review)) => {
            held(verdict, review, ask).map(Answer::Verdict)
        }
        (other, _) => Ok(other),
    }
}

/// A guest, and the requests that it is called for.
struct Judge {
    guest: OfflineGuest,
    file: PathBuf,
    settings: String,
    matcher: Arc<Matcher>,
    evaluator: MatchEvaluator,
    user: User,
}

impl Judge {
    /// Opens the guest as the operator does, and checks that it is the one of the policy.
    fn open(args: &AuditArgs, policy: &AuditedPolicy) -> Result<Self, PolicyCliError> {
        let file = policy
            .module_file(args.module.as_deref(), &args.guests_dir)
            .map_err(AuditError::from)?;
        let other_hook = |hook: Hook| AuditError::OtherHook {
            policy: policy.name.clone(),
            hook: hook.name(),
        };
        if let Some(hook) = policy.hook.filter(|hook| *hook != Hook::Validation) {
            return Err(other_hook(hook).into());
        }
        let guest = OfflineGuest::open(&file, policy.hook, policy.limits, Budget::Time)
            .map_err(no_policy(&file))?;
        if guest.hook() != Hook::Validation {
            return Err(other_hook(guest.hook()).into());
        }
        policy
            .check_digest(guest.digest(), &file)
            .map_err(AuditError::from)?;
        let matcher = Matcher::new(Hook::Validation, policy.selected.as_ref())
            .map_err(|error| AuditError::Match(policy.name.clone(), Box::new(error)))?;
        Ok(Self {
            guest,
            file,
            settings: policy.settings.clone(),
            matcher: Arc::new(matcher),
            evaluator: MatchEvaluator::default(),
            user: User {
                name: args.user.clone(),
                groups: args.group.clone(),
            },
        })
    }

    /// Lists and judges the objects of these namespaces and resources, for a report.
    async fn all(
        &self,
        cluster: &Cluster,
        scope: &Scope,
        resources: impl Iterator<Item = ReviewedResource>,
        mut report: Report,
    ) -> Result<Report, PolicyCliError> {
        let call = self.guest.caller(&self.settings);
        let call = call.map_err(no_answer(&self.file))?;
        for resource in resources {
            let mut lists = scope.lists(cluster, resource);
            while let Some(page) = lists.next_page().await? {
                for object in page {
                    let (name, subject) = Subject::of(object, resource, &self.user, |namespace| {
                        scope.labels.get(namespace).cloned()
                    });
                    let outcome = self.outcome(&call, subject).await;
                    report.add(name, outcome);
                }
            }
            report.unlisted.extend(lists.unlisted);
        }
        Ok(report)
    }

    /// Judges one object. `None`: the operator calls no guest about it.
    async fn outcome(
        &self,
        call: &impl Fn(&PolicyRequest) -> CallResult,
        subject: Option<Subject>,
    ) -> Outcome {
        let Some(subject) = subject else {
            return Outcome::NotMatched;
        };
        let matched = self
            .evaluator
            .matches(&self.matcher, &subject.match_subject(), Purpose::Decision)
            .await;
        match matched {
            Ok(true) => {
                let ask = |request: &PolicyRequest| call(request).answer;
                subject.outcome(answer(&subject.request, ask))
            }
            Ok(false) if self.is_only_at_updates(&subject).await => Outcome::OnlyAtUpdates,
            Ok(false) => Outcome::NotMatched,
            Err(error) => Outcome::Failed(explain(&error)),
        }
    }

    /// Whether the operator calls the guest about updates of an object, for whose creation it would
    /// not. A condition that fails for such an update may match another one.
    async fn is_only_at_updates(&self, subject: &Subject) -> bool {
        if !self.matcher.has_conditions() {
            return false;
        }
        for update in subject.updates() {
            let subject = update.match_subject();
            let matching = self
                .evaluator
                .matches(&self.matcher, &subject, Purpose::Decision);
            if !matches!(matching.await, Ok(false)) {
                return true;
            }
        }
        false
    }
}
