{{/*
Rights of the processes in the namespaces that they serve: parts of their ClusterRoles if they serve the whole cluster,
and Roles in each namespace otherwise.

The right to remove the finalizers of deleted jobs is in the ClusterRoles in both cases: a namespace that is being
deleted loses its Roles first, and its deletion would never end.
*/}}

{{- define "ipu-operator.controllerRules" -}}
# Jobs: their finalizer and their status, and their deletion after ttlSecondsAfterFinished.
# A cluster that guards owner references requires `finalizers` for the creation of an object that
# belongs to a job.
- apiGroups: [graphcore.ai]
  resources: [ipujobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [graphcore.ai]
  resources: [ipujobs/status]
  verbs: [update]
- apiGroups: [graphcore.ai]
  resources: [ipujobs/finalizers]
  verbs: [update]
# The objects of a job. Except for Pods, they are deleted with the job by their owner reference. A patch ends
# the sidecars of a Pod whose program has ended, and gives a native Pod its partition.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
# Finds out why a node cannot mount the volumes of a Pod, or create its sandbox: only events have the reason.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- if .Values.nativePods.enabled }}
# The condition graphcore.ai/PartitionReady of native Pods.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end }}
{{- if .Values.kueue.enabled }}
# The admission and the condition QuotaReserved of jobs in the queues of Kueue.
- apiGroups: [graphcore.ai]
  resources: [ipujobs/status]
  verbs: [patch]
{{- end }}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch]
# Variables of Pods whose containers have `envFrom`, which takes precedence over them.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
# RBAC allows to grant only own rights: the launcher of a job may exec into the workers of that job.
- apiGroups: [""]
  resources: [pods/exec]
  verbs: [get, create]
{{- end -}}

{{/* Names of the Secrets that IPUPolicies and policies.requiredKeys refer to, as a list in YAML. */}}
{{- define "ipu-operator.policySecrets" -}}
{{- $policies := .Values.policies | default dict -}}
{{- $names := $policies.secrets | default list -}}
{{- range $policies.requiredKeys -}}
{{- with .secret }}{{ $names = append $names .name }}{{ end -}}
{{- end -}}
{{- toYaml (uniq $names) -}}
{{- end -}}
