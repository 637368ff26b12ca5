//! Replays fast commits: small records of single changes, which are stored after the log and applied on top of it. The replay follows the
//! rules of Linux `fs/ext4/fast_commit.c` (6.12 to 6.18), with these differences, none of which is visible to a reader of files:
//!
//! - Times that the replay itself sets are not set.
//! - A directory with a hash tree loses the tree when a name is added; extent maps are written anew.
//! - Counters in the superblock are not changed: Linux writes them later.
//!
//! The replay returns an error with the reason for names that are added to or removed from a directory that is stored in its inode, is
//! encrypted or ignores case, and for blocks that are added to or removed from a file or directory with indirect blocks.

mod dir_entries;
mod inodes;

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::io;

use emmclab_base::{Error, ErrorClass, Result};
use rustc_hash::FxHashMap;

use crate::disk::{DiskReader, DiskStructure, crc32c, le16, le32, wide};
use crate::files::{Ext4Filesystem, extent_length};
use crate::journal::{FAST_COMMIT_HEAD, FastCommitTag, fast_commit_tag};

struct FastCommitReplayer<'a> {
    files: Ext4Filesystem<DiskEditor<'a>>,
    /// Runs of blocks that must not be allocated: first block, and number of blocks.
    regions: RefCell<Vec<(u64, u64)>>,
    /// Inodes whose blocks are marked as used at the end of the replay.
    modified: Vec<u32>,
}

