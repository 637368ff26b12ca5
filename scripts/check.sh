#!/usr/bin/env bash
# Checks formatting, lints, types and imports.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
step() { # name of the check, remedy, command...
    local check=$1 remedy=$2
    shift 2
    if "$@"; then
        printf 'ok: %s\n' "$check"
    else
        printf 'FAILED: %s; %s\n' "$check" "$remedy"
        status=1
    fi
}
one_way() { # checks the imports between rooms; prints the report only on failure
    local report
    report=$(PYTHONPATH=python .venv/bin/lint-imports --no-cache --no-logo 2>&1) || { printf '%s\n' "$report"; return 1; }
}
step 'Rust formatting' 'run `cargo fmt`' cargo fmt --all --check
step 'Rust lints' 'fix what clippy reports' cargo clippy --locked --quiet --all-targets -- -D warnings
step 'Fuzz targets' 'fix what the compiler reports' env RUSTFLAGS='--cfg fuzzing' CARGO_TARGET_DIR=target/fuzz-check \
    cargo check --locked --quiet --package emmclab-fuzz
step 'Python formatting' 'run `.venv/bin/ruff format`' .venv/bin/ruff format --check --quiet .
step 'Python lints' 'run `.venv/bin/ruff check --fix`' .venv/bin/ruff check --quiet .
step 'Python types' 'fix what mypy reports' .venv/bin/mypy
step 'Python imports' 'import only from rooms below ([tool.importlinter] in pyproject.toml)' one_way
exit $status
