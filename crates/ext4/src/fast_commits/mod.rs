//! The replay of fast commits: small records of single changes, which are stored after the log and applied on top of it. It follows
//! the rules of Linux `fs/ext4/fast_commit.c` (6.12 to 6.18), with these differences, none of which is visible to a reader of
//! files:
//!
//! - Times that the replay itself sets are not set.
//! - A directory with a hash tree loses the tree when a name is added; maps of extents are written anew.
//! - Counters of the superblock are unchanged: Linux writes them later.
//!
//! Refused with an error that names the reason: names added to or removed from a directory that is stored in its inode, is
//! encrypted or ignores case; and blocks added to or removed from a file or directory with indirect blocks.

mod allocation;
mod block_ranges;
mod dir_entries;
mod disk_editor;
mod inodes;
mod scan;

use std::cell::RefCell;

use emmclab_base::{Error, ErrorClass, Result};

use crate::disk_reader::DiskReader;
use crate::files::Ext4Filesystem;
use crate::journal::FastCommitTag;
use disk_editor::DiskEditor;
pub(crate) use disk_editor::{Edits, lay_over};
pub(crate) use scan::{FastCommitScan, FastCommitScanner};

/// A replay in progress.
struct FastCommitReplayer<'a> {
    files: Ext4Filesystem<DiskEditor<'a>>,
    /// Blocks that must not be allocated: first block, and number of blocks.
    regions: RefCell<Vec<(u64, u64)>>,
    /// Inodes whose blocks are marked as used at the end.
    modified: Vec<u32>,
}

/// Replays fast commits on a disk whose log was replayed. Returns the blocks that change and, if Linux fails on the way and refuses
/// to mount, the reason.
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
