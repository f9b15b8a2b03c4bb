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

{{- define "ipu-operator.metricsServiceName" -}}
{{ include "ipu-operator.controllerName" . }}-metrics
{{- end -}}

{{- define "ipu-operator.controllersConfigMap" -}}
{{ include "ipu-operator.fullname" . }}-vipu-controllers
{{- end -}}

{{/* Made by the operator, by cert-manager or by an admin, not by the chart: the webhooks' certificate. */}}
{{- define "ipu-operator.webhookSecretName" -}}
{{- $given := ternary .Values.certificates.given.webhookSecretName "" (eq .Values.certificates.source "given") -}}
{{- $given | default (printf "%s-admission" (include "ipu-operator.fullname" .)) -}}
{{- end -}}

{{/* The same for the proxy's port with TLS. */}}
{{- define "ipu-operator.proxySecretName" -}}
{{- $given := ternary .Values.certificates.given.proxySecretName "" (eq .Values.certificates.source "given") -}}
{{- $given | default (printf "%s-tls" (include "ipu-operator.proxyName" .)) -}}
{{- end -}}

{{/* The same for the controller's metrics. One that is given is that of the webhooks. */}}
{{- define "ipu-operator.metricsSecretName" -}}
{{- $made := printf "%s-tls" (include "ipu-operator.metricsServiceName" .) -}}
{{- ternary $made (include "ipu-operator.webhookSecretName" .) (eq .Values.certificates.source "operator") -}}
{{- end -}}

{{/* The name that this certificate is for. */}}
{{- define "ipu-operator.metricsServerName" -}}
{{- $made := eq .Values.certificates.source "operator" -}}
{{- $service := ternary (include "ipu-operator.metricsServiceName" .) (include "ipu-operator.webhookServiceName" .) $made -}}
{{- printf "%s.%s.svc" $service .Release.Namespace -}}
{{- end -}}

{{/* Name of the webhooks' Certificate, which cert-manager puts into the webhook configurations. */}}
{{- define "ipu-operator.webhookCertificateName" -}}
{{ include "ipu-operator.fullname" . }}-admission
{{- end -}}

{{/* `true` where the caBundles come from cert-manager or from the values. */}}
{{- define "ipu-operator.othersWriteCaBundle" -}}
{{- $certificates := .Values.certificates -}}
{{- if or (eq $certificates.source "certManager") (and (eq $certificates.source "given") $certificates.given.webhookCaBundle) -}}
true
{{- end -}}
{{- end -}}

{{/* The controller's port for metrics: the next one where the webhooks or the probes have this one. */}}
{{- define "ipu-operator.metricsPort" -}}
{{- $port := int .Values.controller.metricsPort -}}
{{- ternary (add1 $port) $port (or (eq $port (int .Values.admissionWebhooks.port)) (eq $port 8081)) -}}
{{- end -}}

{{/* The proxy's port with TLS, of the proxy's values: the next one where an admin has given this one to the other. */}}
{{- define "ipu-operator.securePort" -}}
{{- $port := int .securePort -}}
{{- ternary (add1 $port) $port (eq $port (int .proxyPort)) -}}
{{- end -}}

{{/* The proxy's port for probes, of the proxy's values: the first one that is not taken. */}}
{{- define "ipu-operator.proxyProbePort" -}}
{{- $taken := list (int .proxyPort) (int (include "ipu-operator.securePort" .)) -}}
{{- $port := 0 -}}
{{- range list 8083 8082 8081 -}}
{{- if not (has . $taken) }}{{ $port = . }}{{ end -}}
{{- end -}}
{{- $port -}}
{{- end -}}

{{/* Made by an admin who wants other logs while the operator runs, not by the chart. */}}
{{- define "ipu-operator.logLevelConfigMap" -}}
{{ include "ipu-operator.fullname" . }}-log-level
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
    sizeLimit: 512Mi
{{- end -}}

{{- define "ipu-operator.volumeMounts" -}}
- name: cache
  mountPath: /var/cache/ipu-operator
{{- end -}}

{{/*
A Pod that is stopped is still called until everybody has heard of it. The image has no shell: the kubelet
itself waits. Argument: the values of the process.
*/}}
{{- define "ipu-operator.preStop" -}}
{{- with .preStopSleepSeconds -}}
lifecycle:
  preStop:
    sleep:
      seconds: {{ . }}
{{- end -}}
{{- end -}}

{{/* topologySpreadConstraints of a process, of its own Pods where they do not say of which. Arguments: (list values selector). */}}
{{- define "ipu-operator.spread" -}}
{{- $usual := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (index . 1 | fromYaml)) -}}
{{- $constraints := list -}}
{{- range (index . 0).topologySpreadConstraints | default (list $usual) -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $ours)) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}

{{/* The original's scale of 1 to 6, where more says more. */}}
{{- define "ipu-operator.proxyLogLevel" -}}
{{- index (list "warn" "warn" "info" "info" "debug" "debug" "trace") (int .logLevel) -}}
{{- end -}}
