//! A folder with files of all kinds, and the comparison of a folder with a file system.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use emmclab_ext4::{DiskReader, Ext4FileKind, Ext4Filesystem, Inode};

/// What a name refers to: mode, links of files, seconds of the last change, extended attributes of users, and contents or link target.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    mode: u16,
    size: Option<u64>,
    links: Option<u16>,
    modified: i64,
    attributes: Attributes,
    contents: Vec<u8>,
}

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

impl Seen {
    pub fn contents(&self) -> &[u8] {
        &self.contents
    }
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Writes, renames, truncates and deletes files. Each step that is synced is in the journal when it returns.
pub fn work(point: &Path, round: u8) {
    let folder = point.join(format!("round-{round}"));
    fs::create_dir(&folder).unwrap();
    for number in 0..30_u8 {
        let path = folder.join(format!("file-{number}"));
        fs::write(&path, vec![number; 137 * usize::from(number) + 1]).unwrap();
        if number % 3 == 0 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
    }
    // Freed directories and files with many extents: their blocks are revoked, and reused for data.
    let gone = point.join("gone");
    fs::create_dir_all(&gone).unwrap();
    for number in 0..60_u8 {
        fs::write(gone.join(format!("{number}-{}", "z".repeat(100))), "x").unwrap();
    }
    File::open(&gone).unwrap().sync_all().unwrap();
    fs::remove_dir_all(&gone).unwrap();
    let data = OpenOptions::new().create(true).append(true).open(point.join("log")).unwrap();
    data.write_all_at(&vec![round; 200_000], 0).unwrap_or_default();
    data.sync_all().unwrap();
    fs::rename(folder.join("file-3"), folder.join("renamed")).unwrap();
    File::open(folder.join("file-6")).unwrap().sync_all().unwrap();
    let short = OpenOptions::new().write(true).open(folder.join("file-9")).unwrap();
    short.set_len(10).unwrap();
    short.sync_all().unwrap();
}

/// Creates the folder, with nested folders, long names, many names, links, holes, and block maps of several levels.
pub fn plant(folder: &Path) {
    fs::create_dir_all(folder.join("a/b/c")).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    fs::write(folder.join("a/short"), "short\n").unwrap();
    fs::write(folder.join("a/b/c/one"), vec![0x5A; 1]).unwrap();
    fs::write(folder.join("a/b/inside"), vec![b'i'; 100]).unwrap();
    fs::write(folder.join("a/b/blocks"), (0..70_000_u32).map(|at| (at / 7) as u8).collect::<Vec<_>>()).unwrap();
    fs::hard_link(folder.join("a/short"), folder.join("a/b/linked")).unwrap();
    symlink("a/short", folder.join("short-link")).unwrap();
    symlink("x".repeat(300), folder.join("long-link")).unwrap();
    fs::write(folder.join("n".repeat(255)), "a long name").unwrap();
    fs::create_dir(folder.join("many")).unwrap();
    for number in 0..700 {
        fs::write(folder.join(format!("many/file-{number:03}-{}", "y".repeat(number % 60))), format!("{number}")).unwrap();
    }
    // Every second block of 4 KB is a hole: more extents than fit into an inode, and indirect blocks of two levels.
    let holes = File::create(folder.join("holes")).unwrap();
    for block in 0..420 {
        holes.write_all_at(&[(block as u8).wrapping_add(1); 4096], 8192 * block).unwrap();
    }
    // A distant offset requires three levels of indirect blocks with blocks of 1,024 bytes.
    let far = File::create(folder.join("far")).unwrap();
    far.write_all_at(b"far away", 70 << 20).unwrap();
}

/// The tree below a folder, according to the kernel.
pub fn of_folder(folder: &Path) -> Tree {
    let mut out = Tree::new();
    let mut left = vec![folder.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(folder).unwrap().as_os_str().as_bytes().to_vec();
            if about.is_dir() && name == b"lost+found" {
                continue;
            }
            let contents = match () {
                () if about.is_dir() => Vec::new(),
                () if about.is_symlink() => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                () => fs::read(&path).unwrap(),
            };
            let is_dir = about.is_dir();
            let seen = Seen {
                mode: about.mode() as u16,
                size: (!is_dir).then_some(about.size()),
                links: (!is_dir).then_some(about.nlink() as u16),
                modified: about.mtime(),
                attributes: attributes_of(&path),
                contents,
            };
            out.insert(name, seen);
            if is_dir {
                left.push(path);
            }
        }
    }
    out
}

/// The attributes of users, according to the kernel; a symbolic link has none.
fn attributes_of(path: &Path) -> Attributes {
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let users = names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    users
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]).unwrap();
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

/// The path of a name in a folder with this path below the root, which is empty for the root.
pub fn path_below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// The tree in a file system, according to this crate.
pub fn of_filesystem<B: DiskReader>(files: &Ext4Filesystem<B>) -> Tree {
    let mut out = Tree::new();
    let mut left = vec![(Vec::new(), files.lookup("/").unwrap().unwrap())];
    while let Some((path, directory)) = left.pop() {
        for (name, number, kind) in files.list(&directory).unwrap() {
            if name == b"." || name == b".." || (path.is_empty() && name == b"lost+found") {
                continue;
            }
            let inode = files.inode(number).unwrap();
            assert!(kind == inode.kind() || kind == Ext4FileKind::Unknown, "{name:?}: {kind:?}");
            let below = path_below(&path, &name);
            out.insert(below.clone(), seen(files, &inode));
            if inode.kind() == Ext4FileKind::Directory {
                left.push((below, inode));
            }
        }
    }
    out
}

fn seen<B: DiskReader>(files: &Ext4Filesystem<B>, inode: &Inode) -> Seen {
    let is_dir = inode.kind() == Ext4FileKind::Directory;
    let contents = match inode.kind() {
        Ext4FileKind::Directory => Vec::new(),
        Ext4FileKind::Symlink => files.link(inode).unwrap(),
        _ => files.contents(inode, 128 << 20).unwrap(),
    };
    Seen {
        mode: inode.mode,
        size: (!is_dir).then_some(inode.size),
        links: (!is_dir).then_some(inode.links),
        modified: inode.modified.0,
        attributes: files.attributes(inode).unwrap().into_iter().filter(|(name, _)| name.starts_with(b"user.")).collect(),
        contents,
    }
}

/// Reports the first differences rather than the contents of whole files.
pub fn assert_same(left: &Tree, right: &Tree, about: &str) {
    for name in left.keys().chain(right.keys()) {
        let (one, other) = (left.get(name), right.get(name));
        if one != other {
            let brief = |seen: Option<&Seen>| {
                seen.map(|seen| {
                    let attributes: Vec<_> = seen.attributes.iter().map(|(name, value)| (name.clone(), value.len())).collect();
                    (seen.mode, seen.size, seen.links, seen.modified, attributes, seen.contents.len())
                })
            };
            let name = String::from_utf8_lossy(name);
            panic!("{about}: {name}: {:?} and {:?}", brief(one), brief(other));
        }
    }
    assert!(!left.is_empty(), "{about}: nothing was compared");
}

/// The tree without the times of changes of folders.
pub fn without_folder_times(mut tree: Tree) -> Tree {
    tree.values_mut().filter(|seen| seen.size.is_none()).for_each(|seen| seen.modified = 0);
    tree
}
