module tools

go 1.26.0

require github.com/cert-manager/cert-manager v1.11.5
