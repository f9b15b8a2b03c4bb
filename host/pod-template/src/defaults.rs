//! Pure: the defaults that Kubernetes adds to a Pod template, and texts that mean the same empty
//! and missing.
//!
//! They are those of `pkg/apis/core/v1/defaults.go` that depend on no other field and on no setting
//! of the cluster. A default never changes within a version of an API.

use serde_json::Value;

use self::FieldDefault::{Bool, Number, Text};

/// The default of a field.
#[derive(Clone, Copy)]
pub(super) enum FieldDefault {
    /// A number.
    Number(i64),
    /// A text.
    Text(&'static str),
    /// A boolean.
    Bool(bool),
}

impl FieldDefault {
    /// Whether a value is this default.
    pub(super) fn is(self, value: &Value) -> bool {
        match self {
            Self::Number(number) => value.as_i64() == Some(number),
            Self::Text(text) => value.as_str() == Some(text),
            Self::Bool(flag) => value.as_bool() == Some(flag),
        }
    }
}

/// Path of a field in the spec of a Pod, and its default.
pub(super) const DEFAULTS: [(&str, FieldDefault); 38] = [
    ("dnsPolicy", Text("ClusterFirst")),
    ("enableServiceLinks", Bool(true)),
    ("hostIPC|hostNetwork|hostPID", Bool(false)),
    (
        "hostname|nodeName|priorityClassName|schedulerName|serviceAccount|serviceAccountName|subdomain",
        Text(""),
    ),
    ("restartPolicy", Text("Always")),
    ("schedulerName", Text("default-scheduler")),
    ("terminationGracePeriodSeconds", Number(30)),
    ("tolerations.*.effect|key|value", Text("")),
    ("tolerations.*.operator", Text("")),
    ("tolerations.*.operator", Text("Equal")),
    (
        "containers|initContainers.*.stdin|stdinOnce|tty",
        Bool(false),
    ),
    (
        "containers|initContainers.*.imagePullPolicy|terminationMessagePath|terminationMessagePolicy|workingDir",
        Text(""),
    ),
    (
        "containers|initContainers.*.terminationMessagePath",
        Text("/dev/termination-log"),
    ),
    (
        "containers|initContainers.*.terminationMessagePolicy",
        Text("File"),
    ),
    ("containers|initContainers.*.env.*.value", Text("")),
    (
        "containers|initContainers.*.env.*.valueFrom.fieldRef.apiVersion",
        Text("v1"),
    ),
    (
        "containers|initContainers.*.env.*.valueFrom.resourceFieldRef.divisor",
        Text("0"),
    ),
    ("containers|initContainers.*.ports.*.hostIP|name", Text("")),
    ("containers|initContainers.*.ports.*.protocol", Text("TCP")),
    (
        "containers|initContainers.*.securityContext.procMount",
        Text("Default"),
    ),
    (
        "containers|initContainers.*.volumeMounts.*.readOnly",
        Bool(false),
    ),
    (
        "containers|initContainers.*.volumeMounts.*.subPath|subPathExpr",
        Text(""),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.failureThreshold",
        Number(3),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.initialDelaySeconds",
        Number(0),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.periodSeconds",
        Number(10),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.successThreshold",
        Number(1),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.timeoutSeconds",
        Number(1),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.grpc.service",
        Text(""),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.httpGet.path",
        Text("/"),
    ),
    (
        "containers|initContainers.*.livenessProbe|readinessProbe|startupProbe.httpGet.scheme",
        Text("HTTP"),
    ),
    (
        "containers|initContainers.*.lifecycle.postStart|preStop.httpGet.path",
        Text("/"),
    ),
    (
        "containers|initContainers.*.lifecycle.postStart|preStop.httpGet.scheme",
        Text("HTTP"),
    ),
    (
        "volumes.*.configMap|downwardAPI|projected|secret.defaultMode",
        Number(420),
    ),
    ("volumes.*.emptyDir.medium", Text("")),
    (
        "volumes.*.ephemeral.volumeClaimTemplate.spec.volumeMode",
        Text("Filesystem"),
    ),
    ("volumes.*.hostPath.type", Text("")),
    (
        "volumes.*.downwardAPI.items.*.fieldRef.apiVersion",
        Text("v1"),
    ),
    (
        "volumes.*.projected.sources.*.serviceAccountToken.expirationSeconds",
        Number(3600),
    ),
];
