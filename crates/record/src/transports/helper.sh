# Runs on the recorded machine under any POSIX shell (dash, mksh, toybox, busybox) as root, given on the command line.
# Needs cat, dd, mkdir, rmdir, sleep. Writes to tracefs only. Speaks the protocol of stream.rs.
f() { [ -r "$2" ] && echo "@@file $1" && cat "$2" 2>/dev/null; }
w() { echo "$1" >"$2"; } 2>/dev/null
disks() {
echo "@@file disks"
for d in /sys/block/*; do
n=${d##*/}
read -r v <$d/dev && read -r z <$d/size && echo "disk $n $v $z"
for p in $d/$n*; do read -r v 2>/dev/null <$p/dev && echo "part ${p##*/} $v $n"; done
for p in $d/slaves/*; do [ -e "$p" ] && echo "slave ${p##*/} $n"; done
[ -e $d/loop/backing_file ] && read -r v <$d/loop/backing_file && echo "back $n $v"
[ -e $d/device/name ] && read -r v <$d/device/name && echo "model $n $v"
read -r v <$d/diskseq && echo "seq $n $v"
done 2>/dev/null
f mounts /proc/mounts
}
die() { echo "@@error $1"; exit 1; }
echo "@@emmclab 1"
T=/sys/kernel/tracing
[ -e $T/trace_clock ] || mount -t tracefs nodev $T 2>/dev/null
[ -e $T/trace_clock ] || T=/sys/kernel/debug/tracing
[ -e $T/trace_clock ] || mount -t debugfs nodev /sys/kernel/debug 2>/dev/null
[ -d $T/instances ] || die tracefs
age() { read -r a <"/proc/$1/stat" || return; a=${a##*) }; set -- $a; echo "${20}"; } 2>/dev/null
for d in $T/instances/emmclab*-*-*; do
p=${d##*/emmclab}
p=${p#*-}
[ -d "$d" ] && [ "$(age "${p%-*}")" != "${p#*-}" ] && rmdir "$d"
done 2>/dev/null
I=$T/instances/emmclab-$$-$(age $$)
mkdir "$I" 2>/dev/null || die instance
W=
bye() { [ -z "$W" ] || kill $W; rmdir $I || { sleep 1; rmdir $I; }; } 2>/dev/null
trap bye EXIT
trap 'exit 1' HUP INT PIPE
trap 's=' TERM
w 0 $I/tracing_on
w mono $I/trace_clock || w global $I/trace_clock
echo "@@file byte_order"
dd if=/proc/self/exe bs=1 skip=5 count=1 2>/dev/null
echo
for e in trace_clock events/header_page events/header_event; do f $e $I/$e; done
for p in "block/block_*" "mmc/mmc_request_*" "mmc/mmc_blk_*" ufs/ufshcd_command ufs/ufshcd_uic_command "ext4/ext4_sync_file_e*" "f2fs/f2fs_sync_file_e*" jbd2/jbd2_run_stats; do
for e in $I/events/$p/format; do f "${e#"$I/"}" "$e"; done
done
f release /proc/sys/kernel/osrelease
f host /proc/sys/kernel/hostname
echo "@@file cpus"
for c in $I/per_cpu/cpu*; do echo "${c##*cpu}"; done
disks
echo "@@ready"
# The answer: buffer size in KB, page size, most events per page, seconds between rounds, events, filter, and up to a line "."
# what prints the registers of the devices, which would not fit into the command.
read -r B S M N && read -r E && read -r F || exit 1
G=
while read -r l && [ "$l" != . ]; do G="$G$l
"; done
(eval "$G") 2>/dev/null
w "$B" $I/buffer_size_kb || die buffer
for e in $E; do
case $F,$e in ?*,block/*) w "$F" "$I/events/$e/filter";; esac && w 1 "$I/events/$e/enable" || die "event $e"
done
C=
for c in $I/per_cpu/cpu*; do C="$C ${c##*cpu}"; done
s=1
exec 3<&0
{ read -r x; kill -TERM $$; } <&3 >/dev/null 2>&1 &
W=$!
exec 4>&1
w 1 $I/tracing_on
echo "@@stream"
# The kernel writes stats anew for every read, and `read` takes it byte by byte: only cat sees one state of it.
# A record that is counted before it can be read ends dd too early ("2+0 records in"): empty pages stand for the rest.
while :; do
g=$s
[ "$g" ] || w 0 $I/tracing_on
for c in $C; do
p=$I/per_cpu/cpu$c
while read -r x n <$p/stats && [ "$n" != 0 ] && n=$(cat $p/stats) && n=${n#*: } && n=${n%%[!0-9]*} && [ "${n:-0}" != 0 ]; do
k=$(((n + M - 1) / M))
echo "P $c $k" && r=$(dd if=$p/trace_pipe_raw bs="$S" count=$k 2>&1 >&4) || exit 1
r=${r%%+*}
r=${r##*[!0-9]}
k=$((k - ${r:-$k}))
[ $k = 0 ] || dd if=/dev/zero bs="$S" count=$k 2>/dev/null || exit 1
done
done
echo R || exit 1
[ "$g" ] || break
sleep "$N" 2>/dev/null || sleep 1
done
echo E
for c in $C; do f "per_cpu/cpu$c/stats" $I/per_cpu/cpu$c/stats; done
disks
f saved_cmdlines $T/saved_cmdlines
trap - EXIT
bye
echo "@@end"
