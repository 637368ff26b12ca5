# Sourced by scripts: shows that long work goes on. A script that sources this ends `$beat` in its EXIT trap.

beat=
say() { printf '%s\n' "$*" >&2; }

# Runs a command that may take long. Away from a terminal a line every 20 s tells that it goes on, and how far it is:
# the newest of the lines that the command wrote.
alive() { # what is done, command...
    local what=$1 log status=0
    shift
    say "$what"
    if [ -t 2 ]; then
        "$@"
        return
    fi
    log=$(mktemp)
    while sleep 20 >/dev/null 2>&1; do
        say "$what: $SECONDS s: $(tail -n 1 "$log" | cut -c 1-80)"
    done &
    beat=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$beat" 2>/dev/null || true
    beat=
    [ $status = 0 ] || cat "$log" >&2
    rm -f "$log"
    return $status
}
