#!/bin/sh
# Adds to FOLDER, which the build.sh of crates/record has filled, what tests/sdhci_guest.rs boots: FOLDER/initrd-sdhci, with
# mkfs and fsck of ext4 and Debian's mmc-utils in it. sh build.sh FOLDER
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
rm -rf root-sdhci
cp -a root root-sdhci
rm -f root-sdhci/work root-sdhci/bin/dropbear*
for program in "$(command -v mkfs.ext4)" "$(command -v e2fsck)" mmc-utils/usr/bin/mmc; do
    cp -L "$program" root-sdhci/bin/
    # Each library under the name that the loader seeks; the loader itself by its path.
    ldd "$program" | awk '$2 == "=>" {print $3} $1 ~ /^\/.*ld-/ {print $1}' | while read -r library; do
        case $library in
        *ld-linux*) cp -L "$library" root-sdhci/lib64/ ;;
        *) cp -L "$library" root-sdhci/lib/ ;;
        esac
    done
done
cp "$here/init" root-sdhci/
chmod +x root-sdhci/init
(cd root-sdhci && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >initrd-sdhci
