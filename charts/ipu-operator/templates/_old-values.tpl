{{/*
Values as admins of alpha-5 to 1.2.0 wrote them. An old or misspelt name is carried over to the present
one here; old-values.yaml lists all of them, with the reason where one has no meaning any more.
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

{{/*
The list of V-IPU controllers of the values, one a line: global.vipuControllers, or the only controller of alpha-5, which
stood in values of its own. A list that an admin has written into the ConfigMap takes precedence over that one, because
an earlier chart did not use these values.
*/}}
{{- define "ipu-operator.vipuControllers" -}}
{{- include "ipu-operator.refuseCutList" . -}}
{{- include "ipu-operator.refuseUnknownGlobals" . -}}
{{- $listed := include "ipu-operator.listedControllers" . -}}
{{- $only := include "ipu-operator.onlyController" . -}}
{{- if $listed -}}
{{- $listed -}}
{{- else if $only -}}
{{- $written := include "ipu-operator.writtenControllers" . -}}
{{- if and $written (not (hasPrefix "# vipuServerAddr" $written)) -}}
{{- $written -}}
{{- else -}}
{{- printf "# vipuServerAddr:\n%s" $only -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The list that is in the ConfigMap now. */}}
{{- define "ipu-operator.writtenControllers" -}}
{{- $name := include "ipu-operator.controllersConfigMap" . -}}
{{- lookup "v1" "ConfigMap" .Release.Namespace $name | dig "data" "controllers.yaml" "" | trim -}}
{{- end -}}

{{/*
alpha-5's only V-IPU controller as an entry of the list. In alpha-5 it had no node label: jobs ran on any node. A number of
`--set` is a float.
*/}}
{{- define "ipu-operator.onlyController" -}}
{{- with .Values.vipuServerAddr -}}
{{- $host := toString . | trim -}}
{{- if and (contains ":" $host) (not (hasPrefix "[" $host)) -}}
{{- $host = printf "[%s]" $host -}}
{{- end -}}
{{- $port := $.Values.vipuServerPort | default 8191 -}}
{{- if kindIs "float64" $port }}{{ $port = int64 $port }}{{ end -}}
{{- $cluster := $.Values.vipuClusterName | default $.Values.vipuCLusterName -}}
{{- printf "%s:%s:kubernetes.io/os=linux" $host (toString $port) -}}
{{- with $cluster }}:cluster={{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The list of the values. A top-level `vipuControllers` is alpha-5's. */}}
{{- define "ipu-operator.listedControllers" -}}
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
{{- $others := omit .Values "global" "controller" "vipuProxy" "admissionWebhooks" "worker" "certificates" "networkPolicy" "metrics" "extraObjects" "podAnnotations" "nodeSelector" "affinity" "tolerations" -}}
{{- $cut := regexFind `"[^"]*:[^"]*":` (toJson $others) | trimSuffix ":" | replace `"` "" -}}
{{- if $cut -}}
{{- fail (printf "vipuControllers was cut: Helm split the list at a comma and took %q for a value of its own. Write the comma as `\\,` (--set global.vipuControllers=\"a:8090:ipunode=a\\,b:8090:ipunode=b\"), or give a YAML list in a values file." $cut) -}}
{{- end -}}
{{- end -}}

{{/*
The schema lets any value of `global` pass: a parent chart's reach every chart below it. Where this chart
is installed by itself, one that it does not know is a mistake.
*/}}
{{- define "ipu-operator.refuseUnknownGlobals" -}}
{{- $known := list "imagePullSecrets" "vipuControllers" "imageRegistry" "launcherImage" "launcherImageTag" "launcherImagePullPolicy" "laucherImagePullPolicy" "kubectlVersion" -}}
{{- if .Chart.IsRoot -}}
{{- range $name := keys .Values.global | sortAlpha -}}
{{- if not (has $name $known) -}}
{{- fail (printf "global.%s is no value of this chart. Those of global are: %s." $name (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* One line for each old value that is set: `- <name>: <its effect>`. */}}
{{- define "ipu-operator.oldValues" -}}
{{- $values := .Values -}}
{{- $old := .Files.Get "old-values.yaml" | fromYaml -}}
{{- range $name := keys $old.used | sortAlpha -}}
{{- if include "ipu-operator.given" (list $values $name) }}
- {{ $name }}: used as {{ get $old.used $name }}, its present name.
{{- end -}}
{{- end -}}
{{- $listed := include "ipu-operator.listedControllers" . -}}
{{- range $name := keys $old.combined | sortAlpha -}}
{{- if include "ipu-operator.given" (list $values $name) -}}
{{- if $listed }}
- {{ $name }}: has no effect, because the list of V-IPU controllers is set. Write the cluster there, as host:port:key=value:cluster=<name>.
{{- else if not $values.vipuServerAddr }}
- {{ $name }}: has no effect without vipuServerAddr. Set global.vipuControllers to host:port:key=value:cluster=<name>.
{{- else }}
- {{ $name }}: {{ get $old.combined $name }}.
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name := keys $old.ignored | sortAlpha -}}
{{- if include "ipu-operator.given" (list $values $name) }}
- {{ $name }}: has no effect: {{ get $old.ignored $name }}.
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Values that name an image beside controller.image, one `- <name>: <image>` a line. */}}
{{- define "ipu-operator.ownImages" -}}
{{- if .Values.global.launcherImage }}
- global.launcherImage: {{ include "ipu-operator.launcherImage" . }}
{{- end -}}
{{- if .Values.vipuProxy.image.repository }}
- vipuProxy.image: {{ include "ipu-operator.proxyImage" . }}
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
