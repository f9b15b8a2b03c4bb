module tools

go 1.26.0
require github.com/containernetworking/plugins v1.9.1
