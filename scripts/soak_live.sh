#!/usr/bin/env bash
# Compares files on served devices with a model of them, for SECONDS on each device: scripts/soak_live.sh [SECONDS]
# A failure prints the seed that repeats it. With XFSTESTS=/path (a folder with a built xfstests), its quick tests of ext4 run, too,
# and are compared with a plain loop device; XFSTESTS_SECONDS limits their time. Needs root, FUSE and loop devices.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-1200}
seed=${EMMCLAB_SOAK_SEED:-$((RANDOM << 15 | RANDOM))}
[ "$(id -u)" = 0 ] || { printf 'error: not root\nhint: sudo make soak-live\n' >&2; exit 1; }
printf 'files: %s s on each device, seed %s\n' "$seconds" "$seed"
EMMCLAB_SOAK_S=$seconds EMMCLAB_SOAK_SEED=$seed .venv/bin/python -m pytest -q -s tests/test_soak_live.py
if [ -z "${XFSTESTS:-}" ]; then
    printf 'xfstests: left out; set XFSTESTS=/path to a folder in which it was built\n'
    exit 0
fi
more=(--layer advil --set advil.reserved=256MB)
for options in "" "${more[*]}"; do
    printf 'xfstests, served device %s\n' "$options"
    # shellcheck disable=SC2086 # words
    .venv/bin/python scripts/xfstests_live.py "$XFSTESTS" --seconds "${XFSTESTS_SECONDS:-14400}" $options
done
