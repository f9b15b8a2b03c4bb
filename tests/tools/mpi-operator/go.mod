module tools

go 1.26.0

require github.com/kubeflow/mpi-operator v0.8.2
