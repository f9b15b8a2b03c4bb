module tools

go 1.26.4

require sigs.k8s.io/metrics-server v0.9.0
