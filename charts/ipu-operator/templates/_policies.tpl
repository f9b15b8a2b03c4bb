{{/* Parts of the chart's ValidatingAdmissionPolicies. */}}

{{/* The namespaces of a policy's matchConstraints: those that the release serves. */}}
{{- define "ipu-operator.policyNamespaces" -}}
{{- with include "ipu-operator.webhookNamespaces" . | fromJsonArray -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
{{- end -}}
{{- end -}}

{{/* Variables: labels and annotations before and after an update. Nothing was there before a creation. */}}
{{- define "ipu-operator.oldAndNew" -}}
- name: newLabels
  expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
- name: oldLabels
  expression: >-
    request.operation == "UPDATE" && has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}
- name: newAnnotations
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: oldAnnotations
  expression: >-
    request.operation == "UPDATE" && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}
{{- end -}}

{{/* The binding of a policy that denies. Arguments: (list root name). */}}
{{- define "ipu-operator.denyingBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "ipu-operator.labels" (index . 0) | nindent 4 }}
    app.kubernetes.io/component: controller
spec:
  policyName: {{ index . 1 }}
  validationActions: [Deny]
{{- end -}}

{{/*
Name of the policy that binds launchers with shared rights, if launcher.sharedRights is true. It contains the namespace,
because the policy outlives the release: the next one can be in another namespace.
*/}}
{{- define "ipu-operator.launcherPolicy" -}}
{{- if (.Values.launcher | default dict).sharedRights -}}
{{- printf "%s-launchers.%s" (include "ipu-operator.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}
