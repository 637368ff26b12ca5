//! The files on images that mke2fs and debugfs create with many sets of features are read with their original contents.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::tree::{self, Tree};
use crate::support::{Images, repair, run, text};
use emmclab_base::ErrorClass;
use emmclab_ext4::{Ext4FileKind, Ext4Filesystem, JournalRecovery, ROOT};
use tempfile::TempDir;

/// The folder from which each image is created, and its contents.
fn planted() -> (&'static Path, &'static Tree) {
    static FOLDER: OnceLock<(TempDir, Tree)> = OnceLock::new();
    let (folder, tree) = FOLDER.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        tree::plant(folder.path());
        let tree = tree::of_folder(folder.path());
        (folder, tree)
    });
    (folder.path(), tree)
}

fn check(image: &Path, about: &str) {
    let file = File::open(image).unwrap();
    let mut recovery = JournalRecovery::new();
    let replayed = recovery.replay(&file).unwrap();
    let files = Ext4Filesystem::open(&replayed).unwrap();
    tree::assert_same(&tree::of_filesystem(&files), planted().1, about);
    let walk = files.walk(10);
    assert!(walk.faults.is_empty(), "{about}: {}", walk.faults[0]);
    // The folder itself and `lost+found` are counted in addition.
    assert!(walk.inodes > 700 && walk.directories >= 6, "{about}: {walk:?}");
}

fn make(images: &Images, size: u64, options: &[&str]) -> PathBuf {
    let folder = text(planted().0);
    images.make("image", size, &[options, &["-d", folder]].concat())
}

/// Creates an image with each of these sets of options, and reads its files twice: in the new image, and after e2fsck has added hash trees
/// to its directories.
fn read_files_of(sets: &[&[&str]]) {
    for options in sets {
        let Some(images) = Images::if_possible(false, &[]) else { return };
        let size = if options.contains(&"65536") { 1 << 30 } else { 192 << 20 };
        let image = make(&images, size, options);
        check(&image, &format!("{options:?}"));
        repair(&["-fyD"], &image);
        check(&image, &format!("{options:?}, indexed"));
    }
}

#[test]
fn files_of_the_feature_sets_in_use_are_read() {
    read_files_of(&[
        &["-b", "1024"],
        &["-b", "4096"],
        &["-b", "65536"],
        &["-b", "4096", "-O", "^metadata_csum,^64bit,^uninit_bg"],
        &["-b", "1024", "-O", "meta_bg,^resize_inode"],
        &["-b", "4096", "-O", "metadata_csum_seed"],
        &["-b", "1024", "-O", "inline_data"],
        &["-b", "1024", "-I", "128", "-O", "^extent,^64bit,^metadata_csum,^flex_bg,^filetype"],
        &["-b", "4096", "-O", "bigalloc", "-C", "65536"],
        &["-b", "4096", "-O", "^has_journal"],
        &["-b", "4096", "-O", "fast_commit,orphan_file"],
    ]);
}

#[test]
#[ignore = "slow: further cases of a tested rule"]
fn files_of_further_feature_sets_are_read() {
    read_files_of(&[
        &["-b", "2048"],
        &["-b", "8192"],
        &["-b", "4096", "-O", "^64bit"],
        &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        &["-b", "4096", "-O", "meta_bg,^resize_inode,^64bit,^metadata_csum"],
        &["-b", "4096", "-O", "inline_data", "-I", "1024"],
        &["-b", "1024", "-O", "^extent,^64bit"],
        &["-b", "4096", "-O", "^extent,^64bit,^metadata_csum,^huge_file"],
        &["-b", "1024", "-O", "sparse_super2,^resize_inode", "-E", "num_backup_sb=1"],
        &["-b", "4096", "-O", "^sparse_super,^resize_inode,large_dir,ea_inode,mmp,quota,project"],
        &["-b", "4096", "-r", "0"],
    ]);
}

