#!/bin/sh
# Runs `cargo test` for the tests that match some words. Fails if a word matches no test, because cargo's own runner
# then succeeds without running any.
#
#   tests/filtered.sh "differential webhook" --package tests --test apiserver
set -eu

words=$1
shift
for word in $words; do
    # Not in a pipe, because the shell would ignore the exit status of cargo there.
    listed=$(cargo test --locked "$@" -- --list "$word")
    if ! printf '%s\n' "$listed" | grep -q ': test$'; then
        echo "no test matches \"$word\": was it renamed?" >&2
        exit 1
    fi
done
# The words are separate arguments.
# shellcheck disable=SC2086
exec cargo test --locked "$@" -- $words ${RUNNER_OPTIONS:-}
