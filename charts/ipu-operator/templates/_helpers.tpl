{{/* Names, labels and images that several templates share. */}}

{{- define "ipu-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/*
Prefix of all object names. The longest suffix has 27 characters (-controller-manager-metrics), and the name of a
Service has at most 63, hence 36. A release name may have dots, which a Service name may not.
*/}}
{{- define "ipu-operator.fullname" -}}
{{- $name := .Values.fullNameOverride | default .Values.fullnameOverride -}}
{{- if not $name -}}
{{- $chart := include "ipu-operator.name" . -}}
{{- $name = contains $chart .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $chart) -}}
{{- end -}}
{{- $name = $name | replace "." "-" | trunc 36 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride is empty, and the names of this release's objects would start with %q, which is made of the release's name and nameOverride. Names of Services start with a lowercase letter and contain lowercase letters, digits and '-' only. Set fullnameOverride." $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "ipu-operator.controllerName" -}}
{{ include "ipu-operator.fullname" . }}-controller-manager
{{- end -}}

{{- define "ipu-operator.proxyName" -}}
{{ include "ipu-operator.fullname" . }}-vipu-proxy
{{- end -}}

{{- define "ipu-operator.certificatesName" -}}
{{ include "ipu-operator.fullname" . }}-certificates
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

{{/* The Secret of the webhooks' certificate. The operator, cert-manager or an admin creates it, not the chart. */}}
{{- define "ipu-operator.webhookSecretName" -}}
{{- $given := ternary .Values.certificates.given.webhookSecretName "" (eq .Values.certificates.source "given") -}}
{{- $given | default (printf "%s-admission" (include "ipu-operator.fullname" .)) -}}
{{- end -}}

{{/* The same for the proxy's port with TLS. */}}
{{- define "ipu-operator.proxySecretName" -}}
{{- $given := ternary .Values.certificates.given.proxySecretName "" (eq .Values.certificates.source "given") -}}
{{- $given | default (printf "%s-tls" (include "ipu-operator.proxyName" .)) -}}
{{- end -}}

{{/* The same for the controller's metrics. A given certificate is that of the webhooks. */}}
{{- define "ipu-operator.metricsSecretName" -}}
{{- $made := printf "%s-tls" (include "ipu-operator.metricsServiceName" .) -}}
{{- ternary $made (include "ipu-operator.webhookSecretName" .) (eq .Values.certificates.source "operator") -}}
{{- end -}}

{{/* The DNS name of this certificate. */}}
{{- define "ipu-operator.metricsServerName" -}}
{{- $made := eq .Values.certificates.source "operator" -}}
{{- $service := ternary (include "ipu-operator.metricsServiceName" .) (include "ipu-operator.webhookServiceName" .) $made -}}
{{- printf "%s.%s.svc" $service .Release.Namespace -}}
{{- end -}}

{{/* Name of the webhooks' Certificate, which cert-manager puts into the webhook configurations. */}}
{{- define "ipu-operator.webhookCertificateName" -}}
{{ include "ipu-operator.fullname" . }}-admission
{{- end -}}

{{/* `true` if the caBundles come from cert-manager or from the values. */}}
{{- define "ipu-operator.othersWriteCaBundle" -}}
{{- $certificates := .Values.certificates -}}
{{- if or (eq $certificates.source "certManager") (and (eq $certificates.source "given") $certificates.given.webhookCaBundle) -}}
true
{{- end -}}
{{- end -}}

{{/* Not empty: the release has the process that issues certificates, writes caBundles, or both. */}}
{{- define "ipu-operator.hasCertificates" -}}
{{- if not (include "ipu-operator.othersWriteCaBundle" .) -}}
true
{{- end -}}
{{- end -}}

{{/* Not empty: the operator makes the Namespace of the release the owner of the webhook configurations. */}}
{{- define "ipu-operator.ownsWebhooks" -}}
{{- if and .Values.admissionWebhooks.ownedByNamespace (not (include "ipu-operator.othersWriteCaBundle" .)) -}}
true
{{- end -}}
{{- end -}}

{{/*
The first free port, from the given one on. Two ports of one Pod or Service must differ. Arguments: (list port taken),
where taken is a list of ports.
*/}}
{{- define "ipu-operator.freePort" -}}
{{- $port := int (index . 0) -}}
{{- $taken := index . 1 -}}
{{- $free := 0 -}}
{{- range $offset := until 4 -}}
{{- $next := int (ternary (sub $port $offset) (add $port $offset) (gt (add $port $offset) 65535)) -}}
{{- if not (or $free (has $next $taken)) }}{{ $free = $next }}{{ end -}}
{{- end -}}
{{- $free -}}
{{- end -}}

{{/* The controller's port for probes. An admin chooses the port of the webhooks. */}}
{{- define "ipu-operator.probePort" -}}
{{- include "ipu-operator.freePort" (list 8081 (list (int .Values.admissionWebhooks.port))) -}}
{{- end -}}

{{/* The controller's port for metrics. */}}
{{- define "ipu-operator.metricsPort" -}}
{{- $taken := list (int .Values.admissionWebhooks.port) (int (include "ipu-operator.probePort" .)) -}}
{{- include "ipu-operator.freePort" (list .Values.controller.metricsPort $taken) -}}
{{- end -}}

{{/* The proxy's port with TLS, of the proxy's values. */}}
{{- define "ipu-operator.securePort" -}}
{{- include "ipu-operator.freePort" (list .securePort (list (int .proxyPort))) -}}
{{- end -}}

{{/* The proxy's port for probes, of the proxy's values. */}}
{{- define "ipu-operator.proxyProbePort" -}}
{{- $taken := list (int .proxyPort) (int (include "ipu-operator.securePort" .)) -}}
{{- include "ipu-operator.freePort" (list 8081 $taken) -}}
{{- end -}}

{{/* The ConfigMap of the log level. An admin creates it to change the level at run time; the chart does not. */}}
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

{{/* Without a name, every Pod with the account `default` of the namespace could write Secrets. */}}
{{- define "ipu-operator.certificatesServiceAccount" -}}
{{- $account := .Values.certificates.process.serviceAccount -}}
{{- if not (or $account.create $account.name) -}}
{{- fail "certificates.process.serviceAccount.create is false, and certificates.process.serviceAccount.name is empty. The rights to write Secrets and to change webhook configurations would belong to the ServiceAccount `default`, which each Pod without an account of its own has. Set the name of an existing ServiceAccount that nothing else uses, or set create to true." -}}
{{- end -}}
{{- $account.name | default (include "ipu-operator.certificatesName" .) -}}
{{- end -}}

{{/* The labels that the chart itself sets: selectors, ServiceMonitors and other releases rely on them. */}}
{{- define "ipu-operator.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ipu-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "ipu-operator.labels" -}}
{{- include "ipu-operator.labelsWith" (list . "" dict) -}}
{{- end -}}

{{/*
Labels of an object with labels of its own from the values, which take precedence over commonLabels. Arguments:
(list root value labels), where value is the name of the value with these labels.
*/}}
{{- define "ipu-operator.labelsWith" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 -}}
{{- $common := $root.Values.commonLabels | default dict -}}
{{- $own := index . 2 | default dict -}}
{{- include "ipu-operator.refuseOwnLabels" (list "commonLabels" $common) -}}
{{- include "ipu-operator.refuseOwnLabels" (list $value $own) -}}
{{ include "ipu-operator.ownLabels" $root }}
{{- with merge (deepCopy $own) $common }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Refuses labels that would change those of the chart. Arguments: (list value labels). */}}
{{- define "ipu-operator.refuseOwnLabels" -}}
{{- $chart := list "helm.sh/chart" "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "app.kubernetes.io/component" "control-plane" -}}
{{- $value := index . 0 -}}
{{- range $key, $_ := index . 1 -}}
{{- if has $key $chart -}}
{{- fail (printf "%s must not contain the label %q: the chart sets it, and selectors rely on it. Remove it, or use another key." $value $key) -}}
{{- end -}}
{{- end -}}
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

{{- define "ipu-operator.certificatesSelector" -}}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: certificates
{{- end -}}

{{/*
An image from a repository and a tag, which may be a digest. A tag of digits alone is a number in a values file, and a
large one would be printed with an exponent. Argument: (list repository tag).
*/}}
{{- define "ipu-operator.imageOf" -}}
{{- $tag := index . 1 -}}
{{- if kindIs "float64" $tag -}}
{{- $tag = ternary (int64 $tag) $tag (eq (floor $tag) $tag) -}}
{{- end -}}
{{- $tag = toString $tag -}}
{{- printf "%s%s%s" (index . 0) (ternary "@" ":" (hasPrefix "sha256:" $tag)) $tag -}}
{{- end -}}

{{/*
A repository, in the registry of the values if it names none: as Docker reads it, a registry has a dot or a colon, or is
localhost. Arguments: (list root repository).
*/}}
{{- define "ipu-operator.inRegistry" -}}
{{- $registry := (index . 0).Values.global.imageRegistry | default "" | trimSuffix "/" -}}
{{- $repository := index . 1 -}}
{{- $parts := splitList "/" $repository -}}
{{- $isNamed := and (gt (len $parts) 1) (or (regexMatch "[.:]" (first $parts)) (eq (first $parts) "localhost")) -}}
{{- ternary (printf "%s/%s" $registry $repository) $repository (and (not (empty $registry)) (not $isNamed)) -}}
{{- end -}}

{{/* The repository of the operator's image. alpha-5's default is empty. */}}
{{- define "ipu-operator.repository" -}}
{{- include "ipu-operator.inRegistry" (list . (.Values.controller.image.repository | default .Chart.Name)) -}}
{{- end -}}

{{- define "ipu-operator.controllerImage" -}}
{{- $tag := .Values.controller.image.tag | default .Chart.AppVersion -}}
{{- include "ipu-operator.imageOf" (list (include "ipu-operator.repository" .) $tag) -}}
{{- end -}}

{{/* A separate repository has a separate tag; otherwise both are those of the controller. */}}
{{- define "ipu-operator.proxyImage" -}}
{{- $image := .Values.vipuProxy.image -}}
{{- $repository := include "ipu-operator.repository" . -}}
{{- with $image.repository -}}
{{- $repository = include "ipu-operator.inRegistry" (list $ .) -}}
{{- end -}}
{{- $tag := $image.tag | default (ternary "" .Values.controller.image.tag (not (empty $image.repository))) -}}
{{- include "ipu-operator.imageOf" (list $repository ($tag | default .Chart.AppVersion)) -}}
{{- end -}}

{{/* alpha-5 wrote launcherImage with its tag inside (`launcher:latest`). */}}
{{- define "ipu-operator.launcherImage" -}}
{{- $image := .Values.global.launcherImage -}}
{{- with $image -}}
{{- $image = include "ipu-operator.inRegistry" (list $ .) -}}
{{- end -}}
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

{{/*
The documentation of Graphcore's operator calls it a map, its values file a list: {name: a}, [{name: a}] and [a] all
work. Server-side apply refuses a name that occurs twice.
*/}}
{{- define "ipu-operator.imagePullSecrets" -}}
{{- range include "ipu-operator.imagePullSecretNames" . | fromJsonArray }}
- name: {{ quote . }}
{{- end }}
{{- end -}}
{{- define "ipu-operator.imagePullSecretNames" -}}
{{- $given := .Values.global.imagePullSecrets -}}
{{- $names := list -}}
{{- range (kindIs "map" $given | ternary (list $given) $given) -}}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- uniq $names | toJson -}}
{{- end -}}

{{/* The Pods that probe nodes are in the release's namespace, beside its Secrets and its accounts. */}}
{{- define "ipu-operator.agentDelivery" -}}
{{- $delivery := (.Values.agent | default dict).delivery | default "init" -}}
{{- $served := include "ipu-operator.watchNamespaces" . | fromJsonArray -}}
{{- if and (eq $delivery "auto") $served (not (has .Release.Namespace $served)) -}}
{{- fail (printf "agent.delivery is auto, and watchNamespaces does not contain the release's own namespace %s, in which auto starts Pods: the controller would need the right to create Pods beside the release's Secrets and ServiceAccounts. Set agent.delivery to init, or to image if all nodes can mount images." .Release.Namespace) -}}
{{- end -}}
{{- $delivery -}}
{{- end -}}

{{/* The Pods that probe nodes pull the agent's image as the release pulls its own. */}}
{{- define "ipu-operator.agentProbePullSecrets" -}}
{{- if eq (include "ipu-operator.agentDelivery" .) "auto" -}}
{{- include "ipu-operator.imagePullSecretNames" . | fromJsonArray | join "," -}}
{{- end -}}
{{- end -}}

{{/* The type of a Service. alpha-5's documents write `clusterIP`, which Kubernetes refuses. */}}
{{- define "ipu-operator.serviceType" -}}
{{- ternary "ClusterIP" .type (eq .type "clusterIP") -}}
{{- end -}}

{{/* IP families of a Service. Kubernetes gives a Service with SingleStack one family. */}}
{{- define "ipu-operator.ipFamilies" -}}
{{- if and (eq (.Values.ipFamilyPolicy | default "") "SingleStack") (gt (len (.Values.ipFamilies | default list)) 1) -}}
{{- fail (printf "ipFamilyPolicy is SingleStack, and ipFamilies contains two families: %s. Remove one of them, or set ipFamilyPolicy to PreferDualStack or RequireDualStack." (join ", " .Values.ipFamilies)) -}}
{{- end -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A duration of Prometheus or Go in seconds. */}}
{{- define "ipu-operator.seconds" -}}
{{- $seconds := dict "ns" 0.000000001 "us" 0.000001 "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 "y" 31536000 -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $number := regexFind "[0-9.]+" . -}}
{{- $sum = addf $sum (mulf (float64 $number) (get $seconds (trimPrefix $number .))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* The scale of Graphcore's operator: 1 to 6. A higher number logs more. */}}
{{- define "ipu-operator.proxyLogLevel" -}}
{{- index (list "warn" "warn" "info" "info" "debug" "debug" "trace") (int .logLevel) -}}
{{- end -}}
