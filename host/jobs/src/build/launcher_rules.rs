//! Pure: the rules by which the launcher's Pod differs from the workers' template, in one table.
//!
//! Every other field has the value of the template. Tests compare the table with the fields of the
//! Kubernetes API, and with the table for users in `examples/docs/launcher-fields.md`.

use guest_validation::rules::{InitContainer, WorkerVariables, run_by_launcher};
use ipu_runtime::pod_start::is_sidecar;
use k8s_openapi::api::core::v1::{Affinity, Container, EnvVar, PodSpec};

use crate::validate::ValidJob;

/// A field of `T` in which the launcher differs from the template.
pub struct Difference<T> {
    /// Name of the field in the Kubernetes API.
    pub field: &'static str,
    /// Removes what the launcher does not take over. The builder adds the launcher's own value.
    pub remove: fn(&mut T),
    /// Value of the field in the launcher, in the words of the document for users.
    pub instead: &'static str,
}

/// The fields of a Pod's spec that differ.
pub const POD: [Difference<PodSpec>; 19] = [
    Difference {
        field: "affinity",
        remove: keep_node_affinity,
        instead: "only its `nodeAffinity`: other rules would count the launcher as a worker",
    },
    Difference {
        field: "automountServiceAccountToken",
        remove: |pod| pod.automount_service_account_token = None,
        instead: "`true`: the launcher reaches the workers over the API server",
    },
    Difference {
        field: "containers",
        remove: |pod| pod.containers.clear(),
        instead: "one, made from the first container. The others run only in workers",
    },
    Difference {
        field: "hostNetwork",
        remove: |pod| pod.host_network = None,
        instead: "none: the launcher uses the network of Pods",
    },
    Difference {
        field: "hostname",
        remove: |pod| pod.hostname = None,
        instead: "none: the launcher has its own name",
    },
    Difference {
        field: "hostnameOverride",
        remove: |pod| pod.hostname_override = None,
        instead: "none: the launcher has its own name",
    },
    Difference {
        field: "imagePullSecrets",
        remove: |_| {},
        instead: "those of the template, or else of its ServiceAccount, as the workers have",
    },
    Difference {
        field: "initContainers",
        remove: |_| {},
        instead: "the operator's, then those of the template with a volume of the first container, but no sidecars",
    },
    Difference {
        field: "nodeSelector",
        remove: |_| {},
        instead: "that of the template, and the label of the V-IPU controller",
    },
    Difference {
        field: "readinessGates",
        remove: |pod| pod.readiness_gates = None,
        instead: "none: Services select only workers",
    },
    Difference {
        field: "resourceClaims",
        remove: |_| {},
        instead: "those that an init container or `launcher.resources` uses",
    },
    Difference {
        field: "resources",
        remove: |pod| pod.resources = None,
        instead: "none: see `resources` of the container",
    },
    Difference {
        field: "restartPolicy",
        remove: |pod| pod.restart_policy = None,
        instead: "`Never`, as for workers",
    },
    Difference {
        field: "schedulingGates",
        remove: |pod| pod.scheduling_gates = None,
        instead: "none: they hold the workers, and the launcher waits for these",
    },
    Difference {
        field: "schedulingGroup",
        remove: |pod| pod.scheduling_group = None,
        instead: "none: they hold the workers, and the launcher waits for these",
    },
    Difference {
        field: "serviceAccount",
        remove: |pod| pod.service_account = None,
        instead: "see `serviceAccountName`",
    },
    Difference {
        field: "serviceAccountName",
        remove: |pod| pod.service_account_name = None,
        instead: "`launcher.serviceAccountName`, or else `<job>-launcher`",
    },
    Difference {
        field: "topologySpreadConstraints",
        remove: |pod| pod.topology_spread_constraints = None,
        instead: "none: they spread workers",
    },
    Difference {
        field: "volumes",
        remove: |_| {},
        instead: "those of the template, and those of the operator",
    },
];

/// The fields of a Pod's spec that have the value of the template.
pub const POD_SAME: [&str; 23] = [
    "activeDeadlineSeconds",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostPID",
    "hostUsers",
    "nodeName",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
];

