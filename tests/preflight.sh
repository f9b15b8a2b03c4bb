#!/bin/sh
# Reports in one sentence why the given `make` target cannot run here, before it changes anything.
set -eu

refuse() {
    echo "make $target cannot run here: $1" >&2
    exit 1
}

needs() {
    command -v "$1" >/dev/null 2>&1 || refuse "there is no $1 on PATH; $2."
}

target=$1

[ "$(uname -s)" = Linux ] ||
    refuse "this is $(uname -s), and real nodes need Linux; use a virtual machine with Debian 12."
[ "$(uname -m)" = x86_64 ] ||
    refuse "this machine is $(uname -m), and the harness builds for x86_64; use an x86_64 machine."
needs cargo "install Rust 1.95 or later"
needs cc "install a C compiler (apt-get install gcc libc6-dev)"
if [ "$target" = fuzz ]; then
    rustc +nightly --version >/dev/null 2>&1 ||
        refuse "there is no nightly compiler, and only that can count coverage; install one (rustup toolchain install nightly)."
    needs c++ "libFuzzer is written in C++ (apt-get install g++)"
    needs basenc "install coreutils 8.31 or later"
fi
if [ "$target" = plugins ]; then
    needs rustup "only rustup has the standard libraries for Windows and macOS; install it"
    needs python3 "zig comes from the Python registry; install Python 3 with venv (apt-get install python3-venv)"
fi
case $target in
advisories | dist | fuzz | generate | lint | mutants | placement | plugins | site | soak | unit | verify-generated) exit 0 ;;
esac

[ "$(id -u)" = 0 ] ||
    refuse "namespaces and network devices need root; run it as root (sudo env \"PATH=\$PATH\" make $target)."
for program in unshare setsid; do
    needs "$program" "install util-linux (apt-get install util-linux)"
done
[ "$target" != down ] || exit 0

needs go "install Go 1.26 or later"
needs apt-get "runc and the packet-filter tools come from Debian packages; use Debian 12"
needs dpkg "runc and the packet-filter tools come from Debian packages; use Debian 12"
needs perl "mmdebstrap, which makes the jobs' image, needs it (apt-get install perl)"
case $target in
test | test-apiserver) needs npm "axe-core, which tests the dashboard, is an npm package (apt-get install npm)" ;;
esac
