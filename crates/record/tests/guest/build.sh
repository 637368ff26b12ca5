#!/bin/sh
# Builds what tests/guest.rs boots: sh build.sh FOLDER. Needs a Debian's apt (no root), cpio, binutils, e2fsprogs, fdisk and
# openssh-client. Leaves FOLDER/vmlinuz, FOLDER/initrd, FOLDER/card, FOLDER/ufs and FOLDER/key: Debian's
# newest kernel 6.12 (or $KERNEL_PACKAGE), a busybox with an ssh server and the modules that are needed, a card of two
# partitions with ext4 and f2fs, a logical unit of a UFS with ext4, and the key that logs in. What was fetched and unpacked before is used again.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
fetch() { # folder, packages...
    (
        mkdir -p "$1" && cd "$1" && shift
        apt-get download -qq "$@" 2>/dev/null || { echo "cannot fetch $*" >&2; exit 3; }
    )
}
# A folder of before the modules of UFS, or the list of what is built in, is filled anew.
if [ -z "$(find kernel -path '*/drivers/ufs/*.ko*' 2>/dev/null)" ] || [ -z "$(find kernel -name modules.builtin)" ]; then
    rm -rf kernel
    newest=$(apt-cache search --names-only '^linux-image-6\.12\.[^ ]*[0-9]-amd64(-unsigned)?$' | cut -d' ' -f1 | sort -V | tail -1)
    package=${KERNEL_PACKAGE:-${newest:-$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)}}
    fetch packages "$package"
    rm -rf unpacked && mkdir unpacked
    dpkg-deb --fsys-tarfile packages/linux-image*.deb | tar -x -C unpacked --wildcards './boot/vmlinuz*' '*/kernel/crypto/*' \
        '*/kernel/arch/x86/crypto/*' '*/kernel/drivers/mmc/*' '*/kernel/drivers/net/*virtio*' '*/kernel/drivers/net/net_failover*' \
        '*/kernel/drivers/virtio/*' '*/kernel/drivers/char/*' '*/modules.builtin' '*/kernel/drivers/scsi/*' '*/kernel/drivers/ufs/*' \
        '*/kernel/drivers/devfreq/*' '*/kernel/drivers/block/*' '*/kernel/block/*' '*/kernel/fs/*' '*/kernel/lib/*' '*/kernel/net/core/*'
    rm packages/linux-image*.deb
    mv unpacked kernel
fi
# The machine's own busybox may need libraries that the guest does not have, so the static one is fetched.
if [ ! -x tools/bin/busybox ]; then
    rm -rf tools packages
    fetch packages busybox-static dropbear-bin libtomcrypt1 libtommath1 libgmp10 libcrypt1 zlib1g libc6 f2fs-tools
    rm -rf unpacked && mkdir unpacked
    for package in packages/*.deb; do dpkg-deb -x "$package" unpacked; done
    mv unpacked tools
fi
cp kernel/boot/vmlinuz-* vmlinuz
modules=$(echo kernel/*/modules/* kernel/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -1)
plain() {
    case $1 in
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dcq "$1" ;;
    *) cat "$1" ;;
    esac
}
# Each module behind those that it needs. Names are written with - or _; what is built in has no file.
order() {
    for module in "$@"; do
        file=$(find "$modules" -name "$(echo "$module" | tr _- '??').ko*" | head -1)
        [ -n "$file" ] || continue
        needs=$(plain "$file" | strings -a | sed -n 's/^depends=//p' | tr , ' ')
        # shellcheck disable=SC2086
        [ -z "$needs" ] || (order $needs)
        echo "$file"
    done
}
rm -rf root
mkdir -p root/bin root/modules root/proc root/sys root/dev root/mnt root/tmp root/etc root/root/.ssh root/lib root/lib64
cp tools/bin/busybox root/bin/busybox
: >root/modules/order
order crc32c_generic libcrc32c crc32_generic virtio_pci virtio_net sdhci-pci mmc_block ufshcd-pci sd_mod ext4 f2fs vfat nls_cp437 nls_ascii \
    ublk_drv scsi_debug | awk '!seen[$0]++' >list
while read -r file; do
    name=$(basename "$file" | sed 's/\.xz$//; s/\.zst$//')
    plain "$file" >"root/modules/$name"
    # The disk of the re-issues is made by the work that uses it.
    [ "$name" = scsi_debug.ko ] || echo "$name" >>root/modules/order
done <list
cp tools/usr/sbin/dropbear tools/usr/bin/dropbearkey root/bin/
for library in libc.so.6 libz.so.1 libcrypt.so.1 libtomcrypt.so.1 libtommath.so.1 libgmp.so.10; do
    cp -L "$(find tools -name "$library" | head -1)" root/lib/
done
cp -L "$(find tools -name 'ld-linux-x86-64.so.2' | head -1)" root/lib64/
[ -f key ] || ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub root/root/.ssh/authorized_keys
echo 'root::0:0:root:/root:/bin/sh' >root/etc/passwd
echo /bin/sh >root/etc/shells
cp "$here/init" "$here/work" "$here/requeues" "$here/ufs" root/
chmod +x root/init root/work root/requeues root/ufs
chmod -R go-w root/root
(cd root && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >initrd
rm -f card ext4 f2fs ufs
truncate -s 256M card
printf '%s\n' '2048,204800' ',204800' | /sbin/sfdisk -q card
truncate -s 100M ext4 f2fs
/sbin/mkfs.ext4 -q ext4
tools/sbin/mkfs.f2fs f2fs >/dev/null 2>&1 || tools/usr/sbin/mkfs.f2fs f2fs >/dev/null
dd if=ext4 of=card bs=1M seek=1 conv=notrunc,sparse status=none
dd if=f2fs of=card bs=1M seek=101 conv=notrunc,sparse status=none
rm ext4 f2fs
truncate -s 128M ufs
/sbin/mkfs.ext4 -q -b 4096 ufs 64M
