{{/* The metrics of the hardware. */}}

{{/* Not empty: they are enabled. Values of older releases lack them. */}}
{{- define "ipu-operator.hardwareMetrics" -}}
{{- if ((.Values.hardware | default dict).metrics | default dict).enabled -}}
true
{{- end -}}
{{- end -}}

{{/* Adds to each alert of a file of rules the entry of the runbook. Arguments: (list root rules). */}}
{{- define "ipu-operator.addRunbook" -}}
{{- $base := (index . 0).Values.metrics.prometheusRule.runbookUrl -}}
{{- range (index . 1).groups -}}
{{- range .rules -}}
{{- if .alert -}}
{{- $entry := printf "#%s" (lower .alert) -}}
{{- if $base -}}
{{- $_ := set .annotations "runbook_url" (printf "%s%s" $base $entry) -}}
{{- else -}}
{{- $_ := set .annotations "runbook" (printf "docs/runbook.md%s of the chart" $entry) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
