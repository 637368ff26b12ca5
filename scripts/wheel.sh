#!/usr/bin/env bash
# Builds wheel and source archive into build/wheels, and tests the wheel in a new environment: wheel.sh [OPTION OF MATURIN]...
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/wheels
data=$PWD/emmclab._core.data
bare=$(mktemp -d)
trap 'rm -rf "$bare" "$data"' EXIT
rm -rf "$out" "$data"
# maturin uses the interpreter of this environment, as in setup.sh.
export VIRTUAL_ENV=$PWD/.venv

# The compiler stores the path of each source file in the core, for messages. Here the parts that differ between machines are removed.
# With other flags everything is compiled again, so this build has its own folder, and that of `make demo` does not change.
cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup}
export CARGO_TARGET_DIR=$PWD/build/wheel-target
# Flags are separated by the byte 0x1f, because a path may contain a space. With them, Cargo ignores RUSTFLAGS.
flags=${RUSTFLAGS:-}
flags=${flags// /$'\x1f'}
for mapped in "$cargo=/cargo" "$rustup=/rustup" "$PWD=/emmclab"; do
    flags+=${flags:+$'\x1f'}--remap-path-prefix=$mapped
done
export CARGO_ENCODED_RUSTFLAGS=$flags

# maturin packs the files of a folder of this name into the wheel, and into the source archive.
.venv/bin/python scripts/wheel_data.py "$data/data"
.venv/bin/maturin sdist --out "$out"
# The core is built twice: the second time with the counts of what a run of typical work executed (pgo-command in pyproject.toml).
# A core for another kind of machine cannot be run here.
pgo=()
if [[ " $* " == *" --target"* ]]; then
    echo "note: built for --target without a profile of typical work" >&2
elif compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/llvm-profdata" >/dev/null || rustup component add llvm-tools; then
    pgo=(--pgo)
else
    echo "note: built without a profile of typical work (3 to 15 % more instructions), because llvm-tools is missing" >&2
fi
.venv/bin/maturin build --release --locked --quiet --auditwheel check --out "$out" "${pgo[@]}" "$@"

# The wheel is copied, because pip stores the path from which it installs, and the environment must not contain this folder.
cp "$out"/*.whl "$bare"
python3 -m venv "$bare/environment"
"$bare/environment/bin/python" -m pip install --quiet --disable-pip-version-check "$bare"/*.whl
.venv/bin/python scripts/wheel_smoke.py "$bare/environment" . "$HOME" "$cargo" "$rustup"
ls -l "$out"
