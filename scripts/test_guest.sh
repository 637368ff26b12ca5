#!/usr/bin/env bash
# Boots guests with Debian's kernel in QEMU: with an SD card and with a UFS, recorded over ssh; with a SCSI host that returns requests;
# with the eMMC of the SDHCI export; with power cuts under f2fs (emmclab crash --guest); and with served ublk devices. Skipped, with
# the reason, if QEMU or Debian's packages are not available. Downloads stay in $EMMCLAB_GUEST (build/guest) for the next run.
set -uo pipefail
cd "$(dirname "$0")/.."
# The same packages as in scripts/test.sh: with others, features of libraries would differ, and everything would be built again.
rust() { cargo test --locked "$@"; }
skip() { printf 'skipped: %s\n' "$1"; exit 0; }
PATH=$PATH:/usr/sbin:/sbin
[ "$(uname -m)" = x86_64 ] || skip "the guest needs an x86_64 machine"
command -v apt-get >/dev/null || skip "the guest is built from Debian's packages, and there is no apt-get"
declare -A packages=([qemu-system-x86_64]=qemu-system-x86 [cpio]=cpio [strings]=binutils
    [ssh-keygen]=openssh-client [sfdisk]=fdisk [mkfs.ext4]=e2fsprogs [xz]=xz-utils [mkfs.f2fs]=f2fs-tools
    [mkfs.vfat]=dosfstools)
for tool in "${!packages[@]}"; do
    command -v "$tool" >/dev/null && continue
    [ "$(id -u)" = 0 ] || skip "$tool is missing (Debian: ${packages[$tool]})"
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[$tool]}" >/dev/null 2>&1 ||
        skip "Debian's ${packages[$tool]} cannot be installed"
done
export EMMCLAB_GUEST=${EMMCLAB_GUEST:-$PWD/build/guest}
mkdir -p "$EMMCLAB_GUEST"
sh crates/record/tests/guest/build.sh "$EMMCLAB_GUEST"
case $? in
0) ;;
3) skip "Debian's packages cannot be fetched" ;;
*) exit 1 ;;
esac
EMMCLAB_GUEST_KERNEL=$(find "$EMMCLAB_GUEST/kernel" -name 'vmlinuz-*' | head -1)
export EMMCLAB_GUEST_KERNEL
scripts/setup.sh dev
# The tests use the same core as in scripts/test.sh.
rust --tests --no-run || exit
core=$(realpath "${CARGO_TARGET_DIR:-target}")/debug/deps/lib_core.so
EMMCLAB_TESTED_CORE=$core PYTHONPATH=$PWD/python:$PWD/tests/tested_core .venv/bin/python -m pytest -q tests/test_crash_guest.py || exit
rust --test record -- guest:: guest_reissues:: --test-threads 1 --nocapture || exit
EMMCLAB_QEMU=$(scripts/qemu_new.sh "$EMMCLAB_GUEST/qemu")
case $? in
0) export EMMCLAB_QEMU ;;
3) skip "there is no QEMU with vfio-user (10.1 or later)" ;;
*) exit 1 ;;
esac
sh crates/serve/tests/guest/build.sh "$EMMCLAB_GUEST"
case $? in
0) ;;
3) skip "Debian's mmc-utils cannot be fetched" ;;
*) exit 1 ;;
esac
rust --test record -- guest_ufs:: --test-threads 1 --nocapture || exit
rust --test sdhci_guest --test ublk -- --test-threads 1 --nocapture
