//! Fast commits of a mounted kernel, and damaged ones: this crate shows what Linux mounts after its own replay, and refuses what Linux
//! refuses.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::crash_images::{Mounted, attach};
use crate::support::journal::{crc32c, journal_blocks, set_recovery};
use crate::support::tree::{self, Tree};
use crate::support::{Images, Numbers, text, try_run};
use emmclab_ext4::{Ext4Filesystem, JournalRecovery};
use emmclab_testing::cases;
use rustix::fs::XattrFlags;

fn name(numbers: &mut Numbers, folder: &Path) -> PathBuf {
    let below = ["", "many", "made-0", "made-1"][numbers.below(4) as usize];
    let number = numbers.below(9);
    folder.join(below).join(format!("name-{number}{}", "x".repeat(20 * (number as usize % 3))))
}

fn sync(path: &Path) {
    if let Ok(file) = File::open(path) {
        file.sync_all().unwrap();
    }
}

/// Makes a random change. Changes that are not possible are skipped.
fn change(numbers: &mut Numbers, folder: &Path) {
    let (one, other) = (name(numbers, folder), name(numbers, folder));
    let block = numbers.below(24) * 4096;
    let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&one);
    match numbers.below(15) {
        0..=2 => drop(open().map(|file| file.write_all_at(&vec![7; 1 + block as usize / 3], block))),
        3 => drop(open().map(|file| (0..12).for_each(|at| drop(file.write_all_at(&[at as u8 + 1; 900], at * 8192))))),
        4 => drop(open().map(|file| file.set_len(block + 100))),
        5 => drop(fs::hard_link(&one, &other)),
        6 => drop(fs::remove_file(&one)),
        7 | 8 => drop(fs::rename(&one, &other)),
        9 => drop(fs::create_dir(folder.join(format!("made-{}", block / 4096 % 2)))),
        10 => drop(fs::remove_dir(folder.join(format!("made-{}", block / 4096 % 2)))),
        11 => drop(symlink("short", &one)),
        12 | 13 => {
            let name = ["user.short", "user.of-a-long-name"][block as usize / 4096 % 2];
            let value = vec![b'a'; 1 + block as usize / 40];
            let _ = rustix::fs::lsetxattr(&one, name, &value, XattrFlags::empty());
        }
        _ => {
            let _ = rustix::fs::lremovexattr(&one, "user.short");
        }
    }
    match numbers.below(3) {
        0 => {}
        1 => sync(&one),
        _ => sync(&folder.join("anchor")),
    }
}

/// The tree without times of directories, which the replay of the kernel changes.
fn ours(image: &Path) -> Result<(Tree, u64), String> {
    let file = File::open(image).unwrap();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&file).map_err(|error| error.to_string())?;
    if let Some(refused) = &replayed.replay().refused {
        return Err(refused.to_string());
    }
    let files = Ext4Filesystem::open(&replayed).unwrap();
    let faults = files.walk(10).faults;
    // Linux does not count links of directories in fast commits.
    let others: Vec<_> = faults.iter().map(ToString::to_string).filter(|fault| !fault.contains("the link count is")).collect();
    assert!(others.is_empty(), "{}: {others:?}", image.display());
    Ok((tree::without_folder_times(tree::of_filesystem(&files)), replayed.replay().fast_commits))
}

/// The tree that Linux mounts, which changes the image; `None` if Linux refuses.
fn by_linux(image: &Path, point: &Path) -> Option<Tree> {
    fs::create_dir_all(point).unwrap();
    let device = attach(image);
    let mounted = try_run("mount", &["-t", "ext4", &device, text(point)]).status.success();
    let replayed = mounted.then(|| tree::without_folder_times(tree::of_folder(point)));
    if mounted {
        // A process that another test starts may keep the mount busy for a moment.
        try_run("umount", &["-l", text(point)]);
    }
    try_run("losetup", &["-d", &device]);
    replayed
}

/// Writes the replay of this crate to the image, and checks that e2fsck reports no damage except counts.
fn written_out(image: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let (mut recovery, mut blocks) = (JournalRecovery::new(), Vec::new());
    let replayed = recovery.replay(&file).unwrap();
    replayed
        .write_to(|at, bytes| {
            blocks.push((at, bytes.to_vec()));
            Ok(())
        })
        .unwrap();
    blocks.extend(replayed.superblocks_after().unwrap());
    for (at, bytes) in blocks {
        file.write_all_at(&bytes, at).unwrap();
    }
}