/// The fields of the first container that differ.
pub const CONTAINER: [Difference<Container>; 15] = [
    Difference {
        field: "args",
        remove: |container| container.args = None,
        instead: "none: `launcher.command` has the arguments",
    },
    Difference {
        field: "command",
        remove: |container| container.command = None,
        instead: "`launcher.command`, which `ipu-agent hold` starts when all workers are Ready",
    },
    Difference {
        field: "env",
        remove: |_| {},
        instead: "that of the template and `launcher.env`, which takes precedence",
    },
    Difference {
        field: "envFrom",
        remove: |_| {},
        instead: "that of the template, which takes precedence over the operator's variables",
    },
    Difference {
        field: "lifecycle",
        remove: |container| container.lifecycle = None,
        instead: "none: the hooks belong to the program",
    },
    Difference {
        field: "livenessProbe",
        remove: |container| container.liveness_probe = None,
        instead: "none: the probe checks the program",
    },
    Difference {
        field: "name",
        remove: |container| container.name.clear(),
        instead: "`launcher`",
    },
    Difference {
        field: "ports",
        remove: |container| container.ports = None,
        instead: "none: the ports belong to the program",
    },
    Difference {
        field: "readinessProbe",
        remove: |container| container.readiness_probe = None,
        instead: "none: the probe checks the program",
    },
    Difference {
        field: "resizePolicy",
        remove: |container| container.resize_policy = None,
        instead: "none: see `resources`",
    },
    Difference {
        field: "resources",
        remove: |container| container.resources = None,
        instead: "`launcher.resources`, or else the admin's default",
    },
    Difference {
        field: "restartPolicy",
        remove: |container| container.restart_policy = None,
        instead: "none: a run has one launcher",
    },
    Difference {
        field: "restartPolicyRules",
        remove: |container| container.restart_policy_rules = None,
        instead: "none: a run has one launcher",
    },
    Difference {
        field: "startupProbe",
        remove: |container| container.startup_probe = None,
        instead: "none: the probe checks the program",
    },
    Difference {
        field: "volumeMounts",
        remove: |_| {},
        instead: "those of the template, without paths that name the GCD of a worker; `/ipu-operator-agent` and \
                  `/ipu-operator-start`",
    },
];

/// The fields of the first container that have the value of the template.
pub const CONTAINER_SAME: [&str; 10] = [
    "image",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "workingDir",
];

/// Returns the part of a Pod's spec that the launcher takes over.
pub fn pod(template: &PodSpec) -> PodSpec {
    applied(&POD, template.clone())
}

/// Returns the part of the first container that the launcher takes over.
pub fn container(first: &Container) -> Container {
    applied(&CONTAINER, first.clone())
}

/// Removes the capability to pin memory, which the workers of a network of the release have.
pub fn drop_memory_lock(container: &mut Container) {
    let context = container.security_context.as_mut();
    let capabilities = context.and_then(|context| context.capabilities.as_mut());
    if let Some(add) = capabilities.and_then(|capabilities| capabilities.add.as_mut()) {
        add.retain(|capability| capability != "IPC_LOCK");
    }
}

/// Removes the mounts whose path names a variable that only workers have: the kubelet would not
/// start the container.
pub fn drop_mounts_of_workers(container: &mut Container) {
    let variables = container.env.iter().flatten();
    let lacked = WorkerVariables::lacked_by(variables.map(|variable| {
        (
            &*variable.name,
            variable.value.as_deref().unwrap_or_default(),
        )
    }));
    if let Some(mounts) = &mut container.volume_mounts {
        mounts.retain(|mount| {
            let path = mount.sub_path_expr.as_deref();
            !path.is_some_and(|path| lacked.names(path))
        });
    }
}

fn applied<T>(differences: &[Difference<T>], mut value: T) -> T {
    for difference in differences {
        (difference.remove)(&mut value);
    }
    value
}

fn keep_node_affinity(pod: &mut PodSpec) {
    let node_affinity = pod.affinity.take().and_then(|found| found.node_affinity);
    pod.affinity = node_affinity.map(|node_affinity| Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    });
}

/// Removes the init containers that only workers have from the template's spec.
pub fn keep_init_containers(spec: &mut PodSpec, job: &ValidJob) {
    let mut runs = run_init_containers(job).into_iter();
    if let Some(containers) = &mut spec.init_containers {
        containers.retain(|_| runs.next().unwrap_or_default());
    }
}

/// Returns for each init container of the template whether the launcher runs it too. The others do
/// nothing for it, and could make its Pod as large as that of a worker.
pub fn run_init_containers(job: &ValidJob) -> Vec<bool> {
    let template = &job.template;
    let read: Vec<_> = (template.spec.init_containers.iter().flatten())
        .map(|container| InitContainer {
            volumes: volumes(container).collect(),
            is_sidecar: is_sidecar(container),
        })
        .collect();
    let own = job.launcher.iter().flat_map(|launcher| &launcher.env);
    let first = volumes(&template.first).chain(own.filter_map(volume_of_variable));
    run_by_launcher(&first.collect::<Vec<_>>(), &read)
}

/// The names of the volumes that a container mounts, has as devices, or has variables of.
fn volumes(container: &Container) -> impl Iterator<Item = &str> {
    let mounts = container.volume_mounts.iter().flatten();
    let devices = container.volume_devices.iter().flatten();
    let variables = container.env.iter().flatten();
    let names = mounts.map(|mount| mount.name.as_str());
    names
        .chain(devices.map(|device| device.name.as_str()))
        .chain(variables.filter_map(volume_of_variable))
}

/// The volume with the file that a variable comes from.
fn volume_of_variable(variable: &EnvVar) -> Option<&str> {
    let source = variable.value_from.as_ref()?;
    let file = source.file_key_ref.as_ref()?;
    Some(&file.volume_name)
}
