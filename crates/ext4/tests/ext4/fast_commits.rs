//! Fast commits of a mounted kernel, and damaged ones: what Linux mounts after its own replay, and refuses, is what this crate
//! shows, and refuses.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::crash_images::{Mounted, attach};
use crate::support::journal::journal_blocks;
use crate::support::tree::{self, Tree};
use crate::support::{Images, can_run, text, try_run};
use emmclab_ext4::{Filesystem, Recovery};

/// A small generator of numbers, always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

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

/// One random change; what cannot be done is left.
fn change(numbers: &mut Numbers, folder: &Path) {
    let (one, other) = (name(numbers, folder), name(numbers, folder));
    let block = numbers.below(24) * 4096;
    let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&one);
    match numbers.below(12) {
        0..=2 => drop(open().map(|file| file.write_all_at(&vec![7; 1 + block as usize / 3], block))),
        3 => drop(
            open()
                .map(|file| (0..12).for_each(|at| drop(file.write_all_at(&[at as u8 + 1; 900], at * 8192)))),
        ),
        4 => drop(open().map(|file| file.set_len(block + 100))),
        5 => drop(fs::hard_link(&one, &other)),
        6 => drop(fs::remove_file(&one)),
        7 | 8 => drop(fs::rename(&one, &other)),
        9 => drop(fs::create_dir(folder.join(format!("made-{}", block / 4096 % 2)))),
        10 => drop(fs::remove_dir(folder.join(format!("made-{}", block / 4096 % 2)))),
        _ => drop(symlink("short", &one)),
    }
    match numbers.below(3) {
        0 => {}
        1 => sync(&one),
        _ => sync(&folder.join("anchor")),
    }
}

/// The tree without the times of directories, which the replay of the kernel sets to its own.
fn ours(image: &Path) -> Result<(Tree, u64), String> {
    let file = File::open(image).unwrap();
    let mut recovery = Recovery::new();
    let replayed = recovery.replay(&file).map_err(|error| error.to_string())?;
    if let Some(refused) = &replayed.replay().refused {
        return Err(refused.to_string());
    }
    let files = Filesystem::open(&replayed).unwrap();
    let faults = files.walk(10).faults;
    // Linux counts no links of directories in fast commits.
    let others: Vec<_> =
        faults.iter().map(ToString::to_string).filter(|fault| !fault.contains(" links, and ")).collect();
    assert!(others.is_empty(), "{}: {others:?}", image.display());
    Ok((tree::without_folder_times(tree::of_filesystem(&files)), replayed.replay().fast_commits))
}

/// What Linux mounts, if it does; the image is changed by it.
fn by_linux(image: &Path, point: &Path) -> Option<Tree> {
    fs::create_dir_all(point).unwrap();
    let device = attach(image);
    let mounted = try_run("mount", &["-t", "ext4", &device, text(point)]).status.success();
    let found = mounted.then(|| tree::without_folder_times(tree::of_folder(point)));
    if mounted {
        try_run("umount", &[text(point)]);
    }
    try_run("losetup", &["-d", &device]);
    found
}

/// Replayed in this crate and written out, the image is one that e2fsck does not find damaged beyond counts.
fn written_out(image: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let (mut recovery, mut blocks) = (Recovery::new(), Vec::new());
    let replayed = recovery.replay(&file).unwrap();
    replayed
        .write_to(|at, bytes| {
            blocks.push((at, bytes.to_vec()));
            Ok(())
        })
        .unwrap();
    let (at, superblock) = replayed.superblock_after().unwrap();
    for (at, bytes) in blocks.iter().map(|(at, bytes)| (*at, &bytes[..])).chain([(at, &superblock[..])]) {
        file.write_all_at(bytes, at).unwrap();
    }
}

#[test]
fn fast_commits_whole_and_damaged_replay_or_are_refused_as_by_linux() {
    if !can_run(true, &["mount", "umount", "losetup"]) {
        return;
    }
    let sets: &[&[&str]] = &[
        &["-b", "4096", "-J", "size=8"],
        &["-b", "1024", "-J", "size=2"],
        &["-b", "4096", "-J", "size=8", "-O", "^metadata_csum"],
        &["-b", "1024", "-J", "size=2", "-O", "^flex_bg,^64bit", "-g", "4096"],
    ];
    let rounds = std::env::var("EMMCLAB_FAST_COMMIT_ROUNDS").map_or(1, |text| text.parse().unwrap());
    let (mut mounted_states, mut refused_states, mut commits) = (0, 0, 0);
    for round in 0..rounds {
        for (set, options) in sets.iter().enumerate() {
            let images = Images::new();
            let mut numbers = Numbers(round * 31 + set as u64);
            let all = [&["-O", "fast_commit"], *options].concat();
            let image = images.make("image", 48 << 20, &all);
            let mounted = Mounted::new(&image, images.path("mounted"), "data=ordered");
            fs::create_dir(mounted.point.join("many")).unwrap();
            for number in 0..120 {
                fs::write(mounted.point.join(format!("many/{number}-{}", "m".repeat(40))), "x").unwrap();
            }
            fs::write(mounted.point.join("anchor"), "anchor").unwrap();
            try_run("sync", &[]);
            for step in 0..24 {
                for _ in 0..=numbers.below(3) {
                    change(&mut numbers, &mounted.point);
                }
                sync(&mounted.point.join("anchor"));
                let copy = images.path("copy");
                fs::copy(&image, &copy).unwrap();
                let damage = numbers.below(3);
                if damage == 0 {
                    let map = journal_blocks(&copy);
                    let size = if options[1] == "1024" { 1024 } else { 4096 };
                    let disk = OpenOptions::new().read(true).write(true).open(&copy).unwrap();
                    let mut fast = [0; 4];
                    disk.read_exact_at(&mut fast, map[0] as u64 * size + 0x54).unwrap();
                    let first = map.len() - u32::from_be_bytes(fast) as usize + 1;
                    let block = map[first + numbers.below(3) as usize];
                    let sector = numbers.below(2);
                    disk.write_all_at(&[0; 512], block as u64 * size + sector * 512).unwrap();
                }
                let about = format!("round {round}, {options:?}, step {step}, damage {damage}");
                let found = ours(&copy);
                let third = images.path("third");
                if found.is_ok() {
                    fs::copy(&copy, &third).unwrap();
                    written_out(&third);
                }
                let linux = by_linux(&copy, &images.path("linux"));
                match (found, linux) {
                    (Ok((tree, fast)), Some(linux)) => {
                        tree::assert_same(&tree, &linux, &about);
                        let again = by_linux(&third, &images.path("linux")).expect(&about);
                        tree::assert_same(&again, &linux, &format!("{about}, written out"));
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
    eprintln!("{mounted_states} states mounted, {refused_states} refused, {commits} fast commits");
    let counts = format!("{mounted_states} mounted, {refused_states} refused, {commits} fast commits");
    assert!(mounted_states > 40 && refused_states > 0 && commits > 60, "{counts}");
}
