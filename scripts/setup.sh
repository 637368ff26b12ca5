#!/usr/bin/env bash
# Sets up everything that runs or tests emmclab, in the project's folder only: setup.sh run|dev
# `run` makes the virtual environment .venv and builds the Rust core; `dev` adds what the tests and checks need.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-run}

say() { printf '%s\n' "$*" >&2; }
stop() { say "error: $1"; say "hint: $2"; exit 1; }

# Installs a Debian package where that is possible, else says what will be missing; with CI=true that is a failure.
package() { # package, what is lost without it
    local as=()
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null && as=(sudo -n)
    fi
    if command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || [ ${#as[@]} -gt 0 ]; }; then
        say "installing Debian's $1"
        [ -n "${updated:-}" ] || "${as[@]}" apt-get update -qq >/dev/null || true
        updated=1
        DEBIAN_FRONTEND=noninteractive "${as[@]}" apt-get install -y -qq --no-install-recommends "$1" >/dev/null && return
    fi
    [ "${CI:-}" != true ] || stop "$1 is missing and could not be installed" "install the Debian package $1"
    say "note: without the Debian package $1, $2"
}

command -v cargo >/dev/null || stop "there is no cargo" "install a stable Rust (1.95 or later), see rustup.rs"
command -v cc >/dev/null || package gcc "the Rust core cannot be linked"
command -v python3 >/dev/null || package python3 "nothing runs"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || stop "python3 is older than 3.11" "install Python 3.11 or later"
python3 -c 'import ensurepip' 2>/dev/null || package python3-venv "no virtual environment can be made"
if [ "$what" = dev ]; then
    command -v chromium >/dev/null || package chromium "the tests of the report page are skipped"
    command -v jq >/dev/null || package jq "the tests of the tutorials are skipped"
    # Other projects' clients judge the NBD server, and their servers stand beside it in the bench.
    for need in nbdinfo:libnbd-bin qemu-img:qemu-utils fio:fio nbdkit:nbdkit; do
        command -v "${need%%:*}" >/dev/null || package "${need#*:}" "some tests of the NBD server are skipped"
    done
    # Completion is tried in the shells themselves, and manual pages are checked.
    for need in zsh:zsh fish:fish mandoc:mandoc; do
        command -v "${need%%:*}" >/dev/null || package "${need#*:}" "some tests of completion and manual pages are skipped"
    done
    # The module belongs to Debian's own Python.
    /usr/bin/python3 -c 'import nbd' 2>/dev/null || package python3-libnbd "a test of the NBD server is skipped"
    # Root records real devices, machines over ssh, and a stand-in phone behind the real adb server.
    if [ "$(id -u)" = 0 ]; then
        for need in fio:fio sqlite3:sqlite3 strace:strace mkfs.ext4:e2fsprogs sshd:openssh-server ssh:openssh-client adb:adb \
            mksh:mksh toybox:toybox busybox:busybox-static trace-cmd:trace-cmd fusermount3:fuse3 mkfs.xfs:xfsprogs \
            mkfs.btrfs:btrfs-progs mkfs.f2fs:f2fs-tools mkfs.vfat:dosfstools losetup:mount postmark:postmark \
            bindfs:bindfs; do
            PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null ||
                package "${need#*:}" "some tests of the recorder, of exports or of live studies are skipped"
        done
    fi
fi

lock=requirements.lock
[ "$what" = dev ] && lock=requirements-dev.lock
[ -x .venv/bin/python ] || python3 -m venv .venv
stamp=.venv/$lock.$(sha256sum "$lock" | cut -c1-16)
if [ ! -e "$stamp" ]; then
    say "installing Python packages ($lock)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
    touch "$stamp"
fi
say "building the Rust core (some minutes the first time)"
PIP_QUIET=1 VIRTUAL_ENV=$PWD/.venv .venv/bin/maturin develop --release --locked --quiet
# Else each command compiles the modules again where PYTHONDONTWRITEBYTECODE is set, as containers often do.
.venv/bin/python -m compileall -q python/emmclab
