#!/usr/bin/env bash
# Measures what README and DESIGN state about speed and memory: formats, profile, device, layers, host, power cuts, exports, and the
# tools that people use today. On one core; stop other work. Real traces given as arguments are measured beside the bundled ones.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run() { cargo run --release --locked --quiet -p "$1" --example "$2" -- "${@:3}"; }

printf '\n== Formats: reading on one core\n'
run emmclab-trace trace_speed --make "$folder/all-columns.parquet" 10000000
run emmclab-trace trace_speed "$folder/all-columns.parquet" "$@" ||
    printf 'reading failed\n'
printf '\n== Profile of everything, one core\n'
run emmclab-profile profile_speed python/emmclab/data/messages-rollback.parquet "$@"
printf '\n== Memory: a profile of 100 million requests over 32 GB, as a whole process\n'
run emmclab-trace trace_speed --make "$folder/large.parquet" 100000000
.venv/bin/python benches/memory.py "$folder/large.parquet"
rm "$folder/large.parquet"
printf '\n== A fleet of small recordings, whole processes\n'
.venv/bin/python benches/fleet.py ||
    printf 'below the goal\n'
printf '\n== Simulated device\n'
for case in new trace random full; do
    run emmclab-replay device_speed "$case"
done
printf '\n== Layers: decisions, memory, recovery\n'
run emmclab-layers layer_speed
printf '\n== Requests of the model of the host, beside those of Linux\n'
.venv/bin/python benches/host_against_linux.py ||
    printf 'needs root, FUSE and loop devices\n'
printf '\n== Power cuts: a log of 1 GB, then states judged in process, by e2fsck and by a mount\n'
run emmclab-crash crash_speed
.venv/bin/python benches/crash_recoveries.py ||
    printf 'needs root, FUSE and loop devices\n'
printf '\n== NBD server beside nbdkit and qemu-nbd\n'
run emmclab-serve nbd_speed
printf '\n== Recording: what it costs, and the requests that its log adds\n'
cargo build --release --locked --quiet -p emmclab-record --example record
{ .venv/bin/python benches/record_overhead.py && .venv/bin/python benches/tracer_overhead.py; } ||
    printf 'needs root and loop devices\n'
printf "\n== Simulations, whole processes (EMMCLAB_SSDSIM=FOLDER: beside SSDsim)\n"
.venv/bin/python benches/whole_process.py
command -v valgrind >/dev/null && .venv/bin/python benches/whole_process.py --instructions ||
    printf 'more instructions than kept, or no valgrind\n'
printf '\n== Start of the command line\n'
.venv/bin/python benches/start_up.py
printf '\n== Beside what users have today, whole processes\n'
.venv/bin/python benches/peers.py
