#!/bin/sh
# Builds what tests/guest.rs boots: sh build.sh FOLDER HELPER. Needs a Debian's apt (no root), cpio, binutils and
# busybox-static. Leaves FOLDER/vmlinuz, FOLDER/initrd and FOLDER/card: Debian's kernel (or what is unpacked in
# FOLDER/kernel already), a busybox with HELPER and the modules of an SD card behind sdhci, and the card's ext4.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
helper=$(realpath "$2")
mkdir -p "$1"
cd "$1"
package=${KERNEL_PACKAGE:-$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)}
[ -d kernel ] || { apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb kernel; }
cp kernel/boot/vmlinuz-* vmlinuz
modules=$(echo kernel/lib/modules/*)
plain() {
    case $1 in
    *.xz) xz -dc "$1" ;;
    *.zst) zstd -dcq "$1" ;;
    *) cat "$1" ;;
    esac
}
# Each module behind those that it needs. Names are written with - or _.
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
mkdir -p root/bin root/modules root/proc root/sys root/dev root/mnt root/tmp
cp "$(command -v busybox)" root/bin/busybox
: >root/modules/order
order crc32c_generic libcrc32c sdhci-pci mmc_block ext4 | awk '!seen[$0]++' >list
while read -r file; do
    name=$(basename "$file" | sed 's/\.xz$//; s/\.zst$//')
    plain "$file" >"root/modules/$name"
    echo "$name" >>root/modules/order
done <list
cp "$here/init" root/init
cp "$helper" root/helper
chmod +x root/init
(cd root && find . | cpio -o -H newc --quiet | gzip -1) >initrd
rm -f card
truncate -s 64M card
mkfs.ext4 -q card
