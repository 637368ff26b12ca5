#!/usr/bin/env bash
# Measures the speed and memory that README and DESIGN report: formats, profile, device, layers, host, power cuts, exports, and other
# tools. Uses one core; stop other work. Recorded traces in the arguments are measured in addition to the bundled ones.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# A bench that fails is distinguished from one that cannot run here.
python() { .venv/bin/python "$@" || printf 'FAILED: %s\n' "$*"; }
as_root() { if [ "$(id -u)" = 0 ]; then python "$@"; else printf 'not measured: needs root, FUSE and loop devices\n'; fi; }
run() { cargo run --release --locked --quiet -p "$1" --example "$2" -- "${@:3}"; }

printf '\n== Formats: reading on one core\n'
run emmclab-trace trace_speed --make "$folder/all-columns.parquet" 10000000
run emmclab-trace trace_speed "$folder/all-columns.parquet" "$@" ||
    printf 'reading failed\n'
printf '\n== Complete profile, one core\n'
run emmclab-profile profile_speed python/emmclab/data/messages-rollback.parquet "$@"
printf '\n== Memory: a profile of 100 million requests over 32 GB, as a whole process\n'
run emmclab-trace trace_speed --make "$folder/large.parquet" 100000000
python benches/memory.py "$folder/large.parquet"
rm "$folder/large.parquet"
printf '\n== A fleet of small recordings, whole processes\n'
python benches/fleet.py
printf '\n== Simulated device\n'
for case in new random full; do
    run emmclab-replay device_speed "$case"
done
printf '\n== Layers: decisions, memory, recovery\n'
run emmclab-layers layer_speed
printf '\n== Requests of the model of the host, compared with Linux\n'
as_root benches/host_against_linux.py
printf '\n== Power cuts: a log of 1 GB, then states judged in process, by e2fsck and by a mount\n'
run emmclab-crash crash_speed
as_root benches/crash_recoveries.py
printf '\n== NBD server, compared with nbdkit and qemu-nbd\n'
run emmclab-serve nbd_speed
printf '\n== Recording: its overhead, and the requests that its log adds\n'
cargo build --release --locked --quiet -p emmclab-record --example record
as_root benches/record_overhead.py
as_root benches/tracer_overhead.py
printf "\n== Simulations, whole processes (EMMCLAB_SSDSIM=FOLDER: compared with SSDsim)\n"
python benches/whole_process.py
python benches/whole_process.py --instructions
printf '\n== Start of the command line\n'
python benches/start_up.py
printf '\n== Compared with existing tools, whole processes\n'
python benches/peers.py
