//! Pure: the documents whose commands the tests run, on real nodes or on an API server, in order,
//! and the command blocks of a document.

mod printed;

pub use printed::Printed;

/// A document, and the marks of its blocks that the tests run.
#[derive(Clone, Copy, Debug)]
pub struct Typed {
    /// Its path in the repository, without `.md`.
    pub document: &'static str,
    /// The words after the three backticks.
    pub marks: &'static [&'static str],
}

/// A block of commands in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The words after the three backticks.
    pub mark: &'a str,
    /// The commands.
    pub commands: &'a str,
    /// Their output in the document: the next block, if it is `text`.
    pub printed: Option<Printed<'a>>,
}

/// Blocks that need nodes.
pub const NODES: &str = "sh nodes";

/// Blocks that need nodes, and that must fail.
pub const REFUSED: &str = "sh refused";

/// Blocks that need an API server.
pub const API_SERVER: &str = "sh";

/// Blocks that need an API server with Kueue and the operator.
pub const KUEUE: &str = "sh kueue";

/// Blocks that need a registry and cosign.
pub const REGISTRY: &str = "sh registry";

/// Blocks for authors of policies.
pub const AUTHOR: &str = "sh author";

/// Output that shows another cluster than that of the test.
pub const EXAMPLE: &str = "text example";

/// The quickstart, which starts without an operator.
pub const QUICKSTART: Typed = Typed {
    document: "charts/ipu-operator/docs/quickstart",
    marks: &[NODES, REFUSED],
};

/// Documents for users, in the order in which their commands run.
pub const FOR_USERS: [Typed; 15] = [
    on_nodes("README"),
    on_nodes("charts/ipu-operator/docs/rest"),
    all_of("examples/docs/tutorial"),
    all_of("examples/docs/tutorial-waiting"),
    all_of("examples/docs/fields"),
    all_of("examples/docs/run"),
    all_of("examples/docs/mpi"),
    all_of("examples/docs/interactive"),
    all_of("examples/docs/inference"),
    all_of("examples/docs/life"),
    all_of("examples/docs/life-suspend"),
    all_of("examples/docs/life-update"),
    all_of("examples/docs/status"),
    on_nodes("crds/README"),
    on_nodes("crds/policy-status"),
];

/// The documents of the plugin of kubectl, which need an existing job and Pod.
pub const PLUGIN: [Typed; 5] = [
    on_nodes("examples/docs/kubectl-why"),
    on_nodes("examples/docs/kubectl-top"),
    on_nodes("examples/docs/kubectl-goodput"),
    on_nodes("examples/docs/kubectl-nodes"),
    on_nodes("examples/docs/kubectl-drain"),
];

/// The documents of native Pods, which need an existing Pod.
pub const NATIVE_PODS: [Typed; 2] = [
    on_nodes("examples/docs/native-pods"),
    on_nodes("examples/docs/native-pods-copy"),
];

/// Documents for admins. Tests on an API server run their other blocks.
pub const FOR_ADMINS: [Typed; 19] = [
    on_nodes("charts/ipu-operator/docs/install"),
    on_nodes("charts/ipu-operator/docs/controllers"),
    on_nodes("charts/ipu-operator/docs/vipucontrollers"),
    on_nodes("charts/ipu-operator/docs/cordon"),
    on_nodes("charts/ipu-operator/docs/debugging"),
    on_nodes("charts/ipu-operator/docs/debugging-tools"),
    on_nodes("charts/ipu-operator/docs/support-bundle"),
    on_nodes("charts/ipu-operator/docs/messages-logs"),
    on_nodes("charts/ipu-operator/docs/placement"),
    on_nodes("charts/ipu-operator/docs/placement-choice"),
    on_nodes("charts/ipu-operator/docs/quotas"),
    Typed {
        document: "charts/ipu-operator/docs/runbook",
        marks: &["sh", NODES],
    },
    on_nodes("charts/ipu-operator/docs/runbook-processes"),
    on_nodes("charts/ipu-operator/docs/runbook-api"),
    on_nodes("charts/ipu-operator/docs/runbook-policies"),
    on_nodes("charts/ipu-operator/docs/runbook-certificates"),
    on_nodes("charts/ipu-operator/docs/restore"),
    on_nodes("charts/ipu-operator/docs/migrate"),
    on_nodes("charts/ipu-operator/docs/migrate-adopt"),
];

