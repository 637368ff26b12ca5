#!/usr/bin/env bash
# Builds wheel and source archive into build/wheels, and tries the wheel in a bare environment: wheel.sh [OPTION OF MATURIN]...
# With `--zig --compatibility manylinux_2_17` (and `ziglang` in .venv) the wheel runs on older systems, but everything is compiled anew.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/wheels
bare=$(mktemp -d)
trap 'rm -rf "$bare"' EXIT
rm -rf "$out"

# maturin packs what stands in a folder of this name, where there is one; then the archive of sources has it, too.
rm -rf emmclab._core.data
.venv/bin/python scripts/wheel_data.py emmclab._core.data/data
.venv/bin/maturin sdist --quiet --out "$out"
.venv/bin/maturin build --release --locked --quiet --auditwheel check --out "$out" "$@"
rm -rf emmclab._core.data

# The environment knows neither this folder nor the wheel's: pip notes where it installs from.
cp "$out"/*.whl "$bare"
python3 -m venv "$bare/environment"
"$bare/environment/bin/python" -m pip install --quiet --disable-pip-version-check "$bare"/*.whl
.venv/bin/python scripts/wheel_smoke.py "$bare/environment" .
ls -l "$out"
