{{/* The namespaces that a release serves, and its conflicts with other releases. */}}

{{/* The served namespaces as a JSON list. Empty: the whole cluster. */}}
{{- define "ipu-operator.watchNamespaces" -}}
{{- include "ipu-operator.listOf" .Values.watchNamespaces | fromJsonArray | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* A list, or a string with commas, as a JSON list. */}}
{{- define "ipu-operator.listOf" -}}
{{- $given := . | default list -}}
{{- $names := list -}}
{{- range (kindIs "string" $given | ternary (splitList "," (toString $given)) $given) -}}
{{- with . | toString | trim -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/*
Name of a cluster-scoped object. Several releases for some namespaces each can share a cluster, also under the same
name. Arguments: (list root name).
*/}}
{{- define "ipu-operator.clusterName" -}}
{{- $root := index . 0 -}}
{{- $scoped := include "ipu-operator.watchNamespaces" $root | fromJsonArray -}}
{{- ternary (printf "%s.%s" (index . 1) $root.Release.Namespace) (index . 1) (not (empty $scoped)) -}}
{{- end -}}

{{/* Name of both webhook configurations. It identifies this release for others. */}}
{{- define "ipu-operator.webhookConfiguration" -}}
{{- include "ipu-operator.clusterName" (list . (include "ipu-operator.fullname" .)) -}}
{{- end -}}

{{/* Arguments of both processes about the served namespaces. */}}
{{- define "ipu-operator.scopeArguments" -}}
- {{ printf "--webhook-configuration=%s" (include "ipu-operator.webhookConfiguration" .) | quote }}
{{- with include "ipu-operator.watchNamespaces" . | fromJsonArray }}
- {{ printf "--watch-namespaces=%s" (join "," .) | quote }}
{{- end }}
{{- end -}}

{{/*
The other release, if there is one, for which this one is inactive: the processes find it the same way. On an
install there is no webhook configuration of this release yet, so that the other one was there first.
*/}}
{{- define "ipu-operator.conflict" -}}
{{- $mine := include "ipu-operator.webhookConfiguration" . -}}
{{- $scope := include "ipu-operator.watchNamespaces" . | fromJsonArray -}}
{{- $all := list -}}
{{- /* Without RBAC of this chart, the user may lack the right to read webhooks of other releases. */ -}}
{{- if .Values.controller.rbac.create -}}
{{- $all = (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "").items | default list -}}
{{- end -}}
{{- $since := "" -}}
{{- range $all -}}
{{- if eq .metadata.name $mine -}}
{{- $since = .metadata.creationTimestamp | toString -}}
{{- end -}}
{{- end -}}
{{- range $all -}}
{{- $isOurs := eq (dig "app.kubernetes.io/part-of" "" (.metadata.labels | default dict)) "ipu-operator" -}}
{{- $annotations := .metadata.annotations | default dict -}}
{{- /* The configuration of this release has another name if watchNamespaces was empty before. */ -}}
{{- $release := printf "%s/%s" (dig "meta.helm.sh/release-namespace" "" $annotations) (dig "meta.helm.sh/release-name" "" $annotations) -}}
{{- $isMine := or (eq .metadata.name $mine) (eq $release (printf "%s/%s" $.Release.Namespace $.Release.Name)) -}}
{{- $isOlder := or (not $since) (lt (.metadata.creationTimestamp | toString) $since) -}}
{{- if and $isOurs $isOlder (not $isMine) -}}
{{- $theirs := dig "graphcore.ai/watch-namespaces" "" $annotations | splitList "," | compact -}}
{{- $namespace := dig "graphcore.ai/operator-namespace" "" $annotations -}}
{{- $shared := or (empty $scope) (empty $theirs) (eq $namespace $.Release.Namespace) -}}
{{- range $scope -}}
{{- $shared = or $shared (has . $theirs) -}}
{{- end -}}
{{- if $shared }}
{{ .metadata.name }}, of the release in namespace {{ $namespace }}, which serves {{ ternary "all namespaces" (join ", " $theirs) (empty $theirs) }}
{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