#[test]
fn fast_commits_whole_and_damaged_replay_or_are_refused_as_by_linux() {
    let sets: &[&[&str]] = &[
        &["-b", "4096", "-J", "size=8"],
        &["-b", "1024", "-J", "size=2"],
        &["-b", "4096", "-J", "size=8", "-O", "^metadata_csum"],
        &["-b", "1024", "-J", "size=2", "-O", "^flex_bg,^64bit", "-g", "4096"],
    ];
    let rounds = std::env::var("EMMCLAB_FAST_COMMIT_ROUNDS").map_or(1, |text| text.parse().unwrap());
    let steps = cases(24).max(8);
    let (mut mounted_states, mut refused_states, mut commits) = (0, 0, 0);
    for round in 0..rounds {
        for (set, options) in sets.iter().enumerate() {
            let Some(images) = Images::if_possible(true, &["mount", "umount", "losetup"]) else { return };
            let mut numbers = Numbers(round * 31 + set as u64);
            let all = [&["-O", "fast_commit"], *options].concat();
            let image = images.make("image", 48 << 20, &all);
            // An image that is copied while it is mounted may be in a state that debugfs cannot read.
            let map = journal_blocks(&image);
            let mounted = Mounted::new(&image, images.path("mounted"), "data=ordered");
            fs::create_dir(mounted.point.join("many")).unwrap();
            for number in 0..120 {
                fs::write(mounted.point.join(format!("many/{number}-{}", "m".repeat(40))), "x").unwrap();
            }
            fs::write(mounted.point.join("anchor"), "anchor").unwrap();
            try_run("sync", &[]);
            for step in 0..steps {
                for _ in 0..=numbers.below(3) {
                    change(&mut numbers, &mounted.point);
                }
                sync(&mounted.point.join("anchor"));
                let copy = images.path("copy");
                fs::copy(&image, &copy).unwrap();
                let damage = numbers.below(4);
                if damage < 2 {
                    let size = if options[1] == "1024" { 1024 } else { 4096 };
                    let disk = OpenOptions::new().read(true).write(true).open(&copy).unwrap();
                    let mut fast = [0; 4];
                    disk.read_exact_at(&mut fast, map[0] as u64 * size + 0x54).unwrap();
                    let first = map.len() - u32::from_be_bytes(fast) as usize + 1;
                    // After the head of the first block, or the beginning of another block.
                    let block = if damage == 0 { map[first] } else { map[first + 1 + numbers.below(2) as usize] };
                    let from = if damage == 0 { 16 } else { 0 };
                    disk.write_all_at(&[0; 400], block as u64 * size + from).unwrap();
                }
                let about = format!("round {round}, {options:?}, step {step}, damage {damage}");
                let replayed = ours(&copy);
                let third = images.path("third");
                if replayed.is_ok() {
                    fs::copy(&copy, &third).unwrap();
                    written_out(&third);
                }
                let linux = by_linux(&copy, &images.path("linux"));
                match (replayed, linux) {
                    (Ok((tree, fast)), Some(linux)) => {
                        tree::assert_same(&tree, &linux, &about);
                        let rewritten = by_linux(&third, &images.path("linux")).expect(&about);
                        tree::assert_same(&rewritten, &linux, &format!("{about}, written out"));
                        mounted_states += 1;
                        commits += fast;
                    }
                    (Err(_), None) => refused_states += 1,
                    (Ok(_), None) => panic!("{about}: Linux refuses"),
                    (Err(error), Some(_)) => panic!("{about}: Linux mounts, refused here: {error}"),
                }
            }
        }
    }
    let counts = format!("{mounted_states} mounted, {refused_states} refused, {commits} fast commits");
    // In 24 rounds, more than 40 states were mounted and more than 20 fast commits replayed; fewer rounds require the same share.
    eprintln!("{counts}");
    let enough = mounted_states * 24 > 40 * steps && commits * 24 > 20 * u64::from(steps);
    assert!(enough && refused_states > 0, "{counts}");
}

/// An image with files in inodes from 12 on, whose journal has fast commits of transaction 7 on top of an empty log.
struct Written {
    image: Vec<u8>,
    map: Vec<usize>,
}

impl Written {
    /// `None` skips the test, as in [`Images::if_possible`].
    fn new() -> Option<Self> {
        let images = Images::if_possible(false, &[])?;
        let folder = images.path("files");
        fs::create_dir_all(folder.join("folder")).unwrap();
        fs::write(folder.join("folder/one"), vec![1; 5000]).unwrap();
        fs::write(folder.join("two"), vec![2; 3000]).unwrap();
        let path = images.make("image", 8 << 20, &["-b", "1024", "-J", "size=2", "-O", "fast_commit", "-d", text(&folder)]);
        Some(Self { image: fs::read(&path).unwrap(), map: journal_blocks(&path) })
    }

