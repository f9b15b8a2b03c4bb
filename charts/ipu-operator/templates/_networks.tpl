{{/* The networks of the release. */}}

{{/* The setting `networks` of the defaulting guest, as JSON. Empty: none is enabled. */}}
{{- define "ipu-operator.networks" -}}
{{- $network := (.Values.networks | default dict).rdma | default dict -}}
{{- if $network.enabled -}}
{{- if .Values.worker.hostNetwork -}}
{{- fail "networks.rdma.enabled is true, and worker.hostNetwork is true too. Multus adds no interface to Pods in the network of their node. Set worker.hostNetwork to false." -}}
{{- end -}}
{{- if not $network.cidr -}}
{{- fail "networks.rdma.enabled is true, and networks.rdma.cidr is empty. Set it to the subnet of the RDMA network cards, such as 10.247.208.0/24." -}}
{{- end -}}
{{- if and (eq $network.kind "macvlan") (not $network.master) -}}
{{- fail "networks.rdma.kind is macvlan, and networks.rdma.master is empty. Set it to the name of the RDMA network card of the nodes, such as ens1f0." -}}
{{- end -}}
{{- if and (eq $network.kind "sriov") (not $network.resource) -}}
{{- fail "networks.rdma.kind is sriov, and networks.rdma.resource is empty. Set it to the resource of the virtual functions, such as nvidia.com/sriov_rdma." -}}
{{- end -}}
{{- $attachment := ternary $network.name (printf "%s/%s" .Release.Namespace $network.name) (not (empty $network.namespaces)) -}}
{{- dict "rdma" (dict "attachment" $attachment "resource" $network.resource) | toJson -}}
{{- else if .Values.worker.network -}}
{{- fail (printf "worker.network is %s, and networks.%s.enabled is false. Enable it, or set worker.network to an empty string." .Values.worker.network .Values.worker.network) -}}
{{- end -}}
{{- end -}}

{{/* The configuration of the CNI plugins, as JSON. */}}
{{- define "ipu-operator.networkConfig" -}}
{{- $ipam := dict "type" "whereabouts" "range" .cidr -}}
{{- with .exclude -}}
{{- $_ := set $ipam "exclude" . -}}
{{- end -}}
{{- with .whereaboutsConfig -}}
{{- $_ := set $ipam "configuration_path" . -}}
{{- end -}}
{{- $config := dict "cniVersion" "0.3.1" "name" .name "type" .kind "ipam" $ipam -}}
{{- if eq .kind "macvlan" -}}
{{- $config = merge $config (dict "master" .master "mode" "bridge" "mtu" (.mtu | int64)) -}}
{{- end -}}
{{- toJson $config -}}
{{- end -}}
