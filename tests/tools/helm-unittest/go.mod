module tools

go 1.26.0

require github.com/helm-unittest/helm-unittest v1.1.2

replace github.com/vmware-labs/yaml-jsonpath v0.3.2 => github.com/helm-unittest/yaml-jsonpath v0.4.0
