#!/usr/bin/env bash
# Builds wheel and source archive into build/wheels, and tries the wheel in a bare environment: wheel.sh [OPTION OF MATURIN]...
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/wheels
data=$PWD/emmclab._core.data
bare=$(mktemp -d)
trap 'rm -rf "$bare" "$data"' EXIT
rm -rf "$out" "$data"
# maturin takes the interpreter from here, as it did in the set-up.
export VIRTUAL_ENV=$PWD/.venv

# The compiler puts the path of each source file into the core, for messages. Here it leaves out what differs from machine to machine.
# Other flags compile everything anew, so that this build has a folder of its own, and that of `make demo` stays as it is.
cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup}
export CARGO_TARGET_DIR=$PWD/build/wheel-target
# Flags are separated by the byte 0x1f, as a path may hold a space. Cargo does not read RUSTFLAGS beside them.
flags=${RUSTFLAGS:-}
flags=${flags// /$'\x1f'}
for mapped in "$cargo=/cargo" "$rustup=/rustup" "$PWD=/emmclab"; do
    flags+=${flags:+$'\x1f'}--remap-path-prefix=$mapped
done
export CARGO_ENCODED_RUSTFLAGS=$flags

# maturin packs what stands in a folder of this name, where there is one; then the archive of sources has it, too.
.venv/bin/python scripts/wheel_data.py "$data/data"
.venv/bin/maturin sdist --out "$out"
.venv/bin/maturin build --release --locked --quiet --auditwheel check --out "$out" "$@"

# The environment knows neither this folder nor the wheel's: pip notes where it installs from.
cp "$out"/*.whl "$bare"
python3 -m venv "$bare/environment"
"$bare/environment/bin/python" -m pip install --quiet --disable-pip-version-check "$bare"/*.whl
.venv/bin/python scripts/wheel_smoke.py "$bare/environment" . "$HOME" "$cargo" "$rustup"
ls -l "$out"
