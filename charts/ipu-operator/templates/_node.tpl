{{/* Parts of the checks of nodes: the DaemonSet, and the Jobs of `helm test`. */}}

{{- define "ipu-operator.nodeName" -}}
{{ include "ipu-operator.fullname" . }}-node
{{- end -}}

{{/* The name of the account in requests. */}}
{{- define "ipu-operator.nodeUser" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "ipu-operator.nodeName" .) -}}
{{- end -}}

{{/* Not empty: something of the release checks nodes. */}}
{{- define "ipu-operator.checksNodes" -}}
{{- if or .Values.ipuNode.enabled .Values.ipuNode.testedNodes -}}
true
{{- end -}}
{{- end -}}

{{/* Not empty: a check reads the node's /sys. */}}
{{- define "ipu-operator.nodeReadsSys" -}}
{{- if or .Values.ipuNode.rdma.required .Values.ipuNode.kernelModules -}}
true
{{- end -}}
{{- end -}}

{{- define "ipu-operator.nodeSelector" -}}
app.kubernetes.io/name: {{ include "ipu-operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: node
{{- end -}}

{{/* Arguments of the checks. */}}
{{- define "ipu-operator.nodeArguments" -}}
{{- $node := .Values.ipuNode -}}
- --connect-timeout-seconds={{ $node.connectTimeoutSeconds | int64 }}
- --rdma={{ $node.rdma.required }}
{{- with $node.rdma.devices }}
- {{ printf "--rdma-devices=%s" (join "," .) | quote }}
{{- end }}
{{- with $node.rdma.resource }}
- {{ printf "--rdma-resource=%s" . | quote }}
{{- end }}
{{- with $node.networkAttachmentDefinitions }}
- {{ printf "--networks=%s" (join "," .) | quote }}
{{- end }}
{{- with $node.memlock }}
- {{ printf "--memlock=%s" . | quote }}
{{- end }}
{{- with $node.sharedMemory }}
- {{ printf "--shared-memory=%s" . | quote }}
{{- end }}
- --huge-pages={{ $node.hugePages | int64 }}
{{- with $node.kernelModules }}
- {{ printf "--kernel-modules=%s" (join "," .) | quote }}
{{- end }}
{{- end -}}

{{/* The container, without its arguments. It needs no privilege: its mounts are read-only, and every user may read them. */}}
{{- define "ipu-operator.nodeContainer" -}}
{{- $controller := include "ipu-operator.controllerValues" . | fromYaml -}}
{{- $node := .Values.ipuNode -}}
{{- $field := dict "fieldRef" (dict "fieldPath" "spec.nodeName") -}}
{{- $own := list (dict "name" "IPU_OPERATOR_NODE" "valueFrom" $field) -}}
image: {{ include "ipu-operator.controllerImage" . | quote }}
imagePullPolicy: {{ $controller.image.pullPolicy }}
env:
  {{- include "ipu-operator.environment" (list $own "ipuNode" $node) | nindent 2 }}
{{- with $node.resources }}
resources:
  {{- include "ipu-operator.resources" (list "ipuNode" .) | nindent 2 }}
{{- end }}
{{- with $controller.securityContext }}
securityContext:
  {{- include "ipu-operator.securityContext" (list "controller" .) | nindent 2 }}
{{- end }}
volumeMounts:
  - name: controllers
    mountPath: /etc/ipu-operator
    readOnly: true
  {{- if include "ipu-operator.nodeReadsSys" . }}
  - name: sys
    mountPath: /host/sys
    readOnly: true
  {{- end }}
  {{- if $node.networkAttachmentDefinitions }}
  - name: cni
    mountPath: /host/cni
    readOnly: true
  {{- end }}
{{- end -}}

{{/* The fields of the Pod beside its containers. */}}
{{- define "ipu-operator.nodePod" -}}
{{- $controller := include "ipu-operator.controllerValues" . | fromYaml -}}
{{- $node := .Values.ipuNode -}}
serviceAccountName: {{ include "ipu-operator.nodeName" . }}
automountServiceAccountToken: true
{{- with include "ipu-operator.imagePullSecrets" . | trim }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- with $node.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $controller.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $node.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: controllers
    configMap:
      name: {{ include "ipu-operator.controllersConfigMap" . }}
      optional: true
  {{- if include "ipu-operator.nodeReadsSys" . }}
  - name: sys
    hostPath:
      path: /sys
      type: Directory
  {{- end }}
  {{- if $node.networkAttachmentDefinitions }}
  - name: cni
    hostPath:
      path: {{ $node.cniConfigDir | quote }}
      type: Directory
  {{- end }}
{{- end -}}

{{/* The keys of the labels in the list of V-IPU controllers, as JSON. */}}
{{- define "ipu-operator.controllerLabelKeys" -}}
{{- $keys := list -}}
{{- range include "ipu-operator.vipuControllers" . | replace "," "\n" | splitList "\n" -}}
{{- with regexFind ":[A-Za-z0-9][-A-Za-z0-9_./]*=" (regexReplaceAll "#.*" . "") -}}
{{- $keys = append $keys (. | trimPrefix ":" | trimSuffix "=") -}}
{{- end -}}
{{- end -}}
{{- $keys | uniq | toJson -}}
{{- end -}}
