{{/*
Values as admins of alpha-5 to 1.2.0 wrote them. An old or misspelt name is carried over to the present
one; what has no meaning any more is listed for NOTES.txt with the reason. Nothing is dropped silently.
*/}}

{{/* .Values.controller with the spelling `controllers.serviceAccount.name` of 1.0.3's page carried over. */}}
{{- define "ipu-operator.controllerValues" -}}
{{- $old := dict -}}
{{- with (.Values.controllers | default dict).serviceAccount -}}
{{- $_ := set $old "serviceAccount" . -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.controller) $old | toYaml -}}
{{- end -}}

{{/* .Values.vipuProxy with alpha-5's values, which stood at the top level, carried over. */}}
{{- define "ipu-operator.proxyValues" -}}
{{- $old := dict -}}
{{- $values := .Values -}}
{{- range $name := list "proxyPort" "podAnnotations" "securityContext" "service" "resources" "nodeSelector" "tolerations" "affinity" -}}
{{- with get $values $name -}}
{{- $_ := set $old $name . -}}
{{- end -}}
{{- end -}}
{{- with .Values.podSecurityPolicyContext -}}
{{- $_ := set $old "podSecurityContext" . -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.vipuProxy) (deepCopy $old) | toYaml -}}
{{- end -}}

{{/* `laucherImagePullPolicy` is how 1.1.0 spelt it. */}}
{{- define "ipu-operator.launcherImagePullPolicy" -}}
{{- .Values.global.launcherImagePullPolicy | default .Values.global.laucherImagePullPolicy | default "IfNotPresent" -}}
{{- end -}}

{{/* The V-IPU controllers, one a line. A top-level `vipuControllers` is alpha-5's. */}}
{{- define "ipu-operator.vipuControllers" -}}
{{- include "ipu-operator.refuseCutList" . -}}
{{- $given := .Values.global.vipuControllers | default .Values.vipuControllers | default list -}}
{{- if kindIs "string" $given -}}
{{- $given = $given | replace "," "\n" | splitList "\n" -}}
{{- end -}}
{{- $lines := list -}}
{{- range $given -}}
{{- with . | toString | trim -}}
{{- $lines = append $lines . -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/*
Helm cuts `--set vipuControllers="a:1:k=v,b:2:k=v"` at the comma and takes the second entry for a value
called `b:2:k`. Going on would leave IPUs unused without a word.
*/}}
{{- define "ipu-operator.refuseCutList" -}}
{{- $others := omit .Values "global" "controller" "vipuProxy" "admissionWebhooks" "worker" "podAnnotations" "nodeSelector" "affinity" "tolerations" -}}
{{- $cut := regexFind `"[^"]*:[^"]*":` (toJson $others) | trimSuffix ":" | replace `"` "" -}}
{{- if $cut -}}
{{- fail (printf "vipuControllers was cut: Helm split the list at a comma and took %q for a value of its own. Write the comma as `\\,` (--set global.vipuControllers=\"a:8090:ipunode=a\\,b:8090:ipunode=b\"), or give a YAML list in a values file." $cut) -}}
{{- end -}}
{{- end -}}

{{/* One line for each old value that was given: `- <name>: <what became of it>`. */}}
{{- define "ipu-operator.oldValues" -}}
{{- $values := .Values -}}
{{- $carried := dict
      "fullNameOverride" "fullnameOverride"
      "vipuControllers" "global.vipuControllers"
      "controllers.serviceAccount" "controller.serviceAccount"
      "global.laucherImagePullPolicy" "global.launcherImagePullPolicy"
      "proxyPort" "vipuProxy.proxyPort"
      "podAnnotations" "vipuProxy.podAnnotations"
      "podSecurityPolicyContext" "vipuProxy.podSecurityContext"
      "securityContext" "vipuProxy.securityContext"
      "service" "vipuProxy.service"
      "resources" "vipuProxy.resources"
      "nodeSelector" "vipuProxy.nodeSelector"
      "tolerations" "vipuProxy.tolerations"
      "affinity" "vipuProxy.affinity" -}}
{{- $ignored := dict
      "global.kubectlVersion" "no kubectl is shipped any more; launchers use ipu-agent"
      "admissionWebhooks.image" "the webhooks are served by the controller itself"
      "admissionWebhooks.patch" "certificates are made and renewed by the operator, so there are no patch jobs"
      "vipuServerAddr" "write global.vipuControllers as host:port:key=value; the label of its nodes was missing here"
      "vipuServerPort" "write global.vipuControllers as host:port:key=value"
      "vipuClusterName" "V-IPU controllers are named by global.vipuControllers"
      "vipuCLusterName" "V-IPU controllers are named by global.vipuControllers"
      "ipuVisibility.advertiseOnMaster" "IPUs are not advertised on nodes; a job's nodes are found by their V-IPU controller's label"
      "extendedScheduler.enabled" "the default scheduler needs no extension"
      "controller.service" "it was the metrics Service, and this version serves no metrics yet"
      "vipuProxy.proxyReadTimeoutSeconds" "this version closes idle connections by its own limits"
      "vipuProxy.proxyIdleTimeoutSeconds" "this version closes idle connections by its own limits" -}}
{{- range $name := keys $carried | sortAlpha -}}
{{- if include "ipu-operator.given" (list $values $name) }}
- {{ $name }}: used as {{ get $carried $name }}, its present name.
{{- end -}}
{{- end -}}
{{- range $name := keys $ignored | sortAlpha -}}
{{- if include "ipu-operator.given" (list $values $name) }}
- {{ $name }}: has no effect: {{ get $ignored $name }}.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whether a value is given and not empty. Arguments: (list values "dotted.name"). */}}
{{- define "ipu-operator.given" -}}
{{- $at := index . 0 -}}
{{- range splitList "." (index . 1) -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if $at -}}true{{- end -}}
{{- end -}}
