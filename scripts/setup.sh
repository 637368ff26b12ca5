#!/usr/bin/env bash
# Sets up everything that is needed to run or test emmclab, in the project's folder only: setup.sh run|dev...
# `run` creates the virtual environment .venv and builds the Rust core. `dev` installs what the tests and checks need; the tests
# build their own core. Both may be given.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- run
is_for() { [[ " $purposes " == *" $1 "* ]]; }
purposes=$*

. scripts/alive.sh
stop() { say "error: $1"; say "hint: $2"; exit 1; }

installing=
trap 'kill $beat $installing 2>/dev/null || true' EXIT

# Notes a Debian package that is missing; `install_missing` installs them all at once.
missing=()
declare -A loss
package() { # package, consequence if it is missing
    missing+=("$1")
    loss[$1]=$2
}
apt_install() {
    local as=() failed=0
    [ "$(id -u)" = 0 ] || as=(sudo -n)
    as+=(env DEBIAN_FRONTEND=noninteractive apt-get)
    "${as[@]}" update -qq || true
    "${as[@]}" install -y -q --no-install-recommends "$@" && return
    # A package that this Debian lacks must not prevent the installation of the others.
    for name in "$@"; do
        "${as[@]}" install -y -q --no-install-recommends "$name" || failed=1
    done
    return $failed
}
# With CI=true a package that cannot be installed is an error; otherwise a note states the consequence.
install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
        alive "installing Debian's ${missing[*]}" apt_install "${missing[@]}" && missing=() && return
    fi
    [ "${CI:-}" != true ] || stop "these could not be installed: ${missing[*]}" "install these Debian packages"
    for name in "${missing[@]}"; do
        say "note: without the Debian package $name, ${loss[$name]}"
    done
    missing=()
}

command -v cargo >/dev/null || stop "there is no cargo" "install a stable Rust (1.95 or later), see rustup.rs"
command -v cc >/dev/null || package gcc "the Rust core cannot be linked"
command -v python3 >/dev/null || package python3 "nothing runs"
install_missing
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "python3 is older than 3.11" "install Python 3.11 or later"
python3 -c 'import ensurepip' 2>/dev/null || package python3-venv "no virtual environment can be created"
if is_for dev; then
    command -v chromium >/dev/null || package chromium "the tests of the report page are skipped"
    command -v jq >/dev/null || package jq "the tests of the tutorials are skipped"
    # The NBD server is tested with clients of other projects, and benchmarked against their servers.
    for need in nbdinfo:libnbd-bin qemu-img:qemu-utils fio:fio nbdkit:nbdkit; do
        command -v "${need%%:*}" >/dev/null || package "${need#*:}" "some tests of the NBD server are skipped"
    done
    # Debian provides the module only for its own Python.
    /usr/bin/python3 -c 'import nbd' 2>/dev/null || package python3-libnbd "a test of the NBD server is skipped"
    # Tests that run only as root record devices, machines over ssh, and a simulated phone behind a real adb server.
    if [ "$(id -u)" = 0 ]; then
        for need in fio:fio sqlite3:sqlite3 strace:strace mkfs.ext4:e2fsprogs sshd:openssh-server ssh:openssh-client adb:adb \
            mksh:mksh toybox:toybox busybox:busybox trace-cmd:trace-cmd fusermount3:fuse3 mkfs.xfs:xfsprogs \
            mkfs.btrfs:btrfs-progs mkfs.f2fs:f2fs-tools mkfs.vfat:dosfstools losetup:mount postmark:postmark \
            bindfs:bindfs cpio:cpio; do
            PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null ||
                package "${need#*:}" "some tests of the recorder, of exports or of live studies are skipped"
        done
    fi
fi
install_missing

lock=requirements.lock
! is_for dev || lock=requirements-dev.lock
[ -x .venv/bin/python ] || python3 -m venv .venv
stamp=.venv/$lock.$(sha256sum "$lock" | cut -c1-16)
pip_install() { .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$1"; }
packages() { pip_install "$lock" && touch "$stamp"; }
core() {
    local develop=(.venv/bin/maturin develop --release --locked)
    export PIP_QUIET=1 VIRTUAL_ENV=$PWD/.venv
    if [ ! -e "$stamp" ]; then
        # maturin is installed first, so that the core is compiled while the other packages are installed.
        pip_install <(sed -n '/^maturin==/,/[^\\]$/p' "$lock") || return
        packages >.venv/packages.log 2>&1 &
        installing=$!
        "${develop[@]}" --skip-install || return
        # The messages of pip are printed last, so that they are visible.
        wait "$installing" || { cat .venv/packages.log >&2; return 1; }
        installing=
    fi
    "${develop[@]}"
}
if is_for run; then
    alive "installing Python packages and building the Rust core (some minutes the first time)" core
elif [ ! -e "$stamp" ]; then
    alive "installing Python packages ($lock)" packages
fi
# With PYTHONDONTWRITEBYTECODE, which containers often set, each command would otherwise compile the modules again.
.venv/bin/python -m compileall -q python/emmclab
