{{/* Names, labels and images that several templates share. */}}

{{- define "ipu-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/*
What every object's name starts with. The longest end that is added is 27 characters
(-controller-manager-metrics) and a Service's name may have 63, hence 36.
*/}}
{{- define "ipu-operator.fullname" -}}
{{- $given := .Values.fullNameOverride | default .Values.fullnameOverride -}}
{{- $given | default (printf "%s-%s" .Release.Name (include "ipu-operator.name" .)) | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{- define "ipu-operator.controllerName" -}}
{{ include "ipu-operator.fullname" . }}-controller-manager
{{- end -}}

{{- define "ipu-operator.proxyName" -}}
{{ include "ipu-operator.fullname" . }}-vipu-proxy
{{- end -}}

{{- define "ipu-operator.webhookServiceName" -}}
{{ include "ipu-operator.fullname" . }}-webhook-svc
{{- end -}}

{{- define "ipu-operator.controllersConfigMap" -}}
{{ include "ipu-operator.fullname" . }}-vipu-controllers
{{- end -}}

{{/* Made by the operator, not by the chart: the webhooks' certificates. */}}
{{- define "ipu-operator.webhookSecretName" -}}
{{ include "ipu-operator.fullname" . }}-admission
{{- end -}}

{{/* Made by the proxy, not by the chart: the certificate of its port with TLS. */}}
{{- define "ipu-operator.proxySecretName" -}}
{{ include "ipu-operator.proxyName" . }}-tls
{{- end -}}

{{/* Made by an admin who swaps a guest, not by the chart. */}}
{{- define "ipu-operator.policiesConfigMap" -}}
{{ include "ipu-operator.fullname" . }}-policies
{{- end -}}

{{- define "ipu-operator.controllerServiceAccount" -}}
{{- $account := (include "ipu-operator.controllerValues" . | fromYaml).serviceAccount -}}
{{- $made := ternary (include "ipu-operator.controllerName" .) "default" $account.create -}}
{{- $account.name | default $made -}}
{{- end -}}

{{- define "ipu-operator.proxyServiceAccount" -}}
{{- $account := .Values.vipuProxy.serviceAccount -}}
{{- $made := ternary (include "ipu-operator.proxyName" .) "default" $account.create -}}
{{- $account.name | default $made -}}
{{- end -}}

{{- define "ipu-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ipu-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ipu-operator.controllerSelector" -}}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
control-plane: controller-manager
{{- end -}}

{{- define "ipu-operator.proxySelector" -}}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: vipu-proxy
{{- end -}}

{{/* An image from a repository and a tag, which may be a digest. Argument: (list repository tag). */}}
{{- define "ipu-operator.imageOf" -}}
{{- $tag := index . 1 | toString -}}
{{- printf "%s%s%s" (index . 0) (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag -}}
{{- end -}}

{{- define "ipu-operator.controllerImage" -}}
{{- $image := .Values.controller.image -}}
{{- include "ipu-operator.imageOf" (list $image.repository ($image.tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* A repository of its own has a tag of its own; otherwise both follow the controller. */}}
{{- define "ipu-operator.proxyImage" -}}
{{- $image := .Values.vipuProxy.image -}}
{{- $repository := $image.repository | default .Values.controller.image.repository -}}
{{- $tag := $image.tag | default (ternary "" .Values.controller.image.tag (not (empty $image.repository))) -}}
{{- include "ipu-operator.imageOf" (list $repository ($tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* alpha-5 wrote launcherImage with its tag inside (`launcher:latest`). */}}
{{- define "ipu-operator.launcherImage" -}}
{{- $image := .Values.global.launcherImage -}}
{{- $tag := .Values.global.launcherImageTag -}}
{{- $last := $image | default "" | splitList "/" | last -}}
{{- if not $image -}}
{{- include "ipu-operator.controllerImage" . -}}
{{- else if $tag -}}
{{- include "ipu-operator.imageOf" (list $image $tag) -}}
{{- else if or (contains ":" $last) (contains "@" $last) -}}
{{- $image -}}
{{- else -}}
{{- include "ipu-operator.imageOf" (list $image .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* The original's page calls it a map, its values file a list: {name: a}, [{name: a}] and [a] all work. */}}
{{- define "ipu-operator.imagePullSecrets" -}}
{{- $given := .Values.global.imagePullSecrets -}}
{{- range (kindIs "map" $given | ternary (list $given) $given) }}
- name: {{ if kindIs "map" . }}{{ .name | quote }}{{ else }}{{ quote . }}{{ end }}
{{- end }}
{{- end -}}

{{/* Memory that is no longer needed goes back after a second, and threads share one pool of it. */}}
{{- define "ipu-operator.environment" -}}
- name: _RJEM_MALLOC_CONF
  value: narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0
{{- end -}}

{{/* Both processes load guests: compiled ones are kept, and an admin's own take the built-in ones' place. */}}
{{- define "ipu-operator.volumes" -}}
- name: cache
  emptyDir:
    sizeLimit: 256Mi
- name: policies
  configMap:
    name: {{ include "ipu-operator.policiesConfigMap" . }}
    optional: true
{{- end -}}

{{- define "ipu-operator.volumeMounts" -}}
- name: cache
  mountPath: /var/cache/ipu-operator
- name: policies
  mountPath: /policies
  readOnly: true
{{- end -}}

{{/* The original's scale of 1 to 6, where more says more. */}}
{{- define "ipu-operator.proxyLogLevel" -}}
{{- index (list "warn" "warn" "info" "info" "debug" "debug" "trace") (int .logLevel) -}}
{{- end -}}
