{{/*
The webhook of Pods that request IPUs themselves, and of copies of such Pods, which have its gate or its label.

The API server calls it for no other Pod: its conditions read the request, so that a cluster starts every other Pod while
no operator answers. Pods of IPUJobs get their partition from the job. It always fails closed, since a Pod that passes
without its scheduling gate would start without a partition.
*/}}
{{- define "ipu-operator.podWebhook" -}}
{{- $webhooks := .Values.admissionWebhooks -}}
- name: mpod.graphcore.ai
  admissionReviewVersions: [v1, v1beta1]
  clientConfig:
    service:
      name: {{ include "ipu-operator.webhookServiceName" . }}
      namespace: {{ .Release.Namespace | quote }}
      path: /mutate-v1-pod
      port: {{ $webhooks.service.servicePort }}
    {{- $certificates := .Values.certificates }}
    {{- with ternary $certificates.given.webhookCaBundle "" (eq $certificates.source "given") }}
    caBundle: {{ b64enc . | quote }}
    {{- end }}
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      resources: [pods]
      operations: [CREATE]
      scope: Namespaced
  failurePolicy: Fail
  matchPolicy: Equivalent
  sideEffects: None
  timeoutSeconds: {{ $webhooks.timeoutSeconds }}
  {{- with include "ipu-operator.webhookNamespaces" . | fromJsonArray }}
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values:
          {{- toYaml . | nindent 10 }}
  {{- end }}
  matchConditions:
    - name: of-no-ipujob
      expression: >-
        !has(object.metadata.labels) || !("graphcore.ai/job-uid" in object.metadata.labels)
    - name: requests-ipus-or-is-a-copy
      expression: >-
        (has(object.metadata.labels) && "graphcore.ai/native-pod" in object.metadata.labels) ||
        (has(object.spec.schedulingGates) &&
        object.spec.schedulingGates.exists(g, g.name == "graphcore.ai/partition")) ||
        (has(object.metadata.annotations) && ("graphcore.ai/ipu" in object.metadata.annotations ||
        "graphcore.ai/partition" in object.metadata.annotations)) ||
        object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) &&
        "graphcore.ai/ipu" in c.resources.limits) ||
        (has(object.spec.initContainers) && object.spec.initContainers.exists(c, has(c.resources) &&
        has(c.resources.limits) && "graphcore.ai/ipu" in c.resources.limits))
{{- end -}}