/// The last document, which uninstalls the operator.
pub const UNINSTALL: Typed = on_nodes("charts/ipu-operator/docs/uninstall");

/// The pages about queues of Kueue, those for admins before that for users. Their manifests are
/// applied too.
pub const QUEUES: [Typed; 5] = [
    with_kueue("charts/ipu-operator/docs/kueue"),
    with_kueue("charts/ipu-operator/docs/kueue-teams"),
    with_kueue("charts/ipu-operator/docs/kueue-partitions"),
    with_kueue("charts/ipu-operator/docs/kueue-jobs"),
    with_kueue("charts/ipu-operator/docs/topology"),
];

/// The pages of the tutorial for authors of policies, whose commands run in one shell.
pub const TUTORIAL_FOR_AUTHORS: [Typed; 4] = [
    for_authors("charts/ipu-operator/docs/policy-tutorial"),
    for_authors("charts/ipu-operator/docs/policy-first-placement"),
    for_authors("charts/ipu-operator/docs/policy-first-guest"),
    for_authors("charts/ipu-operator/docs/policy-first-shadow"),
];

/// The pages of commands for authors that need no cluster. They use the files of one folder.
pub const COMMANDS_FOR_AUTHORS: [Typed; 3] = [
    for_authors("charts/ipu-operator/docs/policy-commands"),
    for_authors("charts/ipu-operator/docs/policy-replay"),
    for_authors("charts/ipu-operator/docs/placement"),
];

/// The page that publishes a guest. Its manifest is applied too.
pub const PUBLISH_GUEST: Typed = Typed {
    document: "charts/ipu-operator/docs/policy-publish",
    marks: &["yaml", REGISTRY],
};

/// The page that verifies a release.
pub const VERIFY_RELEASE: Typed = Typed {
    document: "charts/ipu-operator/docs/release-verify",
    marks: &[REGISTRY],
};

/// The example policies that are written in Rust.
pub const EXAMPLES_FOR_AUTHORS: [Typed; 2] = [
    for_authors("examples/policies/best-fit/README"),
    for_authors("examples/policies/namespace-quota/README"),
];

/// Documents for admins that need an API server, beginning with the installation.
pub const ADMINS_ON_API_SERVER: [Typed; 24] = [
    on_api_server("charts/ipu-operator/docs/install"),
    on_api_server("charts/ipu-operator/docs/gitops"),
    on_api_server("charts/ipu-operator/docs/controllers-tls"),
    on_api_server("charts/ipu-operator/docs/security-restricted"),
    on_api_server("charts/ipu-operator/docs/security-roles"),
    on_api_server("charts/ipu-operator/docs/security-rights"),
    on_api_server("charts/ipu-operator/docs/security-launchers"),
    on_api_server("charts/ipu-operator/docs/nodes"),
    on_api_server("charts/ipu-operator/docs/policies"),
    on_api_server("charts/ipu-operator/docs/policy-registry"),
    on_api_server("charts/ipu-operator/docs/debugging"),
    on_api_server("charts/ipu-operator/docs/debugging-tools"),
    on_api_server("charts/ipu-operator/docs/messages"),
    on_api_server("charts/ipu-operator/docs/runbook"),
    on_api_server("charts/ipu-operator/docs/runbook-processes"),
    on_api_server("charts/ipu-operator/docs/runbook-api"),
    on_api_server("charts/ipu-operator/docs/runbook-controllers"),
    on_api_server("charts/ipu-operator/docs/runbook-jobs"),
    on_api_server("charts/ipu-operator/docs/runbook-admission"),
    on_api_server("charts/ipu-operator/docs/runbook-policies"),
    on_api_server("charts/ipu-operator/docs/runbook-certificates"),
    on_api_server("charts/ipu-operator/docs/upgrade"),
    on_api_server("charts/ipu-operator/docs/rollback"),
    on_api_server("charts/ipu-operator/docs/upgrade-crds"),
];

