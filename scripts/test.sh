#!/usr/bin/env bash
# Runs the tests, and prints their number in the last line.
#   test.sh           the tests of correctness, in some minutes; most random tests run a quarter of their cases
#   test.sh all       all cases of random tests, and the marked tests: `#[ignore = "slow: ..."]` in Rust, `slow` and `build` in Python
#   test.sh long 0    an eighth (0 to 7) of the marked tests, without builds of packages and complete studies of papers
# Functions named helper_process_* are not tests: other tests run them in a separate process.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/alive.sh
log=$(mktemp) rust_log=$(mktemp)
# Each skipped test writes a line: what is missing, and the command that installs it.
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
    printf 'error: `%s` is not a set of tests\nhint: give no argument, all, or long 0 to 7\n' "$1" >&2
    exit 2
    ;;
esac

rust() { cargo test --locked --no-fail-fast "$@"; }
# Cargo prints the name of each crate once, and then compiles its tests for a minute without output.
compile() { alive "compiling the tests (some minutes the first time)" rust --tests --no-run; }
# The requirements of the tests are installed while they are compiled; without a compiler, they are installed first.
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
# Rust and Python tests run at the same time, because they often wait for disks and child processes. The Rust tests are a process
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

# The Python tests use the core that was built with the Rust tests, and the package in this folder.
target=$(realpath "${CARGO_TARGET_DIR:-target}")
# If this is set, as often in containers, each worker compiles the test modules again.
unset PYTHONDONTWRITEBYTECODE
export EMMCLAB_TESTED_CORE=$target/debug/deps/lib_core.so PYTHONPATH=$PWD/python:$PWD/tests/tested_core
# One worker for each processor; each takes the next test that has not begun.
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
