{{/* Parts of the operator's Pods. Values that would make an invalid Pod fail here, with a message. */}}

{{/*
Environment of a process. A variable of extraEnv replaces the chart's own: server-side apply refuses a name that occurs
twice. Memory that is no longer needed goes back after a second, and threads share one pool of it. Arguments:
(list own section values), where own is a list of further variables and values those of the process.
*/}}
{{- define "ipu-operator.environment" -}}
{{- $allocator := dict "name" "_RJEM_MALLOC_CONF" "value" "narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0" -}}
{{- $section := index . 1 -}}
{{- $extra := (index . 2).extraEnv | default list -}}
{{- $given := list -}}
{{- range $extra -}}
{{- if has .name $given -}}
{{- fail (printf "%s.extraEnv contains the variable %q twice. Remove one of them." $section .name) -}}
{{- end -}}
{{- $given = append $given .name -}}
{{- end -}}
{{- $variables := list -}}
{{- range prepend (index . 0) $allocator -}}
{{- if not (has .name $given) }}{{ $variables = append $variables . }}{{ end -}}
{{- end -}}
{{- toYaml (concat $variables $extra) -}}
{{- end -}}

{{/*
Variables of a process that sends traces: what Kubernetes knows about its Pod, for the attributes of the traces. Arguments:
(list root values container deployment). The result is a list in JSON.
*/}}
{{- define "ipu-operator.traceVariables" -}}
{{- $sends := (index . 0).Values.traces.endpoint -}}
{{- range (index . 1).extraEnv | default list -}}
{{- if has .name (list "OTEL_EXPORTER_OTLP_ENDPOINT" "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") }}{{ $sends = .name }}{{ end -}}
{{- end -}}
{{- $variables := list -}}
{{- if $sends -}}
{{- $fields := dict "POD_NAME" "metadata.name" "POD_UID" "metadata.uid" "NAMESPACE_NAME" "metadata.namespace" "NODE_NAME" "spec.nodeName" -}}
{{- range $name, $path := $fields -}}
{{- $source := dict "fieldRef" (dict "fieldPath" $path) -}}
{{- $variables = append $variables (dict "name" (printf "OTEL_RESOURCE_ATTRIBUTES_%s" $name) "valueFrom" $source) -}}
{{- end -}}
{{- $variables = append $variables (dict "name" "OTEL_RESOURCE_ATTRIBUTES_CONTAINER_NAME" "value" (index . 2)) -}}
{{- $variables = append $variables (dict "name" "OTEL_RESOURCE_ATTRIBUTES_DEPLOYMENT_NAME" "value" (index . 3)) -}}
{{- end -}}
{{- toJson $variables -}}
{{- end -}}

{{/* Arguments of a process for its traces. */}}
{{- define "ipu-operator.traceArguments" -}}
{{- with .Values.traces.endpoint }}
- {{ printf "--traces-endpoint=%s" . | quote }}
{{- end }}
{{- if (.Values.traces.tls | default dict).secretName }}
- --traces-tls-dir=/traces-tls
{{- end }}
{{- end -}}

{{/*
Resources of a container. Kubernetes refuses a request above its limit. It overcommits CPU, memory and ephemeral
storage only. Arguments: (list section resources).
*/}}
{{- define "ipu-operator.resources" -}}
{{- $section := index . 0 -}}
{{- $resources := index . 1 -}}
{{- $limits := $resources.limits | default dict -}}
{{- range $name, $request := $resources.requests | default dict -}}
{{- $limit := get $limits $name -}}
{{- $requested := include "ipu-operator.quantity" $request | float64 -}}
{{- $most := ternary (include "ipu-operator.quantity" $limit | float64) $requested (hasKey $limits $name) -}}
{{- if gt $requested $most -}}
{{- fail (printf "%[1]s.resources.requests: %[2]s is %[3]v, more than the limit of %[4]v in %[1]s.resources.limits. Lower the request or raise the limit." $section $name $request $limit) -}}
{{- end -}}
{{- $isOvercommitted := has $name (list "cpu" "memory" "ephemeral-storage") -}}
{{- if and (not $isOvercommitted) (or (lt $requested $most) (not (hasKey $limits $name))) -}}
{{- fail (printf "%[1]s.resources.requests: Kubernetes requires a limit for %[2]s that equals its request, which is %[3]v. Set it in %[1]s.resources.limits, or remove the request." $section $name $request) -}}
{{- end -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* A quantity of Kubernetes as a number. mulf computes with decimals, so that 9m equals 0.009. */}}
{{- define "ipu-operator.quantity" -}}
{{- $factors := dict "" 1 "n" 0.000000001 "u" 0.000001 "m" 0.001 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 "E" 1000000000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- $text := toString . -}}
{{- $number := regexFind "^[+]?[0-9.]+([eE][-+]?[0-9]+)?" $text -}}
{{- mulf (float64 $number) (get $factors (trimPrefix $number $text)) -}}
{{- end -}}

