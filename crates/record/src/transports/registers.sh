# Prints what the devices of the disks $N say of themselves, for registers.rs. Runs under any POSIX shell, and needs no program.
g() {
[ -e "$1" ] || { echo "- $2 is not there"; return; }
v=
read -r v <"$1"
[ "$v" ] && echo "+ $2 $v" || echo "- $2 cannot be read"
}
S=
for n in $N; do
cd -P "/sys/block/$n/device" || continue
c=${PWD##*/}
u=$PWD
case $c in
mmc*:*)
t=
read -r t <type
[ "$t" = MMC ] || continue
k=emmc
;;
*:*:*:*)
k=ufs
while [ "$u" ] && [ ! -d "$u/device_descriptor" ]; do u=${u%/*}; done
case $u,$PWD in
,*ufs*) u=$PWD;;
,*) continue;;
esac
;;
*) continue;;
esac
echo "@@file registers/$n"
echo "$k $u"
case $S in *" $u "*) continue;; esac
S="$S $u "
cd "$u"
case $k in
emmc)
for f in cid csd name manfid oemid date hwrev fwrev rev life_time pre_eol_info raw_rpmb_size_mult rel_sectors; do g $f $f; done
case ${n#mmcblk} in *[!0-9]*) ;; *) g "/sys/block/$n/size" size;; esac
g "/sys/kernel/debug/${c%%:*}/$c/ext_csd" ext_csd
;;
ufs)
for d in device_descriptor geometry_descriptor health_descriptor interconnect_descriptor string_descriptors attributes flags power_info; do
[ -d $d ] || { echo "- $d is not there"; continue; }
for f in $d/*; do g "$f" "$f"; done
done
for f in host*/target*/*/unit_descriptor/*; do [ -e "$f" ] && g "$f" "$f"; done
;;
esac
done
