#!/bin/sh
# Adds to FOLDER, which the build.sh of crates/record has filled, what tests/sdhci_guest.rs and tests/ublk.rs boot:
# FOLDER/initrd-serve, with mkfs and fsck of ext4, f2fs and vfat, tools of block devices and Debian's mmc-utils. sh build.sh FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
PATH=$PATH:/usr/sbin:/sbin
if [ ! -d mmc-utils ]; then
    mkdir -p packages
    (cd packages && apt-get download -qq mmc-utils 2>/dev/null) || { echo "cannot fetch mmc-utils" >&2; exit 3; }
    rm -rf unpacked
    dpkg-deb -x packages/mmc-utils_*.deb unpacked
    mv unpacked mmc-utils
fi
rm -rf root-serve
cp -a root root-serve
rm -f root-serve/work root-serve/bin/dropbear*
for name in mkfs.ext4 e2fsck mkfs.f2fs fsck.f2fs mkfs.vfat fsck.vfat blkid mount umount blkdiscard fstrim dd sync; do
    command -v $name
done >programs
echo mmc-utils/usr/bin/mmc >>programs
while read -r program; do
    cp -L "$program" root-serve/bin/
    # Each library under the name that the loader seeks; the loader itself by its path.
    ldd "$program" | awk '$2 == "=>" {print $3} $1 ~ /^\/.*ld-/ {print $1}' | while read -r library; do
        case $library in
        *ld-linux*) cp -L "$library" root-serve/lib64/ ;;
        *) cp -L "$library" root-serve/lib/ ;;
        esac
    done
done <programs
# For tests, which are programs in Rust.
for library in libgcc_s.so.1 libm.so.6; do cp -L "$(cc -print-file-name=$library)" root-serve/lib/; done
cp "$here/init" root-serve/
chmod +x root-serve/init
(cd root-serve && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >initrd-serve
