# Undoes what a serving process made on this host once its standard input ends: the process stopped, or was killed.
# $1: the folder for its private folder; the others, if any, are a command that deletes the process's ublk devices. Prints that folder,
# then two control groups: that for commands, and that of the process; both are empty where groups cannot be made. Then it answers each
# line, the name of a folder that is wanted, with `there`, `made` or an error; `end` is the last line of a process that stops in good
# order. State is read from the kernel, so that nothing is missed that a tool was about to do.
trap '' HUP INT QUIT TERM PIPE TSTP TTIN TTOU
PATH=$PATH:/usr/sbin:/sbin:/usr/bin:/bin
parent=$PPID
folder=$(mktemp -d "$1/emmclab-XXXXXXXX") || exit 1
shift
printf '%s\n' "$folder"

# Makes a control group for the commands. All that they start is in it, too, whatever becomes of its environment and its parent.
group=
home=
for names in '' name=systemd pids freezer; do
    at=
    while read -r _ point kind options _; do
        case $names,$kind,,$options, in
            ,cgroup2,*) at=$point ;;
            ?*,cgroup,*",$names,"*) at=$point ;;
        esac
    done </proc/mounts
    path=$(sed -n "s/^[0-9]*:$names://p" /proc/self/cgroup)
    [ -n "$at" ] && [ -n "$path" ] || continue
    home=$at${path%/}
    group=$home/emmclab-${folder##*-}
    # Where processes cannot be moved into it and back, it is of no use.
    if { mkdir "$group" && echo $$ >"$group/cgroup.procs" && echo $$ >"$home/cgroup.procs"; } 2>/dev/null; then break; fi
    rmdir "$group" 2>/dev/null
    group=
    home=
done
printf '%s\n%s\n' "$group" "$home"

# Number of the FUSE connection, the minor number of its mount; nothing where it is not mounted.
connection() {
    while read -r _ _ device _ at _; do
        [ "$at" != "$folder" ] || echo "${device#*:}"
    done </proc/self/mountinfo
}

loops() {
    for attribute in /sys/block/loop*/loop/backing_file; do
        IFS= read -r backing <"$attribute" || continue
        [ "$backing" != "$folder/disk" ] || { name=${attribute#/sys/block/}; echo "/dev/${name%%/*}"; }
    done
}

unmount_file() { umount "$@" "$folder" || fusermount3 -u "$@" "$folder" || fusermount -u "$@" "$folder"; }

# The server was killed. Where its file system was mounted, paths lead to the folder of the host from now on: what was started for the
# device, with all that this started, would go on there and take for stored what the device does not have.
end_commands() {
    for process in $(grep -lzxsF "EMMCLAB_SERVER=$folder" /proc/[0-9]*/environ); do
        process=${process#/proc/}
        kill -9 "${process%/environ}"
    done
    round=0
    while [ -n "$group" ] && [ -n "$(cat "$group/cgroup.procs")" ] && [ $round -lt 100 ]; do
        while read -r process; do kill -9 "$process"; done <"$group/cgroup.procs"
        sleep 0.05 || sleep 1
        round=$((round + 1))
    done
}

# What a command left running when the process stopped in good order goes on.
leave_group() {
    [ -n "$group" ] || return
    while read -r process; do echo "$process" >"$home/cgroup.procs"; done <"$group/cgroup.procs"
    rmdir "$group"
}

# $@: the command that deletes ublk devices. A process that stopped in good order has deleted them itself.
undo() {
    for device in /sys/class/ublk-char/*; do
        if [ -e "$device" ] && [ $# -gt 0 ]; then
            "$@"
            break
        fi
    done
    # The server is gone or gives up: requests that wait for it must fail, or their processes cannot be ended.
    number=$(connection)
    if [ -n "$number" ]; then
        echo 1 >"/sys/fs/fuse/connections/$number/abort" || umount -f "$folder"
    fi
    round=0
    while [ -n "$(connection)" ] && [ $round -lt 100 ]; do
        for disk in $(loops); do
            for part in "$disk" "$disk"p*; do
                [ ! -b "$part" ] || umount --all-targets --lazy "$part"
            done
            # A busy device detaches by itself later. Told twice, it may belong to another process already.
            read -r told <"/sys/block/${disk#/dev/}/loop/autoclear" && [ "$told" = 0 ] || continue
            # The kernel keeps these for the next user of the device.
            echo 'write back' >"/sys/block/${disk#/dev/}/queue/write_cache"
            echo 0 >"/sys/block/${disk#/dev/}/queue/max_sectors_kb"
            echo 0 >"/sys/block/${disk#/dev/}/bdi/strict_limit"
            echo 100 >"/sys/block/${disk#/dev/}/bdi/max_ratio"
            losetup -d "$disk"
        done
        # A tool that was about to attach or mount fails soon; a file system that a process uses stays until that ends.
        if [ $round -lt 40 ]; then unmount_file; else unmount_file -z || umount -l "$folder"; fi
        [ -z "$(connection)" ] || sleep 0.05 || sleep 1
        round=$((round + 1))
    done
}

# A killed process keeps the pipe open while one of its threads waits for the file that the process served, or while a child
# that it forked lives. It is gone, a zombie, or has SIGKILL (the ninth bit) pending.
watch() {
    while sleep 1 && kill -0 $$; do
        state=
        pending=
        while read -r name value _; do
            case $name in State:) state=$value ;; SigPnd:) pending=$value ;; esac
        done <"/proc/$parent/status"
        case $state$pending in
            '' | [ZX]* | *[13579bdf]??)
                end_commands
                undo "$@"
                return
                ;;
        esac
    done
}
watch "$@" </dev/null >/dev/null 2>&1 &
watcher=$!

# The folder of the host cannot be changed while a file system is mounted on it: what writes there after the server was killed writes
# nothing. A file system without this attribute leaves the folder as it is.
guard() {
    attributes=$(lsattr -d -- "$1")
    case ${attributes%% *} in
        *i*) ;;
        *) chattr +i -- "$1" && guarded="$1
$guarded" ;;
    esac
} >/dev/null 2>&1

made=
guarded=
ended=
while IFS= read -r wanted; do
    if [ "$wanted" = end ]; then
        ended=yes
    elif [ -d "$wanted" ]; then
        guard "$wanted"
        echo there
    elif error=$(mkdir -- "$wanted" 2>&1); then
        made="$wanted
$made"
        guard "$wanted"
        echo made
    else
        printf '%s\n' "$error"
    fi
done
exec >/dev/null 2>&1
kill -9 $watcher
[ -n "$ended" ] || end_commands
undo "$@"
leave_group
printf '%s' "$guarded" | while IFS= read -r point; do chattr -i -- "$point"; done
printf '%s' "$made" | while IFS= read -r point; do rmdir -- "$point"; done
rmdir -- "$folder"
