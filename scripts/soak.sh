#!/usr/bin/env bash
# Runs the random (property) tests with new cases in each round: scripts/soak.sh [ROUNDS] [TEST NAME]...
# Test names are files of crates/*/tests/* or parts of names of tests; without them all tests run. A failure prints the seed that
# repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
rounds=${1:-10}
shift || true
for ((round = 1; round <= rounds; round++)); do
    seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM))
    printf 'round %s of %s, seed %s\n' "$round" "$rounds" "$seed"
    if ! PROPTEST_RNG_SEED=$seed cargo test --locked --quiet --tests -- "$@" >"$log" 2>&1; then
        cat "$log"
        printf 'failed; PROPTEST_RNG_SEED=%s repeats it\n' "$seed"
        exit 1
    fi
done
printf '%s rounds passed\n' "$rounds"