#[test]
fn an_unwritten_extent_and_a_hole_read_as_zeros() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let image = images.make("image", 16 << 20, &["-b", "4096"]);
    let script = images.path("script");
    std::fs::write(images.path("content"), vec![7; 20_000]).unwrap();
    let put = format!("write {} file\n", text(&images.path("content")));
    std::fs::write(&script, format!("{put}fallocate file 8 11\nset_inode_field file size 65536\n")).unwrap();
    run("debugfs", &["-w", "-f", text(&script), text(&image)]);
    repair(&["-fy"], &image);
    let files = Ext4Filesystem::open(File::open(&image).unwrap()).unwrap();
    let inode = files.lookup("file").unwrap().unwrap();
    let runs: Vec<_> = files.map(&inode).collect::<Result<_, _>>().unwrap();
    assert_eq!(
        runs.iter().map(|run| (run.logical, run.blocks, run.unwritten)).collect::<Vec<_>>(),
        [(0, 5, false), (5, 3, false), (8, 4, true), (12, 4, false)]
    );
    assert!(runs[1].physical.is_none() && runs[2].physical.is_some() && runs[3].physical.is_none());
    let mut expected = vec![7; 20_000];
    expected.resize(65536, 0);
    assert!(files.contents(&inode, 1 << 20).unwrap() == expected);
    // Reads with random starts and ends.
    let mut part = vec![1; 30_000];
    assert_eq!(files.read(&inode, 19_990, &mut part).unwrap(), 30_000);
    assert!(part[..10] == [7; 10] && part[10..].iter().all(|byte| *byte == 0));
    assert_eq!(files.read(&inode, 65_530, &mut part).unwrap(), 6);
    assert_eq!(files.read(&inode, 1 << 40, &mut part).unwrap(), 0);
}

#[test]
fn paths_lead_where_linux_leads_them() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let image = make(&images, 192 << 20, &["-b", "4096"]);
    let files = Ext4Filesystem::open(File::open(&image).unwrap()).unwrap();
    let number = |path: &str| files.lookup(path).unwrap().map(|inode| inode.number);
    assert_eq!(number(""), Some(ROOT));
    assert_eq!(number("/.."), Some(ROOT));
    assert_eq!(number("//a/./b/../short"), number("a/b/linked"));
    assert_eq!(number("/a/none"), None);
    assert_eq!(number("/a/short/below"), None);
    assert!(number("short-link").is_some());
    assert_eq!(files.lookup("short-link/below").unwrap_err().kind(), ErrorClass::Unsupported);
    let inode = files.lookup("/a/short").unwrap().unwrap();
    assert!(files.contents(&inode, 3).unwrap_err().to_string().contains("limit of 3"));
    assert!(files.link(&inode).is_err());
    assert!(files.list(&inode).is_err());
    assert!(files.inode(0).is_err());
    assert!(files.inode(u32::MAX).is_err());
}

#[test]
fn a_changed_byte_of_checksummed_metadata_is_named_with_its_structure() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let image = make(&images, 192 << 20, &["-b", "1024"]);
    let bytes = std::fs::read(&image).unwrap();
    let files = Ext4Filesystem::open(bytes.as_slice()).unwrap();
    let stat = |path: &str| run("debugfs", &["-R", &format!("imap {path}"), text(&image)]);
    let inode_at = |path: &str| {
        let output = stat(path);
        let (_, rest) = output.split_once("located at block ").unwrap();
        let (block, offset) = rest.trim().split_once(", offset ").unwrap();
        block.parse::<usize>().unwrap() * 1024 + usize::from_str_radix(&offset[2..], 16).unwrap()
    };
    let first = |path: &str| {
        let inode = files.lookup(path).unwrap().unwrap();
        files.map(&inode).next().unwrap().unwrap().physical.unwrap() as usize * 1024
    };
    let extent_block = |path: &str| {
        let output = run("debugfs", &["-R", &format!("dump_extents -n {path}"), text(&image)]);
        // The root of the extent tree: level, entries, logical blocks, physical block, length.
        let root = output.lines().find(|line| line.trim_start().starts_with("0/")).unwrap();
        root.split_whitespace().rev().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    let cases = [
        (1024 + 0x88, "superblock"),
        (2048 + 0x0C, "descriptor of block group 0"),
        (inode_at("/holes") + 0x10, "inode"),
        (first("/many") + 40, "directory block"),
        (extent_block("/holes") + 30, "extent block"),
    ];
    for (at, structure) in cases {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        let output = (|| {
            let files = Ext4Filesystem::open(changed.as_slice())?;
            let inode = files.lookup("/many/file-000-")?;
            files.list(&files.lookup("/many")?.unwrap())?;
            let holes = files.lookup("/holes")?.unwrap();
            files.contents(&holes, 1 << 30).map(|_| inode)
        })();
        let output = output.unwrap_err().to_string();
        assert!(output.contains(structure) && output.starts_with("byte "), "{structure}: {output}");
    }
}

