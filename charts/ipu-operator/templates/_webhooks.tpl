{{/*
One webhook of the two configurations. Arguments: (list root name path rules conditions failurePolicy), rules and
conditions in YAML.

The match conditions prevent that unavailable webhooks block the cluster. The API server does not call the webhooks for
objects that are being deleted, for writes of the operator, and for updates that no rule is about (finalizers, status,
labels and annotations that no rule reads).

The chart sets no owner, and a caBundle only if the values contain one. The operator writes both, or cert-manager writes
the caBundle. `helm upgrade` and `helm rollback` keep fields that the chart does not set.
*/}}
{{- define "ipu-operator.webhook" -}}
{{- $root := index . 0 -}}
{{- $webhooks := $root.Values.admissionWebhooks -}}
- name: {{ index . 1 }}
  admissionReviewVersions: [v1, v1beta1]
  clientConfig:
    service:
      name: {{ include "ipu-operator.webhookServiceName" $root }}
      namespace: {{ $root.Release.Namespace | quote }}
      path: {{ index . 2 }}
      port: {{ $webhooks.service.servicePort }}
    {{- $certificates := $root.Values.certificates }}
    {{- with ternary $certificates.given.webhookCaBundle "" (eq $certificates.source "given") }}
    caBundle: {{ b64enc . | quote }}
    {{- end }}
  rules:
    {{- index . 3 | nindent 4 }}
  failurePolicy: {{ index . 5 }}
  matchPolicy: Equivalent
  sideEffects: None
  timeoutSeconds: {{ $webhooks.timeoutSeconds }}
  {{- with include "ipu-operator.webhookNamespaces" $root | fromJsonArray }}
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values:
          {{- toYaml . | nindent 10 }}
  {{- end }}
  matchConditions:
    {{- index . 4 | nindent 4 }}
{{- end -}}

{{/* A webhook of IPUJobs. Arguments: (list root name path conditions). */}}
{{- define "ipu-operator.jobWebhook" -}}
{{- $root := index . 0 -}}
{{- $rules := include "ipu-operator.rules" (list "graphcore.ai" "v1alpha1" "ipujobs" "[CREATE, UPDATE]") -}}
{{- $policy := $root.Values.admissionWebhooks.failurePolicy -}}
{{- include "ipu-operator.webhook" (list $root (index . 1) (index . 2) $rules (index . 3) $policy) -}}
{{- end -}}

{{/* The webhook of changes of the number of instances. Fewer ones need no review. */}}
{{- define "ipu-operator.scaleWebhook" -}}
{{- $rules := include "ipu-operator.rules" (list "graphcore.ai" "v1alpha1" "ipujobs/scale" "[UPDATE]") -}}
{{- $conditions := printf "%s\n%s" (include "ipu-operator.notByTheOperator" .) (include "ipu-operator.grows" .) -}}
{{- $path := "/validate-graphcore-ai-v1alpha1-ipujob-scale" -}}
{{- $policy := .Values.admissionWebhooks.failurePolicy -}}
{{- include "ipu-operator.webhook" (list . "vscale.graphcore.ai" $path $rules $conditions $policy) -}}
{{- end -}}

{{/* The rules of a webhook for one resource. Arguments: (list group version resource operations). */}}
{{- define "ipu-operator.rules" -}}
- apiGroups: [{{ index . 0 | quote }}]
  apiVersions: [{{ index . 1 }}]
  resources: [{{ index . 2 }}]
  operations: {{ index . 3 }}
  scope: Namespaced
{{- end -}}

{{/*
Annotations of the two configurations. Other releases read in them which namespaces this release serves, and
cert-manager reads the source of the CA that it injects.
*/}}
{{- define "ipu-operator.webhookAnnotations" -}}
annotations:
  graphcore.ai/operator-namespace: {{ .Release.Namespace | quote }}
  graphcore.ai/watch-namespaces: {{ include "ipu-operator.watchNamespaces" . | fromJsonArray | join "," | quote }}
  {{- if eq .Values.certificates.source "certManager" }}
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "ipu-operator.webhookCertificateName" . }}
  {{- end }}
{{- end -}}

{{/* admissionWebhooks.scope as a JSON list, or else the namespaces whose jobs are served. */}}
{{- define "ipu-operator.webhookNamespaces" -}}
{{- $given := include "ipu-operator.listOf" .Values.admissionWebhooks.scope | fromJsonArray -}}
{{- $served := include "ipu-operator.watchNamespaces" . | fromJsonArray -}}
{{- range $given -}}
{{- if and $served (not (has . $served)) -}}
{{- printf "admissionWebhooks.scope names %q, which watchNamespaces does not: another release may serve that namespace. Remove it from admissionWebhooks.scope, or add it to watchNamespaces." . | fail -}}
{{- end -}}
{{- end -}}
{{- $given | default $served | toJson -}}
{{- end -}}

{{/* Match conditions of the mutating webhook of IPUJobs: see above. */}}
{{- define "ipu-operator.matchConditions" -}}
{{ include "ipu-operator.notBeingDeleted" . }}
{{ include "ipu-operator.notByTheOperator" . }}
- name: new-or-changed-spec
  expression: >-
    request.operation == "CREATE" || has(object.spec) != has(oldObject.spec) ||
    (has(object.spec) && object.spec != oldObject.spec)
{{- end -}}

{{/* Match conditions of the validating webhook of IPUJobs. */}}
{{- define "ipu-operator.ruledConditions" -}}
{{ include "ipu-operator.notBeingDeleted" . }}
{{ include "ipu-operator.notByTheOperator" . }}
- name: new-or-changed-for-a-rule
  expression: >-
    request.operation == "CREATE" || has(object.spec) != has(oldObject.spec) ||
    (has(object.spec) && object.spec != oldObject.spec)
    {{- with include "ipu-operator.reviewedKeys" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "ipu-operator.notBeingDeleted" -}}
- name: not-being-deleted
  expression: "!has(object.metadata.deletionTimestamp)"
{{- end -}}

{{- define "ipu-operator.notByTheOperator" -}}
- name: not-by-the-operator
  expression: request.userInfo.username != {{ include "ipu-operator.controllerUser" . | quote }}
{{- end -}}

{{- define "ipu-operator.grows" -}}
- name: grows
  expression: >-
    (has(object.spec.replicas) ? object.spec.replicas : 0) >
    (has(oldObject.spec.replicas) ? oldObject.spec.replicas : 0)
{{- end -}}

{{/* The name of the controller's account in requests. */}}
{{- define "ipu-operator.controllerUser" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "ipu-operator.controllerServiceAccount" .) -}}
{{- end -}}

{{/* The name of the proxy's account in requests. */}}
{{- define "ipu-operator.proxyUser" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "ipu-operator.proxyServiceAccount" .) -}}
{{- end -}}

{{/* Continues a condition: or an update changes a label or an annotation that rules depend on. */}}
{{- define "ipu-operator.reviewedKeys" -}}
{{- $reviewed := .Values.admissionWebhooks.reviewed | default dict -}}
{{- range $map := list "labels" "annotations" -}}
{{- with get $reviewed $map -}}
{{- $new := printf "object.metadata.%s" $map -}}
{{- $old := printf "oldObject.metadata.%s" $map }}
|| {{ toJson . }}.exists(key,
(has({{ $new }}) && key in {{ $new }} ? {{ $new }}[key] : "") !=
(has({{ $old }}) && key in {{ $old }} ? {{ $old }}[key] : ""))
{{- end -}}
{{- end -}}
{{- end -}}
