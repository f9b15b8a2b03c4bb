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

{{/* The V-IPU controllers, one a line. A top-level `vipuControllers` is alpha-5's. */}}
{{- define "ipu-operator.vipuControllers" -}}
{{- include "ipu-operator.refuseCutList" . -}}
{{- include "ipu-operator.refuseUnknownGlobals" . -}}
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
{{- $known := list "imagePullSecrets" "vipuControllers" "launcherImage" "launcherImageTag" "launcherImagePullPolicy" "laucherImagePullPolicy" "kubectlVersion" -}}
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
