#!/usr/bin/env bash
# Makes the images that the ext4 fuzz targets patch: plain.zst without checksums, checked.zst with all of them. Both have a
# directory with a hash tree, holes, links, an unwritten extent, and a log of four transactions; plain.zst also a file of
# indirect blocks, checked.zst contents inside inodes. Needs e2fsprogs and zstd.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p files/many files/a/b
printf 'short\n' >files/a/short
ln files/a/short files/a/b/linked
ln -s a/short files/link
ln -s "$(printf 'x%.0s' {1..200})" files/long-link
for number in $(seq 60); do : >"files/many/file-number-$number-with-a-long-name"; done
for block in 0 3 7 12 20 40; do printf 'data' | dd of=files/holes bs=1024 seek=$block conv=notrunc status=none; done
make() { # name, mke2fs options...
    local name=$1
    shift
    truncate -s 2560K "$name"
    mkfs.ext4 -q -F -b 1024 -N 128 -J size=1 -U 01234567-89ab-cdef-0123-456789abcdef \
        -E hash_seed=01234567-89ab-cdef-0123-456789abcdef -d files "$@" "$name"
    e2fsck -fyD "$name" >/dev/null || true
}
log() { # name, debugfs option
    head -c 3072 /dev/urandom | tr '\0' '\1' >blocks
    printf '\xc0\x3b\x39\x98' | dd of=blocks bs=1024 seek=1 conv=notrunc status=none
    debugfs -w "$1" 2>/dev/null >/dev/null <<END
fallocate holes 60 70
jo -c $2
jw -b 2500,2501,2502 blocks
jw -r 2501
jw -b 2503 blocks
jw -b 2500,2504 blocks
jc
END
    zstd -q -19 -f "$1" -o "$here/$1.zst"
}
make plain -O ^metadata_csum,^uninit_bg,^64bit
debugfs -w plain 2>/dev/null >/dev/null <<END
write files/a/short indirect
set_inode_field indirect flags 0
set_inode_field indirect size 300000
set_inode_field indirect block[0] 2400
set_inode_field indirect block[IND] 2401
set_inode_field indirect block[DIND] 2402
END
log plain ''
make checked -O metadata_csum,64bit,inline_data
log checked '-v 3'
