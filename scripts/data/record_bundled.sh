#!/usr/bin/env bash
# Records the bundled traces with `emmclab record`: phone-like workloads on a new ext4 on a loop device.
# Needs root and `make setup`. Usage: record_bundled.sh FOLDER
#
# The loop device has the limits of a phone (requests of at most 512 KB, 128 KB of read-ahead). Its backing file is on
# this host's disk: order, sizes and think times are those of the workload, service times are those of the host.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:?usage: record_bundled.sh FOLDER}")
mkdir -p "$out"
# The traces contain the names of host and file, so these are the same on every machine.
if [ "$(hostname)" != emmclab-demo ]; then
    exec unshare --uts sh -c 'hostname emmclab-demo && exec "$@"' sh "$0" "$out"
fi
work=/var/tmp/emmclab-demo
mkdir "$work"
loop=
cleanup() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [ -n "$loop" ] && losetup -d "$loop"
    rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/mnt"
mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing

for name in messages-rollback messages-wal package-install media-stream browser-cache; do
    truncate -s 1G "$work/disk"
    loop=$(losetup --find --show --direct-io=on "$work/disk")
    echo 512 >"/sys/block/${loop#/dev/}/queue/max_sectors_kb"
    echo 128 >"/sys/block/${loop#/dev/}/queue/read_ahead_kb"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o noatime "$loop" "$work/mnt"
    python3 scripts/data/bundled_workloads.py prepare "$name" "$work/mnt"
    sync -f "$work/mnt"
    echo 3 >/proc/sys/vm/drop_caches
    .venv/bin/emmclab record --device "$loop" --buffer-kb 16384 -o "$out/$name.parquet" -- \
        sh -c "python3 scripts/data/bundled_workloads.py run $name $work/mnt; sync -f $work/mnt; sleep 1"
    umount "$work/mnt"
    losetup -d "$loop"
    loop=
    rm "$work/disk"
done
