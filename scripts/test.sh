#!/usr/bin/env bash
# Runs every test and ends with a line that counts them all.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0

# The binding is built by the set-up; its tests are the Python ones. It is not excluded here: with it in the workspace, crates have
# the features that the set-up built them with, and are not built again.
# Examples have no tests, and `make check` compiles them: without `--tests` each would be built here once more.
rust() { cargo test --release --locked --no-fail-fast --workspace "$@"; }
{
    rust --tests
    tests=$?
    rust --doc && [ $tests = 0 ]
} 2>&1 | tee "$log" || status=1
rust_passed=$(awk '/^test result:/ {n += $4} END {print n + 0}' "$log")
rust_failed=$(awk '/^test result:/ {n += $6} END {print n + 0}' "$log")
grep -qE '^error' "$log" && [ "$rust_failed" = 0 ] && rust_failed=1

# Most of them wait for processes of their own; a worker for each processor takes the next test that none has begun.
.venv/bin/python -m pytest --numprocesses auto --dist worksteal 2>&1 | tee "$log" || status=1
count() { grep -oE "[0-9]+ $1" "$log" | tail -n 1 | cut -d' ' -f1; }
python_passed=$(count passed)
python_failed=$(($(count failed || echo 0) + $(count 'errors?' || echo 0)))
skipped=$(count skipped)

printf '%s passed, %s failed, %s skipped\n' \
    $((rust_passed + ${python_passed:-0})) $((rust_failed + python_failed)) "${skipped:-0}"
exit $status
