#!/usr/bin/env bash
# Formatting, lints, types, imports.
set -uo pipefail
cd "$(dirname "$0")/.."
status=0
step() { # what it checks, cure, command...
    local what=$1 cure=$2
    shift 2
    if "$@"; then
        printf 'ok: %s\n' "$what"
    else
        printf 'FAILED: %s; %s\n' "$what" "$cure"
        status=1
    fi
}
one_way() { # what rooms import; printed only if it is not allowed
    local said
    said=$(PYTHONPATH=python .venv/bin/lint-imports --no-cache --no-logo 2>&1) || { printf '%s\n' "$said"; return 1; }
}
step 'Rust formatting' 'run `cargo fmt`' cargo fmt --all --check
step 'Rust lints' 'mend what clippy names' cargo clippy --locked --quiet --all-targets -- -D warnings
step 'Fuzz targets' 'mend what the compiler names' env RUSTFLAGS='--cfg fuzzing' CARGO_TARGET_DIR=target/fuzz-check \
    cargo check --locked --quiet --package emmclab-fuzz
step 'Python formatting' 'run `.venv/bin/ruff format`' .venv/bin/ruff format --check --quiet .
step 'Python lints' 'run `.venv/bin/ruff check --fix`' .venv/bin/ruff check --quiet .
step 'Python types' 'mend what mypy names' .venv/bin/mypy
step 'Python imports' 'import only from rooms below ([tool.importlinter] in pyproject.toml)' one_way
exit $status