    /// The image with one fast commit that has these records, each a tag and its value.
    fn with(&self, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut image = self.image.clone();
        let journal = self.map[0] * 1024;
        image[journal + 0x18..journal + 0x20].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 1]);
        image[journal + 0x28..journal + 0x2C].copy_from_slice(&[0, 0, 0, 0x20]);
        image[journal + 0x54..journal + 0x58].copy_from_slice(&[0, 0, 0, 16]);
        set_recovery(&mut image);
        let (mut blocks, mut sum) = (vec![Vec::new()], 0);
        let mut add = |tag: u16, value: &[u8]| {
            let record = [&tag.to_le_bytes()[..], &(value.len() as u16).to_le_bytes(), value].concat();
            let last = blocks.last_mut().unwrap();
            if last.len() + record.len() + 4 > 1024 {
                let room = 1024 - last.len() - 4;
                let pad = [&[7, 0], &(room as u16).to_le_bytes()[..], &vec![0; room]].concat();
                sum = crc32c(sum, &pad);
                last.extend(&pad);
                blocks.push(Vec::new());
            }
            // The checksum does not cover itself in the tail.
            sum = crc32c(sum, &record[..if tag == 8 { 8 } else { record.len() }]);
            let record = if tag == 8 { [&record[..8], &sum.to_le_bytes()].concat() } else { record };
            blocks.last_mut().unwrap().extend(record);
        };
        add(9, &[0, 0, 0, 0, 7, 0, 0, 0]);
        for (tag, value) in records {
            add(*tag, value);
        }
        add(8, &[7, 0, 0, 0, 0, 0, 0, 0]);
        for (number, block) in blocks.iter().enumerate() {
            let at = self.map[self.map.len() - 15 + number] * 1024;
            image[at..at + block.len()].copy_from_slice(block);
        }
        image
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn each_kind_of_record_changes_what_it_names() {
    let Some(written) = Written::new() else { return };
    let plain = Ext4Filesystem::open(written.image.as_slice()).unwrap();
    let (two, root) = (plain.lookup("two").unwrap().unwrap(), 2);
    let name = |inode: u32, text: &str| [words(&[root, inode]), text.as_bytes().to_vec()].concat();
    let mut inode = vec![0; 160];
    inode[..2].copy_from_slice(&0o100_644_u16.to_le_bytes());
    inode[4] = 10;
    (inode[0x1A], inode[0x22], inode[0x80]) = (1, 8, 32);
    let fresh = 40_u32;
    let block = plain.map(&two).next().unwrap().unwrap().physical.unwrap() as u32;
    let image = written.with(&[
        (6, [words(&[fresh]), inode].concat()),
        (1, words(&[fresh, 0, 1, block])),
        (3, name(fresh, "created")),
        (4, name(two.number, "linked")),
        (5, name(two.number, "two")),
        (2, words(&[two.number, 0, 1])),
    ]);
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&image).unwrap();
    assert!(replayed.replay().refused.is_none() && replayed.replay().fast_commits == 1);
    let files = Ext4Filesystem::open(&replayed).unwrap();
    let read = |path: &str| files.lookup(path).unwrap().map(|inode| files.contents(&inode, 1 << 20).unwrap());
    assert_eq!(read("created").unwrap(), [2; 10]);
    assert_eq!(read("linked").unwrap(), [vec![0; 1024], vec![2; 1976]].concat());
    assert_eq!(read("two"), None);
    let faults = files.walk(5).faults;
    assert!(faults.is_empty(), "{}", faults[0]);
}

#[test]
fn records_of_any_contents_are_replayed_or_refused_and_never_a_panic() {
    let Some(written) = Written::new() else { return };
    let mut numbers = Numbers(5);
    for _ in 0..4000 {
        let records: Vec<(u16, Vec<u8>)> = (0..=numbers.below(12))
            .map(|_| {
                let mut small = |end: u64| {
                    if numbers.below(9) == 0 { numbers.0 as u32 } else { numbers.below(end) as u32 }
                };
                let (inode, other) = (small(18), small(18));
                match small(7) {
                    0 => (1, words(&[inode, small(70), small(40), small(8192)])),
                    1 => (2, words(&[inode, small(70), small(40)])),
                    kind @ 2..=4 => (
                        kind as u16 + 1,
                        [words(&[inode, other]), [&b"two"[..], b"folder", b"one", b"new"][small(4) as usize % 4].to_vec()]
                            .concat(),
                    ),
                    5 => {
                        let mut bytes: Vec<u8> = (0..160).map(|_| if small(4) == 0 { small(256) as u8 } else { 0 }).collect();
                        bytes[..2].copy_from_slice(&[0xA4, [0x81, 0x41, 0xA1, 0][small(4) as usize % 4]]);
                        (bytes[0x1A], bytes[0x1B], bytes[0x22], bytes[0x80], bytes[0x81]) = (small(3) as u8, 0, 8, 32, 0);
                        (6, [words(&[inode]), bytes].concat())
                    }
                    _ => (7, vec![0; small(30) as usize % 30]),
                }
            })
            .collect();
        let image = written.with(&records);
        let mut recovery = JournalRecovery::new();
        let Ok(replayed) = recovery.replay(&image) else { continue };
        replayed.write_to(|_, _| Ok(())).unwrap();
        let files = Ext4Filesystem::open(&replayed).unwrap();
        files.walk(3);
        let _ = files.tree("/", 1 << 20, 100);
    }
}
