#!/bin/sh
# Builds `kubectl ipu` for Windows, and for macOS where SDKROOT names Apple's SDK, into a folder. The compiler of C and the
# linker are zig's, from the Python registry, and the standard libraries are rustup's. Both are put into the cache.
set -eu

cache=$1
into=$2
version=$(rustc --version --verbose | sed -n 's/^release: //p')
home=$cache/rust-plugins-$version
zig=$cache/zig-0.15.2

# Without Apple's frameworks, programs for macOS are compiled, and cannot be linked.
targets=x86_64-pc-windows-gnu
[ -z "${SDKROOT:-}" ] || targets="$targets aarch64-apple-darwin x86_64-apple-darwin"

for target in $targets; do
    RUSTUP_HOME=$home rustup --quiet toolchain install "$version" --profile minimal --target "$target" --no-self-update
done
if [ ! -x "$zig/bin/cargo-zigbuild" ]; then
    python3 -m venv "$zig"
    "$zig/bin/pip" install --quiet --no-deps --require-hashes --requirement "$(dirname "$0")/tools/zig.txt"
fi

rm -rf "$into"
mkdir -p "$into"
for target in $targets; do
    RUSTUP_HOME=$home RUSTUP_TOOLCHAIN=$version PATH=$zig/bin:$PATH \
        cargo zigbuild --locked --release --package ipu-kubectl --target "$target"
    case $target in
    *windows*) name=kubectl-ipu-windows-amd64.exe built=kubectl-ipu.exe ;;
    aarch64*) name=kubectl-ipu-darwin-arm64 built=kubectl-ipu ;;
    *) name=kubectl-ipu-darwin-amd64 built=kubectl-ipu ;;
    esac
    cp "${CARGO_TARGET_DIR:-target}/$target/release/$built" "$into/$name"
done
(cd "$into" && sha256sum kubectl-ipu-* >SHA256SUMS && cat SHA256SUMS)
