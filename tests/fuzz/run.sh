#!/bin/sh
# Runs each fuzz target for a number of seconds, with its seeds and the inputs that earlier runs have found.
#
#     run.sh SECONDS TARGET...
#
# cargo-fuzz must be on PATH. Inputs that end a target are stored in tests/fuzz/artifacts. To run one again:
# cargo +nightly fuzz run --fuzz-dir tests/fuzz --sanitizer none TARGET tests/fuzz/artifacts/TARGET/crash-…
set -eu
cd "$(dirname "$0")/../.."

seconds=$1
shift
fuzz=tests/fuzz
# cargo-fuzz has no option --locked.
cargo +nightly fetch --locked --manifest-path $fuzz/Cargo.toml
for target in "$@"; do
    corpus=$fuzz/corpus/$target
    mkdir -p "$corpus"
    for seed in $fuzz/seeds/"$target"/*; do
        name=$(basename "$seed")
        case $name in
        # Messages of the V-IPU API are stored as text, which can be read and compared.
        *.hex) basenc --decode --base16 --ignore-garbage "$seed" >"$corpus/${name%.hex}" ;;
        *) cp "$seed" "$corpus" ;;
        esac
    done
    dictionary=$fuzz/dictionaries/$target.dict
    [ -e "$dictionary" ] && dictionary=-dict=$dictionary || dictionary=
    # The fuzzed code has no `unsafe`, so it needs no sanitizer.
    cargo +nightly fuzz run --fuzz-dir $fuzz --target-dir target/fuzz --sanitizer none \
        --codegen-units 16 "$target" "$corpus" -- \
        -max_total_time="$seconds" -timeout=10 -print_final_stats=1 $dictionary
done
