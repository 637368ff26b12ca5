# Sourced by scripts: shows the progress of long work. A script that sources this ends `$beat` in its EXIT trap.

beat=
say() { printf '%s\n' "$*" >&2; }

# Runs a command that may take long. If stderr is not a terminal, it prints every 20 s the last line of the command's output.
alive() { # description, command...
    local task=$1 log status=0
    shift
    say "$task"
    if [ -t 2 ]; then
        "$@"
        return
    fi
    log=$(mktemp)
    while sleep 20 >/dev/null 2>&1; do
        say "$task: $SECONDS s: $(tail -n 1 "$log" | cut -c 1-80)"
    done &
    beat=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$beat" 2>/dev/null || true
    beat=
    [ $status = 0 ] || cat "$log" >&2
    rm -f "$log"
    return $status
}
