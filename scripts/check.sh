#!/usr/bin/env bash
# Formatting, lints, types, generated files. House rules on files and names are tests (tests/test_house_rules.py).
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
step 'Rust formatting' 'run `cargo fmt`' cargo fmt --all --check
step 'Rust lints' 'mend what clippy names' cargo clippy --release --locked --quiet --workspace --all-targets -- -D warnings
step 'Python formatting' 'run `.venv/bin/ruff format`' .venv/bin/ruff format --check --quiet .
step 'Python lints' 'run `.venv/bin/ruff check --fix`' .venv/bin/ruff check --quiet .
step 'Python types' 'mend what mypy names' .venv/bin/mypy
step 'generated files' 'run `make generate`' .venv/bin/python scripts/generate_reference.py check
step 'kept messages' 'read the difference, then run `make generate`' .venv/bin/python scripts/messages.py check
step 'house rules' 'the message above says the cure' .venv/bin/python -m pytest -q tests/test_house_rules.py
exit $status
