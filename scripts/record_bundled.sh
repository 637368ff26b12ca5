#!/usr/bin/env bash
# Records the bundled traces anew: phone-like workloads on a freshly made ext4 on a loop device, seen by perf at the
# block tracepoints. Needs root and Debian's linux-perf. Usage: record_bundled.sh FOLDER (for the text recordings)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: record_bundled.sh FOLDER}")
mkdir -p "$out"
work=$(mktemp -d)
loop=
cleanup() {
    mountpoint -q "$work/mnt" && umount "$work/mnt"
    [ -n "$loop" ] && losetup -d "$loop"
    rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/mnt"
events=()
mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing

for name in messages-rollback messages-wal package-install media-stream browser-cache; do
    truncate -s 1G "$work/disk"
    loop=$(losetup --find --show --direct-io=on "$work/disk")
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
    mount -o noatime "$loop" "$work/mnt"
    python3 scripts/bundled_workloads.py prepare "$name" "$work/mnt"
    sync
    echo 3 >/proc/sys/vm/drop_caches
    device=$((0x$(stat -c %t "$loop") << 20 | 0x$(stat -c %T "$loop")))
    events=()
    for event in bio_queue split bio_backmerge bio_frontmerge getrq rq_insert rq_merge rq_requeue rq_issue rq_complete; do
        events+=(-e "block:block_$event" --filter "dev == $device")
    done
    perf record -q -a -k CLOCK_MONOTONIC -m 4M "${events[@]}" -o "$work/perf.data" -- \
        bash -c "python3 scripts/bundled_workloads.py run $name $work/mnt && sync -f $work/mnt"
    perf script --ns -i "$work/perf.data" >"$out/$name.txt"
    umount "$work/mnt"
    losetup -d "$loop"
    loop=
    rm "$work/disk"
    printf '%s: %s events\n' "$name" "$(wc -l <"$out/$name.txt")"
done