/// The documents that uninstall the operator from an API server. What is left for the second one
/// are other objects.
pub const UNINSTALL_ON_API_SERVER: [Typed; 2] = [
    on_api_server("charts/ipu-operator/docs/uninstall-by-hand"),
    on_api_server("charts/ipu-operator/docs/uninstall"),
];

/// The page about an installation without Helm, whose commands run beside the file of the objects.
pub const WITHOUT_HELM: Typed = on_api_server("charts/ipu-operator/docs/install-manifests");

/// The document about releases for some namespaces, which needs a separate API server.
pub const SCOPE: Typed = on_api_server("charts/ipu-operator/docs/scope");

/// The documents about two tenants, in their order, which need an API server with the operator.
pub const TENANTS: [Typed; 2] = [
    on_api_server("charts/ipu-operator/docs/tenants"),
    on_api_server("charts/ipu-operator/docs/tenants-rules"),
];

/// Documents for users, on an API server without an operator.
pub const USERS_ON_API_SERVER: [Typed; 16] = [
    on_api_server("examples/docs/tutorial"),
    on_api_server("examples/docs/tutorial-waiting"),
    on_api_server("examples/docs/run"),
    on_api_server("examples/docs/train"),
    on_api_server("examples/docs/train-poprun"),
    on_api_server("examples/docs/train-notebook"),
    on_api_server("examples/docs/mpi"),
    on_api_server("examples/docs/interactive"),
    on_api_server("examples/docs/inference"),
    on_api_server("examples/docs/volumes"),
    on_api_server("examples/docs/life"),
    on_api_server("examples/docs/life-suspend"),
    on_api_server("examples/docs/life-update"),
    on_api_server("examples/docs/status"),
    on_api_server("examples/docs/fields"),
    on_api_server("examples/docs/kubectl-rights"),
];

const fn with_kueue(document: &'static str) -> Typed {
    let marks = &["yaml", KUEUE];
    Typed { document, marks }
}

const fn on_api_server(document: &'static str) -> Typed {
    let marks = &[API_SERVER];
    Typed { document, marks }
}

const fn on_nodes(document: &'static str) -> Typed {
    let marks = &[NODES];
    Typed { document, marks }
}

const fn for_authors(document: &'static str) -> Typed {
    let marks = &[AUTHOR];
    Typed { document, marks }
}

const fn all_of(document: &'static str) -> Typed {
    let marks = &["sh", NODES, REFUSED];
    Typed { document, marks }
}

/// Every document whose commands run on nodes.
pub fn typed() -> Vec<Typed> {
    let mut all = vec![QUICKSTART];
    all.extend(FOR_USERS);
    all.extend(PLUGIN);
    all.extend(NATIVE_PODS);
    all.extend(FOR_ADMINS);
    all.push(UNINSTALL);
    all
}

/// Every document whose commands run on an API server.
pub fn typed_on_api_server() -> Vec<Typed> {
    let mut all = vec![SCOPE, WITHOUT_HELM];
    all.extend(UNINSTALL_ON_API_SERVER);
    all.extend(TENANTS);
    all.extend(ADMINS_ON_API_SERVER);
    all.extend(USERS_ON_API_SERVER);
    all
}

/// Every document whose commands run for authors.
pub fn typed_for_authors() -> Vec<Typed> {
    let mut all = TUTORIAL_FOR_AUTHORS.to_vec();
    all.extend(COMMANDS_FOR_AUTHORS);
    all.extend(EXAMPLES_FOR_AUTHORS);
    all
}

impl Typed {
    /// Returns the document's blocks that the tests run, in order.
    pub fn blocks<'a>(&self, text: &'a str) -> Vec<Block<'a>> {
        let parts = text.split("\n```").skip(1).step_by(2);
        let parts: Vec<_> = parts.filter_map(|part| part.split_once('\n')).collect();
        let printed = |index: usize| match parts.get(index + 1) {
            Some(&(mark @ ("text" | EXAMPLE), text)) => Some(Printed {
                text,
                is_example: mark == EXAMPLE,
            }),
            _ => None,
        };
        let blocks = parts
            .iter()
            .enumerate()
            .map(|(index, (mark, commands))| Block {
                mark,
                commands,
                printed: printed(index),
            });
        blocks
            .filter(|block| self.marks.contains(&block.mark))
            .collect()
    }
}
