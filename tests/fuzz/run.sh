#!/bin/sh
# Lets each fuzz target run for so many seconds, from its seeds and from what earlier runs have found.
#
#     run.sh SECONDS TARGET...
#
# cargo-fuzz is on PATH. What a target is ended by lies in tests/fuzz/artifacts; to run it once more:
# cargo +nightly fuzz run --fuzz-dir tests/fuzz --sanitizer none TARGET tests/fuzz/artifacts/TARGET/crash-…
set -eu
cd "$(dirname "$0")/../.."

seconds=$1
shift
fuzz=tests/fuzz
# cargo-fuzz itself cannot be told to keep to the lock file.
cargo +nightly fetch --locked --manifest-path $fuzz/Cargo.toml
for target in "$@"; do
    corpus=$fuzz/corpus/$target
    mkdir -p "$corpus"
    for seed in $fuzz/seeds/"$target"/*; do
        name=$(basename "$seed")
        case $name in
        # Bytes of the wire are kept as text that can be read and compared.
        *.hex) basenc --decode --base16 --ignore-garbage "$seed" >"$corpus/${name%.hex}" ;;
        *) cp "$seed" "$corpus" ;;
        esac
    done
    dictionary=$fuzz/dictionaries/$target.dict
    [ -e "$dictionary" ] && dictionary=-dict=$dictionary || dictionary=
    # There is no unsafe code in the operator for a sanitizer to watch.
    cargo +nightly fuzz run --fuzz-dir $fuzz --target-dir target/fuzz --sanitizer none \
        --codegen-units 16 "$target" "$corpus" -- \
        -max_total_time="$seconds" -timeout=10 -print_final_stats=1 $dictionary
done
