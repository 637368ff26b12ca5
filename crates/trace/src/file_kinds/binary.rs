//! Recognises archives, images, databases and other binary files by their magic numbers, and registers of devices, which
//! `emmclab-registers` reads: the `EXT_CSD` register of an eMMC and the descriptors of a UFS.

use emmclab_registers::{fault_of_ext_csd, is_ext_csd, is_ufs};

use super::{FileHead, ForeignFileKind};
use crate::{Error, ErrorClass};

/// Declares the kind of an image of a file system or a disk.
macro_rules! image {
    ($what:literal, $is:expr) => {
        ForeignFileKind {
            noun_phrase: concat!("an image of ", $what),
            matches: $is,
            hint: "an image has the contents of a disk, a trace its requests: record with `emmclab record`, blktrace or \
                   trace-cmd while the device works; `emmclab crash --base IMAGE` takes an image as the disk before a log",
        }
    };
}

pub(super) static KINDS: &[ForeignFileKind] = &[
    ForeignFileKind {
        noun_phrase: "a zip archive",
        matches: |head| head.has(0, b"PK\x03\x04") || head.has(0, b"PK\x05\x06"),
        hint: "unpack it with `unzip` and name a file in it; files compressed by gzip, bzip2, xz or zstd are read directly",
    },
    ForeignFileKind {
        noun_phrase: "a tar archive",
        matches: |head| head.has(257, b"ustar"),
        hint: "unpack it with `tar xf` and name a file in it",
    },
    ForeignFileKind {
        noun_phrase: "an archive of 7-Zip or RAR",
        matches: |head| head.has(0, b"7z\xbc\xaf\x27\x1c") || head.has(0, b"Rar!\x1a\x07"),
        hint: "unpack it and name a file in it; files compressed by gzip, bzip2, xz or zstd are read directly",
    },
    ForeignFileKind {
        noun_phrase: "a file compressed by lz4, lzop, lzip or compress",
        matches: |head| {
            head.has(0, &[0x04, 0x22, 0x4d, 0x18])
                || head.has(0, &[0x02, 0x21, 0x4c, 0x18])
                || head.has(0, b"\x89LZO\0")
                || head.has(0, b"LZIP\x01")
                || head.has(0, &[0x1f, 0x9d])
        },
        hint: "decompress it first, or through a pipe: `lz4 -dc FILE | emmclab profile /dev/stdin`",
    },
    ForeignFileKind {
        noun_phrase: "a recording of `perf record` (perf.data)",
        matches: |head| head.has(0, b"PERFILE2") || head.has(0, b"PERFFILE"),
        hint: "print it as text and read that: `perf script -i perf.data > trace.txt`; it must contain block events \
               (`perf record -a -e 'block:*'`)",
    },
    ForeignFileKind {
        noun_phrase: "a log of dm-log-writes",
        matches: |head| head.has(0, b"rhswfsj\0"),
        hint: "`emmclab crash --log FILE` tries power cuts on it; a trace needs times: record with `emmclab record` or blktrace",
    },
    ForeignFileKind {
        noun_phrase: "a log of emmclab for power cuts",
        matches: |head| head.has(0, b"EMMCRASH"),
        hint: "`emmclab crash --log FILE` tries power cuts on it",
    },
    ForeignFileKind {
        noun_phrase: "an SQLite database",
        matches: |head| head.has(0, b"SQLite format 3\0"),
        hint: "export the table of requests as CSV (`sqlite3 -header -csv FILE 'SELECT ...'`) and name its columns with --columns",
    },
    ForeignFileKind {
        noun_phrase: "a program or core dump (ELF)",
        matches: |head| head.has(0, b"\x7fELF"),
        hint: "name the trace that was recorded: `emmclab record` records one, and so do blktrace, trace-cmd and Perfetto",
    },
    ForeignFileKind {
        noun_phrase: "a picture or document (PNG, JPEG, GIF, PDF)",
        matches: |head| {
            head.has(0, b"\x89PNG\r\n") || head.has(0, &[0xff, 0xd8, 0xff]) || head.has(0, b"GIF8") || head.has(0, b"%PDF-")
        },
        hint: "name the trace from which it was made",
    },
    ForeignFileKind {
        noun_phrase: "a capture of network packets (pcap)",
        matches: |head| {
            head.has(0, &[0xd4, 0xc3, 0xb2, 0xa1])
                || head.has(0, &[0xa1, 0xb2, 0xc3, 0xd4])
                || head.has(0, &[0x0a, 0x0d, 0x0d, 0x0a])
        },
        hint: "record the requests of the device: `emmclab record`, blktrace or trace-cmd",
    },
    image!("an ext2, ext3 or ext4 file system", |head| head.has(0x438, &[0x53, 0xef])),
    image!("an F2FS file system", |head| head.has(0x400, &[0x10, 0x20, 0xf5, 0xf2])),
    image!("an XFS file system", |head| head.has(0, b"XFSB")),
    image!("an EROFS or SquashFS file system", |head| head.has(0, b"hsqs") || head.has(0x400, &[0xe2, 0xe1, 0xf5, 0xe0])),
    ForeignFileKind {
        noun_phrase: "an Android sparse image",
        matches: |head| head.has(0, &[0x3a, 0xff, 0x26, 0xed]),
        hint: "an image has the contents of a disk, a trace its requests: record with `emmclab record`; `simg2img` makes a plain image of it",
    },
    ForeignFileKind {
        noun_phrase: "an image of a virtual disk (qcow2, VMDK, VDI)",
        matches: |head| head.has(0, b"QFI\xfb") || head.has(0, b"KDMV") || head.has(0, b"<<< "),
        hint: "an image has the contents of a disk, a trace its requests: record with `emmclab record` in the guest, or blktrace on the host",
    },
    image!("a disk with partitions or a boot sector", |head: &FileHead| {
        head.has(510, &[0x55, 0xaa]) && (head.bytes.len() > 512 || head.has(0, &[0xeb])) && head.bytes.contains(&0)
    }),
    ForeignFileKind {
        noun_phrase: "an EXT_CSD register, which describes an eMMC and its features",
        matches: |head: &FileHead| is_ext_csd(head.bytes),
        hint: "`emmclab explain FILE` explains it, and `emmclab preset --ext-csd FILE` makes a device preset of it; for its \
               I/O record with `emmclab record`, blktrace or trace-cmd",
    },
    ForeignFileKind {
        noun_phrase: "descriptors of a UFS, which describe it and its features",
        matches: |head: &FileHead| is_ufs(head.bytes),
        hint: "`emmclab explain FILE` explains them, and `emmclab preset --ufs FILE` makes a device preset of them; for its \
               I/O record with `emmclab record`, blktrace or trace-cmd",
    },
];

/// The error for a file that looks like a damaged register; `None` for other files.
pub(super) fn damaged_register(head: &[u8]) -> Option<Error> {
    let fault = fault_of_ext_csd(head)?;
    let problem = format!("this is no trace; it looks like an EXT_CSD register, but is not valid: {fault}");
    Some(Error::new(ErrorClass::UnknownFormat, problem).hint(fault.hint_text().unwrap_or_default()))
}
