{{/*
The webhooks of Pods that request IPUs themselves, and of copies of such Pods, which have their gate or their label.

The API server calls them for no other Pod: their conditions read the request, so that a cluster starts every other Pod
while no operator answers. Pods of IPUJobs, which the operator creates, get their partition from the job. The webhooks
always fail closed, since a Pod that passes without its scheduling gate would start without a partition.
*/}}
{{- define "ipu-operator.mutatingPodWebhook" -}}
{{- $rules := include "ipu-operator.rules" (list "" "v1" "pods" "[CREATE]") -}}
{{- $by := include "ipu-operator.notByTheOperator" . -}}
{{- $conditions := printf "%s\n%s" $by (include "ipu-operator.requestsIPUs" .) -}}
{{- include "ipu-operator.webhook" (list . "mpod.graphcore.ai" "/mutate-v1-pod" $rules $conditions "Fail") -}}
{{- end -}}

{{/*
Rules see the Pod after other webhooks have changed it, its changes as long as it waits for its IPUs, and new images
after that. Nothing else of a Pod that has its IPUs depends on the operator.
*/}}
{{- define "ipu-operator.validatingPodWebhook" -}}
{{- $rules := include "ipu-operator.rules" (list "" "v1" "pods" "[CREATE, UPDATE]") -}}
{{- $by := printf "%s\n%s" (include "ipu-operator.notBeingDeleted" .) (include "ipu-operator.notByTheOperator" .) -}}
{{- $what := printf "%s\n%s" (include "ipu-operator.requestsIPUs" .) (include "ipu-operator.changesPod" .) -}}
{{- $conditions := printf "%s\n%s" $by $what -}}
{{- include "ipu-operator.webhook" (list . "vpod.graphcore.ai" "/validate-v1-pod" $rules $conditions "Fail") -}}
{{- end -}}

{{- define "ipu-operator.requestsIPUs" -}}
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

{{- define "ipu-operator.changesPod" -}}
- name: new-or-changed-for-a-rule
  expression: >-
    request.operation == "CREATE" ||
    object.spec.containers.map(c, has(c.image) ? c.image : "") !=
    oldObject.spec.containers.map(c, has(c.image) ? c.image : "") ||
    (has(object.spec.initContainers) && has(oldObject.spec.initContainers) &&
    object.spec.initContainers.map(c, has(c.image) ? c.image : "") !=
    oldObject.spec.initContainers.map(c, has(c.image) ? c.image : "")) ||
    (has(oldObject.spec.schedulingGates) &&
    oldObject.spec.schedulingGates.exists(g, g.name == "graphcore.ai/partition") &&
    (object.spec != oldObject.spec
    {{- with include "ipu-operator.reviewedKeys" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}))
{{- end -}}
