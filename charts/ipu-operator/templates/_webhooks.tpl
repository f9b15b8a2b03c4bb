{{/*
One webhook of the two configurations. Arguments: (list root name path).

The match conditions prevent that unavailable webhooks block the cluster. The API server does not call the webhooks for
objects that are being deleted, for writes of the operator, and for updates that keep the spec (labels, annotations,
finalizers).

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
    - apiGroups: [graphcore.ai]
      apiVersions: [v1alpha1]
      resources: [ipujobs]
      operations: [CREATE, UPDATE]
      scope: Namespaced
  failurePolicy: {{ $webhooks.failurePolicy }}
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
    {{- include "ipu-operator.matchConditions" $root | nindent 4 }}
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

{{/* Match conditions of the webhooks of IPUJobs: see above. */}}
{{- define "ipu-operator.matchConditions" -}}
- name: not-being-deleted
  expression: "!has(object.metadata.deletionTimestamp)"
- name: not-by-the-operator
  expression: >-
    request.userInfo.username !=
    "system:serviceaccount:{{ .Release.Namespace }}:{{ include "ipu-operator.controllerServiceAccount" . }}"
- name: new-or-changed-spec
  expression: >-
    request.operation == "CREATE" || has(object.spec) != has(oldObject.spec) ||
    (has(object.spec) && object.spec != oldObject.spec)
{{- end -}}