/// Replays fast commits on a disk whose log has been replayed. Returns the blocks that change and, if Linux fails during the replay and
/// refuses to mount, the reason.
pub(crate) fn replay(disk: &dyn DiskReader, scanned: FastCommitScan) -> Result<(Edits, Option<Error>)> {
    let block_size = Ext4Filesystem::open(disk)?.superblock().block_size as usize;
    let files = Ext4Filesystem::open(DiskEditor::new(disk, block_size))?;
    let mut replayer = FastCommitReplayer { files, regions: RefCell::new(scanned.regions), modified: Vec::new() };
    let mut refused = None;
    for step in &scanned.steps {
        let value = &step.value[..];
        let done = match step.tag {
            FastCommitTag::AddRange => replayer.add_range(value),
            FastCommitTag::DeleteRange => replayer.delete_range(value),
            FastCommitTag::Create => replayer.create(value),
            FastCommitTag::Link => replayer.link(value),
            FastCommitTag::Unlink => replayer.unlink(value),
            FastCommitTag::Inode => replayer.inode(value),
            FastCommitTag::Pad | FastCommitTag::Tail | FastCommitTag::Head => Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorClass::Unsupported => return Err(error),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    for number in replayer.modified.clone() {
        if let Some(inode) = replayer.live(number)? {
            replayer.mark_file(&inode, true, false)?;
        }
    }
    Ok((replayer.files.into_disk().into_edits(), refused))
}

const LONGEST_NAME: usize = 255;

/// A record of a fast commit that is to be replayed.
pub(crate) struct FastCommitStep {
    pub tag: FastCommitTag,
    pub value: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct FastCommitScan {
    pub steps: Vec<FastCommitStep>,
    /// Blocks that the scanned commits add to files, which the replay must not allocate: first block, and number of blocks.
    pub regions: Vec<(u64, u64)>,
    pub commits: u64,
}

/// Finds the complete fast commits that must be replayed after the log, by the rules of `ext4_fc_replay_scan` and `fc_do_one_pass`.
pub(crate) struct FastCommitScanner {
    /// The transaction to which the fast commits must belong.
    expected: u32,
    inode_size: usize,
    crc: u32,
    /// Records of all complete fast commits, followed by the records of the fast commit that is being scanned.
    scan: FastCommitScan,
    complete_lengths: (usize, usize),
}

impl FastCommitScanner {
    pub fn new(expected: u32, inode_size: u16) -> Self {
        Self { expected, inode_size: usize::from(inode_size), crc: 0, scan: FastCommitScan::default(), complete_lengths: (0, 0) }
    }

    /// Scans block `block` of the journal, which is at byte `offset` of the disk. Returns true if the sequence of fast commits ends in this
    /// block.
    pub fn block(&mut self, bytes: &[u8], block: u64, offset: u64, is_first: bool) -> Result<bool> {
        if is_first && le16(bytes, 0) != FastCommitTag::Head.number() {
            return Ok(true);
        }
        let structure = DiskStructure::FastCommit(block);
        let mut at = 0;
        while at + FAST_COMMIT_HEAD <= bytes.len() {
            let length = usize::from(le16(bytes, at + 2));
            let tag = fast_commit_tag(le16(bytes, at)).filter(|tag| self.is_length(*tag, length));
            let place = offset + at as u64;
            let end = |problem: String| self.end(structure.fault(place, problem));
            let (Some(tag), Some(value)) = (tag, bytes.get(at + FAST_COMMIT_HEAD..at + FAST_COMMIT_HEAD + length)) else {
                let (number, length) = (le16(bytes, at), length);
                return end(format!(
                    "no fast commit is complete before record {number} of {length} bytes, which is not valid: Linux does not mount this"
                ));
            };
            match tag {
                FastCommitTag::Head => {
                    let features = le32(value, 0);
                    if features != 0 {
                        return Err(structure.unsupported(place, format!("unknown features {features:#x} of fast commits")));
                    }
                    if le32(value, 4) != self.expected {
                        return Ok(true);
                    }
                }
                FastCommitTag::Tail => {
                    let computed = crc32c(self.crc, &bytes[at..at + FAST_COMMIT_HEAD + 4]);
                    let (transaction, stored) = (le32(value, 0), le32(value, 4));
                    if transaction != self.expected || stored != computed {
                        return end(format!(
                            "the first fast commit is of transaction {transaction} with checksum {stored:#010x}, where {} and \
                             {computed:#010x} are expected: Linux does not mount this",
                            self.expected
                        ));
                    }
                }
                FastCommitTag::AddRange => {
                    let (blocks, _) = extent_length(le16(value, 8));
                    let first = wide(le16(value, 10), le32(value, 12));
                    self.scan.regions.push((first, u64::from(blocks)));
                }
                _ => {}
            }
            self.scan.steps.push(FastCommitStep { tag, value: value.to_vec() });
            if tag == FastCommitTag::Tail {
                self.crc = 0;
                self.complete_lengths = (self.scan.steps.len(), self.scan.regions.len());
                self.scan.commits += 1;
            } else {
                self.crc = crc32c(self.crc, &bytes[at..at + FAST_COMMIT_HEAD + length]);
            }
            at += FAST_COMMIT_HEAD + length;
        }
        Ok(false)
    }

    /// Handles data that is not a valid record: the fast commits end here, or Linux refuses to mount if no commit is complete.
    fn end(&self, fault: Error) -> Result<bool> {
        if self.complete_lengths.0 == 0 { Err(fault) } else { Ok(true) }
    }

    fn is_length(&self, tag: FastCommitTag, length: usize) -> bool {
        match tag {
            FastCommitTag::AddRange => length == 16,
            FastCommitTag::DeleteRange => length == 12,
            FastCommitTag::Create | FastCommitTag::Link | FastCommitTag::Unlink => (9..=8 + LONGEST_NAME).contains(&length),
            FastCommitTag::Inode => (4 + 128..=4 + self.inode_size).contains(&length),
            FastCommitTag::Pad => true,
            FastCommitTag::Tail => length >= 8,
            FastCommitTag::Head => length == 8,
        }
    }

    /// Returns the records of complete commits.
    pub fn finish(mut self) -> FastCommitScan {
        self.scan.steps.truncate(self.complete_lengths.0);
        self.scan.regions.truncate(self.complete_lengths.1);
        self.scan
    }
}

/// Changed blocks, by their number.
pub(crate) type Edits = FxHashMap<u64, Vec<u8>>;

/// A disk together with its changed blocks.
struct DiskEditor<'a> {
    disk: &'a dyn DiskReader,
    block_size: usize,
    edits: RefCell<Edits>,
}

impl<'a> DiskEditor<'a> {
    pub fn new(disk: &'a dyn DiskReader, block_size: usize) -> Self {
        Self { disk, block_size, edits: RefCell::default() }
    }

    /// Writes bytes to one block or to consecutive blocks, in memory.
    pub fn write(&self, structure: DiskStructure, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let size = self.block_size as u64;
            let (block, within) = (at / size, (at % size) as usize);
            let length = rest.len().min(self.block_size - within);
            let mut edits = self.edits.borrow_mut();
            let whole = match edits.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(empty) => {
                    let mut whole = vec![0; self.block_size];
                    structure.read(self.disk, block * size, &mut whole)?;
                    empty.insert(whole)
                }
            };
            whole[within..within + length].copy_from_slice(&rest[..length]);
            at += length as u64;
            rest = &rest[length..];
        }
        Ok(())
    }

    pub fn into_edits(self) -> Edits {
        self.edits.into_inner()
    }
}

impl DiskReader for DiskEditor<'_> {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)?;
        lay_over(&self.edits.borrow(), self.block_size as u64, offset, buffer);
        Ok(())
    }
}

/// Replaces the parts of `buffer` that lie in changed blocks by the changed contents. `buffer` was read from byte `offset` of the disk on.
pub(crate) fn lay_over(edits: &Edits, size: u64, offset: u64, buffer: &mut [u8]) {
    if edits.is_empty() || buffer.is_empty() {
        return;
    }
    let end = offset + buffer.len() as u64;
    for block in offset / size..end.div_ceil(size) {
        let Some(bytes) = edits.get(&block) else { continue };
        let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
        buffer[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - block * size) as usize..(to - block * size) as usize]);
    }
}
