#!/usr/bin/env bash
# Prints the command of a QEMU with vfio-user (10.1 or later): the installed one, or one that is unpacked from Debian's
# trixie-backports into a folder, with its libraries, without installing anything: scripts/qemu_new.sh FOLDER. Packages are
# verified with Debian's keyring. If there is none, the reason is printed and the exit status is 3.
set -euo pipefail
folder=$(realpath -m "${1:?usage: scripts/qemu_new.sh FOLDER}")
none() { printf '%s\n' "$1" >&2; exit 3; }
able() { [[ $("$1" -device vfio-user-pci,help 2>&1) == *options:* ]]; }
for program in qemu-system-x86_64 "$folder/qemu"; do
    if able "$program"; then
        command -v "$program"
        exit
    fi
done
[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || none "this is not a Debian of amd64"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || none "$keyring is missing (Debian: debian-archive-keyring)"
# The mirror that this machine uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -E '/debian/?$' | sort -u | head -1) || true
[ -n "$mirror" ] || none "apt has no mirror of Debian"
# Only a folder that this script created is replaced.
[ ! -e "$folder" ] || [ -e "$folder/debian.sources" ] || none "$folder exists already and contains other files"
rm -rf "$folder"
mkdir -p "$folder"/{lists,archives}/partial "$folder/files"
cat >"$folder/debian.sources" <<END
Types: deb
URIs: $mirror
Suites: trixie trixie-backports
Components: main
Signed-By: $keyring
END
# A separate configuration of apt, in which no package is installed; the lists and settings of the system do not change.
: >"$folder/status"
cat >"$folder/apt.conf" <<END
Dir::Etc::SourceList "$folder/debian.sources";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$folder/lists";
Dir::State::Status "$folder/status";
Dir::Cache::Archives "$folder/archives";
Dir::Cache::PkgCache "";
Dir::Cache::SrcPkgCache "";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
export APT_CONFIG=$folder/apt.conf
apt-get -qq update >"$folder/log" 2>&1 || none "Debian's lists cannot be fetched: $(tail -1 "$folder/log")"
apt-get -qq --yes --download-only --target-release trixie-backports install qemu-system-x86 >"$folder/log" 2>&1 ||
    none "QEMU cannot be fetched: $(tail -1 "$folder/log")"
find "$folder/archives" -name '*.deb' -exec dpkg-deb --extract {} "$folder/files" \;
rm -rf "$folder/archives" "$folder/lists"
cat >"$folder/qemu" <<'END'
#!/bin/sh
files=$(dirname "$(readlink -f "$0")")/files
lib=$files/usr/lib/x86_64-linux-gnu
loader=$(find "$files/usr/lib64" "$lib" -name 'ld-linux-x86-64.so.2' 2>/dev/null | head -n 1)
export QEMU_MODULE_DIR="$lib/qemu"
exec "$loader" --library-path "$lib" "$files/usr/bin/qemu-system-x86_64" \
    -L "$files/usr/share/qemu" -L "$files/usr/share/seabios" "$@"
END
chmod +x "$folder/qemu"
able "$folder/qemu" || none "the QEMU of trixie-backports does not run here"
echo "$folder/qemu"
