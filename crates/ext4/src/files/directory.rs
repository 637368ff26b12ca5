//! Directories, which are read linearly: a hash tree is stored in entries that a linear reader skips.
//!
//! Source: Linux `Documentation/filesystems/ext4/directory.rst`; `fs/ext4/dir.c`, `namei.c` and `inline.c`.

use std::ops::ControlFlow;

use emmclab_base::Result;

use super::inode::{Attribute, MAP_BYTES};
use super::{Ext4Filesystem, Inode, InodeFlags};
use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32};
use crate::superblock::Incompat;

/// Number of bytes in an entry before its name.
const HEAD: usize = 8;
/// Size of the nameless entry at the end of a block, which contains the checksum of the block.
const TAIL: usize = 12;
/// Type of the directory entry that contains the checksum of a block.
const TAIL_TYPE: u8 = 0xDE;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ext4FileKind {
    /// The kind is not recorded in the directory, or is an unknown number.
    Unknown,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl Ext4FileKind {
    pub(crate) fn of_mode(mode: u16) -> Self {
        match mode >> 12 {
            0x1 => Self::Fifo,
            0x2 => Self::CharacterDevice,
            0x4 => Self::Directory,
            0x6 => Self::BlockDevice,
            0x8 => Self::Regular,
            0xA => Self::Symlink,
            0xC => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// Returns the number that represents the kind in a directory entry.
    pub(crate) fn as_entry(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharacterDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    fn of_entry(byte: u8) -> Self {
        match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharacterDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// An entry of a directory: a name, and the inode to which it refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The name: bytes without `/`, rarely not UTF-8.
    pub name: &'a [u8],
    /// The inode to which it refers.
    pub inode: u32,
    /// The kind of file, as recorded in the directory entry.
    pub kind: Ext4FileKind,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Calls `visit` with each name of a directory in the order on the disk, including `.` and `..`, until `visit` returns `Break`.
    /// Errors: if the inode is not a directory, is encrypted, or has damaged blocks.
    pub fn entries(&self, directory: &Inode, mut visit: impl FnMut(DirectoryEntry<'_>) -> ControlFlow<()>) -> Result<()> {
        let structure = DiskStructure::Directory(directory.number);
        if directory.kind() != Ext4FileKind::Directory {
            return Err(structure.fault(directory.offset, "not a directory"));
        }
        if directory.flags.contains(InodeFlags::ENCRYPT) {
            return Err(structure.unsupported(directory.offset, "the directory is encrypted"));
        }
        if let Some(inline) = &directory.inline {
            return self.inline_entries(directory, inline, &mut visit);
        }
        let block_size = self.superblock().block_size as usize;
        let mut bytes = vec![0; block_size];
        if directory.size.div_ceil(block_size as u64) > self.superblock().blocks {
            let problem = format!("the size of {} bytes exceeds the file system", directory.size);
            return Err(structure.fault(directory.offset + 4, problem));
        }
        for run in self.map(directory) {
            let run = run?;
            let Some(physical) = run.physical.filter(|_| !run.unwritten) else {
                let problem = format!("block {} of the directory was never written", run.logical);
                return Err(structure.fault(directory.offset, problem));
            };
            for block in 0..run.blocks {
                let offset = (physical + block) * block_size as u64;
                structure.read(&self.disk, offset, &mut bytes)?;
                self.check_directory_block(directory, run.logical + block, &bytes, offset)?;
                if self.block_entries(&bytes, structure, offset, &mut visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the names of a directory in the order of the disk, including `.` and `..`.
    /// Errors: as for [`Self::entries`].
    pub fn list(&self, directory: &Inode) -> Result<Vec<(Vec<u8>, u32, Ext4FileKind)>> {
        let mut out = Vec::new();
        self.entries(directory, |entry| {
            out.push((entry.name.to_vec(), entry.inode, entry.kind));
            ControlFlow::Continue(())
        })?;
        Ok(out)
    }

    pub(super) fn find(&self, directory: &Inode, name: &[u8]) -> Result<Option<u32>> {
        let mut inode = None;
        self.entries(directory, |entry| {
            if entry.name == name {
                inode = Some(entry.inode);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if inode.is_none() && directory.flags.contains(InodeFlags::CASEFOLD) {
            let problem = "the directory ignores case, and names are compared byte by byte here";
            return Err(DiskStructure::Directory(directory.number).unsupported(directory.offset, problem));
        }
        Ok(inode)
    }

    fn inline_entries(
        &self, directory: &Inode, bytes: &[u8], visit: &mut impl FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let structure = DiskStructure::Directory(directory.number);
        let kind = Ext4FileKind::Directory;
        let own = [(&b"."[..], directory.number), (b"..", le32(bytes, 0))];
        for (name, inode) in own {
            if visit(DirectoryEntry { name, inode, kind }).is_break() {
                return Ok(());
            }
        }
        let size = usize::try_from(directory.size).unwrap_or(usize::MAX).min(bytes.len());
        let (map, rest) = bytes[..size].split_at(MAP_BYTES.min(size));
        for part in [map.get(4..).unwrap_or_default(), rest] {
            if self.block_entries(part, structure, directory.offset, visit)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn block_entries(
        &self, bytes: &[u8], structure: DiskStructure, offset: u64, visit: &mut impl FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let has_types = self.superblock().incompat.contains(Incompat::FILETYPE);
        let mut at = 0;
        while at < bytes.len() {
            let length = record_length(le16(bytes, at + 4), self.superblock().block_size);
            let rest = &bytes[at..];
            // If directory entries contain no file type, the length of a name has two bytes.
            let name_length = if has_types { usize::from(rest.get(6).copied().unwrap_or(0)) } else { usize::from(le16(rest, 6)) };
            let used = HEAD + name_length;
            if length < TAIL.min(rest.len()).max(HEAD) || !length.is_multiple_of(4) || length > rest.len() || used > length {
                let problem =
                    format!("an entry has {length} bytes with a name of {name_length}, but only {} bytes remain", rest.len());
                return Err(structure.fault(offset + at as u64, problem));
            }
            let inode = le32(rest, 0);
            if inode != 0 && name_length > 0 {
                let kind = if has_types { Ext4FileKind::of_entry(rest[7]) } else { Ext4FileKind::Unknown };
                if visit(DirectoryEntry { name: &rest[HEAD..used], inode, kind }).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            at += length;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn check_directory_block(&self, directory: &Inode, logical: u64, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.superblock().has_checksums() {
            return Ok(());
        }
        let structure = DiskStructure::Directory(directory.number);
        let seed = self.seed_of(directory);
        let size = bytes.len();
        let whole = record_length(le16(bytes, 4), size as u32) == size && le32(bytes, 0) == 0;
        let is_index = directory.flags.contains(InodeFlags::INDEX) && (logical == 0 || whole);
        let (stored, computed) = if is_index {
            // In the root node of the hash tree, the limit and the number of entries follow `.`, `..` and 8 bytes. In other nodes, they
            // follow an empty directory entry of 8 bytes.
            let from = if whole { 8 } else { 32 };
            let (limit, count) = (usize::from(le16(bytes, from)), usize::from(le16(bytes, from + 2)));
            let (tail, used) = (from + 8 * limit, from + 8 * count);
            if tail + 8 > size || count > limit {
                return Err(structure.fault(offset + from as u64, format!("{count} hashes of at most {limit}")));
            }
            let state = crc32c(crc32c(seed, &bytes[..used]), &bytes[tail..tail + 4]);
            (le32(bytes, tail + 4), crc32c(state, &[0; 4]))
        } else {
            let tail = &bytes[size - TAIL..];
            if le32(tail, 0) != 0 || le16(tail, 4) != TAIL as u16 || tail[6] != 0 || tail[7] != TAIL_TYPE {
                let problem = "the entry with the checksum is missing";
                return Err(structure.fault(offset + (size - TAIL) as u64, problem));
            }
            (le32(tail, 8), crc32c(seed, &bytes[..size - TAIL]))
        };
        if stored == computed { Ok(()) } else { Err(structure.bad_checksum(offset, stored, computed)) }
    }
}

/// Decodes the length of a directory entry. With blocks of 65,536 bytes, its two low bits are the two high bits of the length.
pub(crate) fn record_length(stored: u16, block_size: u32) -> usize {
    let stored = u32::from(stored);
    let length = match stored {
        _ if block_size < 1 << 16 => stored,
        0 | 0xFFFF => block_size,
        _ => stored & 0xFFFC | (stored & 3) << 16,
    };
    length as usize
}

/// A file, folder or link in a tree below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Path relative to the root of the tree, without a leading slash.
    pub path: Vec<u8>,
    /// Kind of the file.
    pub kind: Ext4FileKind,
    /// Inode of the file; two names of the same file have the same inode.
    pub inode: u32,
    /// Number of names that refer to the inode.
    pub links: u16,
    /// Contents of a regular file, or target of a symbolic link; otherwise empty.
    pub data: Vec<u8>,
    /// Extended attributes: names and values.
    pub attributes: Vec<Attribute>,
    /// Kind and permissions, as in `stat`.
    pub mode: u16,
    /// Numbers of the owner and of the group.
    pub owners: (u32, u32),
    /// Time of the last change of the contents, in seconds since 1970.
    pub modified: i64,
    /// Space that is allocated to the file, in sectors of 512 bytes.
    pub sectors: u64,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Returns all files, folders and links below a folder, sorted by path; `None` if the folder does not exist. `limit` is the maximum
    /// size of each file in bytes, and `most` the maximum number of nodes.
    /// Errors: if structures are damaged, or there are more nodes than `most`.
    pub fn tree(&self, folder: &str, limit: usize, most: usize) -> Result<Option<Vec<TreeNode>>> {
        let Some(top) = self.lookup(folder)?.filter(|top| top.kind() == Ext4FileKind::Directory) else {
            return Ok(None);
        };
        let mut out: Vec<TreeNode> = Vec::new();
        let mut left = vec![(Vec::new(), top)];
        while let Some((path, directory)) = left.pop() {
            let mut names = Vec::new();
            self.entries(&directory, |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.inode));
                }
                ControlFlow::Continue(())
            })?;
            if out.len() + names.len() > most {
                let structure = DiskStructure::Directory(directory.number);
                return Err(structure.fault(directory.offset, format!("there are more than {most} files below the folder")));
            }
            for (name, number) in names {
                let inode = self.inode(number)?;
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let path = [&path[..], separator, &name].concat();
                let data = match inode.kind() {
                    Ext4FileKind::Regular => self.contents(&inode, limit)?,
                    Ext4FileKind::Symlink => self.link(&inode)?,
                    _ => Vec::new(),
                };
                let mut attributes = self.attributes(&inode)?;
                attributes.sort();
                let (kind, links, mode, owners) = (inode.kind(), inode.links, inode.mode, inode.owners);
                let (modified, sectors) = (inode.modified.0, inode.sectors);
                if kind == Ext4FileKind::Directory {
                    left.push((path.clone(), inode));
                }
                out.push(TreeNode { path, kind, inode: number, links, data, attributes, mode, owners, modified, sectors });
            }
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Some(out))
    }
}