#[test]
fn a_walk_names_what_is_marked_or_linked_wrongly() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let image = make(&images, 192 << 20, &["-b", "4096"]);
    let commands = [
        ("set_inode_field a/short links_count 7", "link count is 7, but 2 names"),
        ("freei a/b/blocks", "marked as free"),
        ("clri a/b/inside", "inode"),
        ("set_inode_field empty mode 040755", "directory"),
    ];
    for (command, output) in commands {
        let copy = images.path("copy");
        std::fs::copy(&image, &copy).unwrap();
        run("debugfs", &["-w", "-R", command, text(&copy)]);
        let files = Ext4Filesystem::open(File::open(&copy).unwrap()).unwrap();
        let walk = files.walk(5);
        assert!(!walk.faults.is_empty(), "{command}");
        let faults: Vec<String> = walk.faults.iter().map(ToString::to_string).collect();
        assert!(faults.iter().any(|fault| fault.contains(output)), "{command}: {faults:?}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let image = images.make("image", 16 << 20, &["-b", "4096", "-O", "^metadata_csum"]);
    let bytes = std::fs::read(&image).unwrap();
    let refused = |at: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[at] |= value;
        Ext4Filesystem::open(changed.as_slice()).err().unwrap()
    };
    let compressed = refused(1024 + 0x60, 1);
    assert_eq!(compressed.kind(), ErrorClass::Unsupported);
    assert!(compressed.to_string().contains("compression"), "{compressed}");
    assert!(refused(1024 + 0x63, 0x80).to_string().contains("0x80000000"));
    assert!(refused(1024 + 0x60, 8).to_string().contains("journal device"));
    let short = Ext4Filesystem::open(&bytes[..bytes.len() - 4096]).err().unwrap().to_string();
    assert!(short.contains("do not fit"), "{short}");
    assert_eq!(Ext4Filesystem::open(&bytes[..100]).err().unwrap().kind(), ErrorClass::Truncated);
}

#[test]
fn a_folder_is_read_with_all_below_it_and_extended_attributes_in_inode_and_block() {
    let Some(images) = Images::if_possible(false, &[]) else { return };
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("top/inner")).unwrap();
    std::fs::write(folder.path().join("top/file"), b"contents").unwrap();
    std::fs::hard_link(folder.path().join("top/file"), folder.path().join("top/inner/same")).unwrap();
    std::os::unix::fs::symlink("file", folder.path().join("top/link")).unwrap();
    for inode_bytes in ["128", "256", "1024"] {
        let name = format!("tree-{inode_bytes}");
        let options = ["-b", "4096", "-I", inode_bytes, "-d", text(folder.path())];
        let image = images.make(&name, 16 << 20, &options);
        let large = "v".repeat(700);
        for (key, value) in [("user.small", "1"), ("user.large", large.as_str()), ("trusted.t", "")] {
            run("debugfs", &["-w", "-R", &format!("ea_set /top/file {key} \"{value}\""), text(&image)]);
        }
        let files = Ext4Filesystem::open(File::open(&image).unwrap()).unwrap();
        let nodes = files.tree("/top", 1 << 20, 100).unwrap().unwrap();
        let paths: Vec<_> = nodes.iter().map(|node| String::from_utf8(node.path.clone()).unwrap()).collect();
        assert_eq!(paths, ["file", "inner", "inner/same", "link"], "{inode_bytes}");
        let [file, inner, same, link] = &nodes[..] else { panic!("{nodes:?}") };
        assert_eq!((file.kind, &file.data[..], file.links), (Ext4FileKind::Regular, &b"contents"[..], 2));
        assert_eq!((file.inode, &file.attributes), (same.inode, &same.attributes));
        assert_eq!((inner.kind, link.kind, &link.data[..]), (Ext4FileKind::Directory, Ext4FileKind::Symlink, &b"file"[..]));
        let attributes: Vec<_> = file.attributes.iter().map(|(key, value)| (&key[..], value.len())).collect();
        assert_eq!(attributes, [(&b"trusted.t"[..], 0), (b"user.large", 700), (b"user.small", 1)], "{inode_bytes}");
        assert!(files.tree("/nowhere", 1, 1).unwrap().is_none());
        assert!(files.tree("/top", 1 << 20, 2).is_err(), "more nodes than asked for");
    }
}
