{{/*
One webhook of the two configurations. Arguments: (list root name path).

The conditions keep everybody from being locked out, whatever becomes of the webhooks: what is being
deleted can lose its finalizers, the operator's own writes pass, and so does every update that leaves
the spec as it was (labels, annotations, finalizers).

There is no caBundle here, and no owner: the operator writes both, and fields that the chart never names
survive helm upgrade and helm rollback.
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
    - name: not-being-deleted
      expression: "!has(object.metadata.deletionTimestamp)"
    - name: not-by-the-operator
      expression: >-
        request.userInfo.username !=
        "system:serviceaccount:{{ $root.Release.Namespace }}:{{ include "ipu-operator.controllerServiceAccount" $root }}"
    - name: new-or-changed-spec
      expression: >-
        request.operation == "CREATE" || has(object.spec) != has(oldObject.spec) ||
        (has(object.spec) && object.spec != oldObject.spec)
{{- end -}}

{{/* admissionWebhooks.scope as a JSON list: a list stays one, a string is split at its commas. */}}
{{- define "ipu-operator.webhookNamespaces" -}}
{{- $given := .Values.admissionWebhooks.scope | default list -}}
{{- $names := list -}}
{{- range (kindIs "string" $given | ternary (splitList "," (toString $given)) $given) -}}
{{- with . | toString | trim -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}
