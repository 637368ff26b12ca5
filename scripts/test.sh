#!/usr/bin/env bash
# Runs the tests and ends with a line that counts them.
#   test.sh           what guards correctness, in some minutes; most random tests draw a quarter of their cases
#   test.sh all       random tests draw all their cases; also the tests that are marked, each with its reason: `#[ignore = "slow: ..."]`
#                     in Rust, `slow` and `build` in Python
#   test.sh long 0    of the marked tests an eighth, 0 to 7, without builds of packages and whole studies of papers
# Functions named helper_process_* are not tests: other tests run them in a process of their own.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/alive.sh
log=$(mktemp) rust_log=$(mktemp)
# Each skipped test writes a line: what is missing, and the command that brings it.
EMMCLAB_SKIPPED=$(mktemp)
export EMMCLAB_SKIPPED
trap 'kill $beat 2>/dev/null; rm -f "$log" "$rust_log" "$EMMCLAB_SKIPPED"' EXIT
status=0
ignored=() marked=(-m "not slow and not build")
case "${1:-}" in
'') export PROPTEST_CASES=${PROPTEST_CASES:-64} ;;
all) ignored=(-- --include-ignored --skip helper_process_) marked=() ;;
long)
    eighth=$(printf '%s\n' tests/test_*.py | awk -v part="${2:-0}" 'NR % 8 == part')
    ignored=(-- --ignored --skip helper_process_) marked=(-m "slow and not build and not study" $eighth)
    ;;
*)
    printf 'error: `%s` is not a set of tests\nhint: give nothing, all, or long 0 to 7\n' "$1" >&2
    exit 2
    ;;
esac

rust() { cargo test --locked --no-fail-fast "$@"; }
# Cargo names each crate once, and then compiles its tests for a minute without a line.
compile() { alive "compiling the tests (some minutes the first time)" rust --tests --no-run; }
# What the tests need is installed while they are compiled; a machine without a compiler gets that first.
if command -v cargo >/dev/null && command -v cc >/dev/null; then
    scripts/setup.sh dev &
    setup=$!
    compile
    built=$?
    wait $setup || exit
else
    scripts/setup.sh dev || exit
    compile
    built=$?
fi
if [ $built != 0 ]; then
    printf '0 passed, 1 failed, 0 skipped\n'
    exit 1
fi
# Both kinds of tests often wait for disks and for processes of their own, so they run at the same time. The Rust tests are a process
# group, which ends with this script.
set -m
{
    rust --tests "${ignored[@]}"
    tests=$?
    { [ "${1:-}" = long ] || rust --doc; } && [ $tests = 0 ]
} >"$rust_log" 2>&1 &
rust=$!
set +m
trap 'kill -- -$rust 2>/dev/null; rm -f "$log" "$rust_log" "$EMMCLAB_SKIPPED"' EXIT

# The core that was built with the Rust tests, of the package in this folder.
target=$(realpath "${CARGO_TARGET_DIR:-target}")
# Each worker compiles the test modules again where this is set, as containers often do.
unset PYTHONDONTWRITEBYTECODE
export EMMCLAB_TESTED_CORE=$target/debug/deps/lib_core.so PYTHONPATH=$PWD/python:$PWD/tests/tested_core
# A worker for each processor takes the next test that none has begun.
.venv/bin/python -m pytest --numprocesses auto --dist worksteal "${marked[@]}" 2>&1 | tee "$log" || [ $? = 5 ] || status=1
tail -n +1 -f --pid=$rust "$rust_log"
wait $rust || status=1
rust_passed=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$rust_log")
rust_failed=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$rust_log")
grep -qE '^error' "$rust_log" && [ "$rust_failed" = 0 ] && rust_failed=1
count() { grep -oE "[0-9]+ $1" "$log" | tail -n 1 | cut -d' ' -f1; }
python_passed=$(count passed)
python_failed=$(($(count failed || echo 0) + $(count 'errors?' || echo 0)))
skipped=$(wc -l <"$EMMCLAB_SKIPPED")

sort "$EMMCLAB_SKIPPED" | uniq -c | while read -r number reason; do
    printf '%s skipped: %s\n' "$number" "$reason"
done
printf '%s passed, %s failed, %s skipped\n' \
    $((rust_passed + ${python_passed:-0})) $((rust_failed + python_failed)) "$skipped"
exit $status
