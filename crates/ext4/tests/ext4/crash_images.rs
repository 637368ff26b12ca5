//! Images are copied while the kernel has them mounted and writes. This crate shows the same files as the kernel after its own replay, as
//! e2fsck after its repair, and as another implementation.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::tree::{self, Tree};
use crate::support::{Images, repair, run, text, try_run};
use emmclab_ext4::{DiskReader, Ext4Filesystem, JournalRecovery};
use fs_ext4::block_io::FileDevice;

/// A mounted image, which is unmounted when it is dropped.
pub struct Mounted {
    pub point: PathBuf,
    loops: Vec<String>,
}

impl Mounted {
    pub fn new(image: &Path, point: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&point).unwrap();
        let device = attach(image);
        run("mount", &["-t", "ext4", "-o", options, &device, text(&point)]);
        Self { point, loops: vec![device] }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that another test starts may keep the mount busy for a moment.
        try_run("umount", &["-l", text(&self.point)]);
        for device in &self.loops {
            try_run("losetup", &["-d", device]);
        }
    }
}

pub fn attach(image: &Path) -> String {
    run("losetup", &["-f", "--show", text(image)]).trim().to_owned()
}

fn ours(image: &Path) -> (Tree, u32, u64) {
    let file = File::open(image).unwrap();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&file).unwrap();
    assert!(replayed.replay().refused.is_none(), "{:?}", replayed.replay());
    let files = Ext4Filesystem::open(&replayed).unwrap();
    let walk = files.walk(10);
    assert!(walk.faults.is_empty(), "{}", walk.faults[0]);
    (tree::of_filesystem(&files), replayed.replay().end - replayed.replay().first, replayed.replay().revokes)
}

/// The names and contents of regular files according to rust-fs-ext4, which replays the image; `None` for a journal whose features it does
/// not support.
fn by_another(image: &Path) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let device = Arc::new(FileDevice::open_path_rw(image).unwrap());
    let files = match fs_ext4::fs::Filesystem::mount(device) {
        Err(fs_ext4::Error::Unsupported(_)) => return None,
        mounted => mounted.unwrap(),
    };
    let mut out = Vec::new();
    let mut left = vec![(Vec::new(), 2_u32)];
    while let Some((path, directory)) = left.pop() {
        for entry in files.read_dir_ino(directory).unwrap() {
            let name = &entry.name[..];
            if name == b"." || name == b".." || name == b"lost+found" {
                continue;
            }
            let below = tree::path_below(&path, name);
            let inode = files.stat_ino(entry.inode).unwrap();
            if inode.mode >> 12 == 4 {
                left.push((below, entry.inode));
            } else {
                let mut contents = vec![0; inode.size as usize];
                let read = files.read_ino(entry.inode, 0, &mut contents).unwrap();
                assert_eq!(read, contents.len());
                out.push((below, contents));
            }
        }
    }
    Some(out)
}

#[test]
fn images_copied_under_a_mounted_kernel_replay_as_by_kernel_and_e2fsck() {
    let sets: &[(&[&str], &str)] = &[
        (&["-b", "4096"], "data=ordered"),
        (&["-b", "1024"], "data=ordered"),
        (&["-b", "4096", "-O", "^metadata_csum,^64bit"], "data=ordered"),
        (&["-b", "4096", "-O", "^metadata_csum"], "journal_checksum"),
        (&["-b", "4096"], "journal_async_commit,data=writeback"),
        (&["-b", "1024", "-O", "inline_data,metadata_csum_seed"], "data=journal"),
        (&["-b", "4096", "-O", "^extent,^64bit"], "data=journal"),
    ];
    let (mut transactions, mut revokes, mut others) = (0, 0, 0);
    for (options, mount) in sets {
        let Some(images) = Images::if_possible(true, &["mount", "umount", "losetup"]) else { return };
        let image = images.make("image", 64 << 20, options);
        let mounted = Mounted::new(&image, images.path("mounted"), mount);
        let mut copies = Vec::new();
        for round in 0..3 {
            tree::work(&mounted.point, round);
            let copy = images.path(&format!("copy-{round}"));
            fs::copy(&image, &copy).unwrap();
            copies.push(copy);
        }
        drop(mounted);
        for copy in copies {
            let about = format!("{options:?} {mount} {}", copy.display());
            let (tree, replayed, revoked) = ours(&copy);
            transactions += replayed;
            revokes += revoked;
            let by_kernel = images.path("by-kernel");
            fs::copy(&copy, &by_kernel).unwrap();
            let kernel = Mounted::new(&by_kernel, images.path("kernel"), "ro");
            tree::assert_same(&tree, &tree::of_folder(&kernel.point), &format!("{about}, kernel"));
            drop(kernel);
            let repaired = images.path("repaired");
            fs::copy(&copy, &repaired).unwrap();
            repair(&["-fy"], &repaired);
            tree::assert_same(&tree, &ours(&repaired).0, &format!("{about}, e2fsck"));
            // rust-fs-ext4 reads only directories with extents.
            let expected = if options.contains(&"^extent,^64bit") { None } else { by_another(&copy) };
            let Some(expected) = expected else { continue };
            others += 1;
            for (name, contents) in expected {
                assert!(tree[&name].contents() == contents, "{about}, rust-fs-ext4: {name:?}");
            }
        }
    }
    // rust-fs-ext4 also refuses journals with `ASYNC_COMMIT`.
    assert_eq!(others, 3 * (sets.len() - 2));
    // The comparison is meaningful: the copies were not clean, and had revokes.
    assert!(transactions > 40 && revokes > 20, "{transactions} transactions, {revokes} revokes");
}

#[test]
fn an_external_journal_is_replayed() {
    for size in ["1024", "4096"] {
        let Some(images) = Images::if_possible(true, &["mount", "umount", "losetup"]) else { return };
        let journal = images.blank("journal", 8 << 20);
        run("mkfs.ext4", &["-q", "-F", "-b", size, "-O", "journal_dev", text(&journal)]);
        let journal_loop = attach(&journal);
        let image = images.make("image", 32 << 20, &["-b", size, "-J", &format!("device={journal_loop}")]);
        let mut mounted = Mounted::new(&image, images.path("mounted"), "data=ordered");
        mounted.loops.push(journal_loop);
        tree::work(&mounted.point, 1);
        let (copy, journal_copy) = (images.path("copy"), images.path("journal-copy"));
        fs::copy(&image, &copy).unwrap();
        fs::copy(&journal, &journal_copy).unwrap();
        drop(mounted);
        let (disk, log) = (File::open(&copy).unwrap(), File::open(&journal_copy).unwrap());
        let mut recovery = JournalRecovery::new();
        let message = recovery.replay(&disk).err().unwrap().to_string();
        assert!(message.contains("another device"), "{message}");
        let message = recovery.replay_external(&disk, &disk).err().unwrap().to_string();
        assert!(message.contains("not a journal device"), "{message}");
        let replayed = recovery.replay_external(&disk, &log).unwrap();
        assert!(replayed.replay().blocks > 20);
        let files = Ext4Filesystem::open(&replayed).unwrap();
        assert!(files.walk(10).faults.is_empty());
        let tree = tree::of_filesystem(&files);
        assert!(replayed.size().unwrap() == 32 << 20);
        repair(&["-fy", "-j", text(&journal_copy)], &copy);
        let disk = File::open(&copy).unwrap();
        tree::assert_same(&tree, &tree::of_filesystem(&Ext4Filesystem::open(&disk).unwrap()), size);
    }
}
