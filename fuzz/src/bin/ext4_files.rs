//! Input is patches of an image (`emmclab_fuzz::Patched`); the first byte chooses the image. Every file that can be reached is
//! looked up, listed, mapped and read, and the whole is walked.
#![no_main]

use emmclab_ext4::{Ext4FileKind, Ext4Filesystem};
use emmclab_fuzz::Patched;
use libfuzzer_sys::fuzz_target;

const PATHS: [&str; 10] = [
    "/",
    "/a",
    "/a/short",
    "/a/b/linked",
    "/link",
    "/long-link",
    "/many",
    "/many/file-number-7-with-a-long-name",
    "/holes",
    "/indirect",
];

fuzz_target!(|data: &[u8]| {
    let disk = Patched::new(data);
    let Ok(files) = Ext4Filesystem::open(&disk) else { return };
    for path in PATHS {
        let Ok(Some(inode)) = files.lookup(path) else { continue };
        match inode.kind() {
            Ext4FileKind::Directory => drop(std::hint::black_box(files.list(&inode))),
            Ext4FileKind::Symlink => drop(std::hint::black_box(files.link(&inode))),
            _ => drop(std::hint::black_box(files.contents(&inode, 1 << 20))),
        }
        std::hint::black_box(files.map(&inode).take(5000).filter_map(Result::ok).map(|run| run.blocks).sum::<u64>());
    }
    std::hint::black_box(files.walk(100).faults.len());
});
