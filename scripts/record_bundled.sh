#!/usr/bin/env bash
# Records the bundled traces anew: phone-like workloads on a freshly made ext4 on a loop device, seen at the block
# tracepoints through a private tracefs instance. Needs root. Usage: record_bundled.sh FOLDER (for the text recordings)
#
# The loop device gets a phone's limits (requests of at most 512 KB, 128 KB of read-ahead). Its backing file lies on
# this host's disk: order, sizes and think times are those of the workload, service times are those of the host.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: record_bundled.sh FOLDER}")
mkdir -p "$out"
work=$(mktemp -d)
instance=/sys/kernel/tracing/instances/emmclab-bundled-$$
loop=
reader=
cleanup() {
    [ -n "$reader" ] && kill "$reader" 2>/dev/null
    [ -d "$instance" ] && rmdir "$instance"
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
    python3 scripts/bundled_workloads.py prepare "$name" "$work/mnt"
    sync
    echo 3 >/proc/sys/vm/drop_caches

    mkdir "$instance"
    echo mono >"$instance/trace_clock"
    echo 16384 >"$instance/buffer_size_kb"
    for event in bio_queue split bio_backmerge bio_frontmerge getrq rq_insert rq_merge rq_requeue rq_issue rq_complete; do
        echo "dev == $((0x$(stat -c %t "$loop") << 20 | 0x$(stat -c %T "$loop")))" >"$instance/events/block/block_$event/filter"
        echo 1 >"$instance/events/block/block_$event/enable"
    done
    cat "$instance/trace_pipe" >"$out/$name.txt" &
    reader=$!
    python3 scripts/bundled_workloads.py run "$name" "$work/mnt"
    sync -f "$work/mnt"
    sleep 1
    echo 0 >"$instance/events/enable"
    sleep 1
    kill "$reader"
    wait "$reader" || true
    reader=
    printf '%s: %s events, lost: %s\n' "$name" "$(wc -l <"$out/$name.txt")" \
        "$(awk '/^overrun/ {n += $2} END {print n}' "$instance"/per_cpu/cpu*/stats)"
    rmdir "$instance"
    umount "$work/mnt"
    losetup -d "$loop"
    loop=
    rm "$work/disk"
done