{{/* Security context of a container. Kubernetes refuses contradictions in it. Arguments: (list section context). */}}
{{- define "ipu-operator.securityContext" -}}
{{- $context := index . 1 -}}
{{- $grants := "" -}}
{{- if has "CAP_SYS_ADMIN" (dig "capabilities" "add" list $context | default list) }}{{ $grants = "CAP_SYS_ADMIN in capabilities.add" }}{{ end -}}
{{- if eq (toString $context.privileged) "true" }}{{ $grants = "privileged: true" }}{{ end -}}
{{- if and $grants (eq (toString $context.allowPrivilegeEscalation) "false") -}}
{{- fail (printf "%[1]s.securityContext contains %[2]s and allowPrivilegeEscalation: false, which Kubernetes refuses together. Set %[1]s.securityContext.allowPrivilegeEscalation to true, or remove %[2]s." (index . 0) $grants) -}}
{{- end -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The PersistentVolumeClaim for modules, if there is one. */}}
{{- define "ipu-operator.moduleClaim" -}}
{{- ((.Values.policies | default dict).modules | default dict).existingClaim | default "" -}}
{{- end -}}

{{/* The folder of that claim in both processes. */}}
{{- define "ipu-operator.moduleDir" -}}
/var/lib/ipu-operator/modules
{{- end -}}

{{/*
Both processes load guests: they store compiled ones, and an admin's guests replace the built-in ones. Compiled code
stays in the Pod, because others may write to a claim.
*/}}
{{- define "ipu-operator.volumes" -}}
- name: cache
  emptyDir:
    sizeLimit: 512Mi
{{- with include "ipu-operator.moduleClaim" . }}
- name: modules
  persistentVolumeClaim:
    claimName: {{ . | quote }}
{{- end }}
{{- with (.Values.traces.tls | default dict).secretName }}
- name: traces-tls
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "ipu-operator.volumeMounts" -}}
- name: cache
  mountPath: /var/cache/ipu-operator
{{- if include "ipu-operator.moduleClaim" . }}
- name: modules
  mountPath: {{ include "ipu-operator.moduleDir" . }}
{{- end }}
{{- if (.Values.traces.tls | default dict).secretName }}
- name: traces-tls
  mountPath: /traces-tls
  readOnly: true
{{- end }}
{{- end -}}

{{/*
preStop delay of a process. Clients send requests to a terminating Pod until the endpoints are updated. The kubelet
waits, because the image has no shell. Kubernetes refuses a delay that is longer than the grace period. Arguments:
(list section values).
*/}}
{{- define "ipu-operator.preStop" -}}
{{- $values := index . 1 -}}
{{- $delay := int64 $values.preStopSleepSeconds -}}
{{- $grace := int64 $values.terminationGracePeriodSeconds -}}
{{- if gt $delay $grace -}}
{{- fail (printf "%[1]s.preStopSleepSeconds is %[2]d, more than %[1]s.terminationGracePeriodSeconds, which is %[3]d and includes it. Lower the first or raise the second." (index . 0) $delay $grace) -}}
{{- end -}}
{{- if $delay -}}
lifecycle:
  preStop:
    sleep:
      seconds: {{ $delay }}
{{- end -}}
{{- end -}}

{{/*
topologySpreadConstraints of a process. Their default selector is that of its own Pods. Kubernetes refuses two
constraints with the same key and the same whenUnsatisfiable. Arguments: (list section values selector).
*/}}
{{- define "ipu-operator.spread" -}}
{{- $usual := dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" -}}
{{- $ours := dict "labelSelector" (dict "matchLabels" (index . 2 | fromYaml)) -}}
{{- $section := index . 0 -}}
{{- $constraints := list -}}
{{- $pairs := list -}}
{{- range (index . 1).topologySpreadConstraints | default (list $usual) -}}
{{- $pair := printf "%s with %s" .topologyKey .whenUnsatisfiable -}}
{{- if has $pair $pairs -}}
{{- fail (printf "%s.topologySpreadConstraints contains %s twice. Remove one of them." $section $pair) -}}
{{- end -}}
{{- $pairs = append $pairs $pair -}}
{{- $constraints = append $constraints (hasKey . "labelSelector" | ternary . (merge (deepCopy .) $ours)) -}}
{{- end -}}
{{- toYaml $constraints -}}
{{- end -}}
