#!/usr/bin/env bash
# Runs the fuzz targets of trace readers and servers: scripts/fuzz.sh [SECONDS for each, 60] [TARGET ...]. Needs no nightly compiler:
# readers without `unsafe` need no sanitizer, and every compiler has the coverage instrumentation that guides the fuzzer. A finding
# ends the script; its input is in fuzz/artifacts. `cargo fuzz run TARGET`, if installed, does the same with a sanitizer.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:-60}
shift || true
target=${CARGO_TARGET_DIR:-$PWD/../target}/fuzz
flags='--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Cpasses=sancov-module'
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# With an explicit --target, build scripts and macros are not instrumented.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS=$flags CARGO_TARGET_DIR=$target cargo build --release --package emmclab-fuzz --bins --target "$host"
[ $# -gt 0 ] || set -- $(ls corpus)
for name in "$@"; do
    mkdir -p "artifacts/$name" "$target/corpus/$name"
    corpus=("corpus/$name")
    # The target that recognises files begins with the inputs of all readers.
    [ "$name" != any ] || corpus=(corpus/*)
    printf '%s: %s seconds\n' "$name" "$seconds"
    # New inputs stay in the build folder, because the corpus in the repository is small and selected by hand.
    "$target/$host/release/$name" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$name/" "$target/corpus/$name" "${corpus[@]}" 2>"$target/$name.log" ||
        { tail -40 "$target/$name.log"; exit 1; }
    grep -E '^stat::(number_of_executed_units|new_units_added|peak_rss_mb)' "$target/$name.log"
done
