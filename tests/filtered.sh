#!/bin/sh
# Runs `cargo test` for the tests that match some words, and fails where a word matches no test: cargo's own
# runner passes then, with nothing run.
#
#   tests/filtered.sh "differential webhook" --package tests --test apiserver
set -eu

words=$1
shift
for word in $words; do
    # The exit status of cargo counts, which it would not in a pipe.
    listed=$(cargo test --locked "$@" -- --list "$word")
    if ! printf '%s\n' "$listed" | grep -q ': test$'; then
        echo "no test matches \"$word\": was it renamed?" >&2
        exit 1
    fi
done
# The words are separate arguments.
# shellcheck disable=SC2086
exec cargo test --locked "$@" -- $words ${RUNNER_OPTIONS:-}
