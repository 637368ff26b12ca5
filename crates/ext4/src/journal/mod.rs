//! JBD2: the format of the journal, and its replay.

mod format;
mod recovery;

use emmclab_base::Result;

use crate::disk::{DiskReader, DiskStructure};
use crate::files::{Ext4FileKind, Ext4Filesystem, FileBlockRun, Inode, InodeFlags};
use crate::superblock::{Compat, Ext4Superblock, Incompat, OFFSET};
pub use format::{
    CommitBlock, FastCommitRecord, FastCommitRecords, FastCommitTag, JOURNAL_MAGIC, JournalChecksums, JournalFeatures,
    JournalRecord, JournalRecordKind, JournalSuperblock, JournalTag, JournalTagFlags, JournalTags, LogFormat, RevokedBlocks,
};
pub(crate) use format::{FAST_COMMIT_HEAD, JOURNAL_SUPERBLOCK_BYTES, JournalBlockHeader, JournalBlockKind, fast_commit_tag};
pub(crate) use recovery::is_before;
pub use recovery::{JournalRecovery, JournalReplaySummary, ReplayedDisk};

/// The location of the blocks of a journal, which is stored in an inode of the file system or on a separate device.
#[derive(Clone, Debug, Default)]
pub struct JournalLocation {
    runs: Vec<FileBlockRun>,
    block_size: u64,
    blocks: u64,
    /// The block of the journal that contains its superblock.
    superblock: u64,
}

impl JournalLocation {
    /// Locates the journal inside a file system; `None` if it has no journal, or a journal on another device.
    /// Errors: if the inode of the journal is damaged, or the journal has holes.
    pub fn inside<B: DiskReader>(filesystem: &Ext4Filesystem<B>) -> Result<Option<Self>> {
        let superblock = filesystem.superblock();
        if !superblock.compat.contains(Compat::HAS_JOURNAL) || superblock.journal_inode == 0 {
            return Ok(None);
        }
        Self::of_inode(filesystem, &filesystem.inode(superblock.journal_inode)?).map(Some)
    }

    /// Locates the journal that is stored in an inode.
    pub(crate) fn of_inode<B: DiskReader>(filesystem: &Ext4Filesystem<B>, inode: &Inode) -> Result<Self> {
        let superblock = filesystem.superblock();
        let structure = DiskStructure::Inode(inode.number);
        let fault = |problem: &str| structure.fault(inode.offset, problem);
        if inode.links == 0 || inode.kind() != Ext4FileKind::Regular || inode.flags.contains(InodeFlags::ENCRYPT) {
            return Err(fault("the inode is not a journal: it is deleted, encrypted or not a regular file"));
        }
        let block_size = u64::from(superblock.block_size);
        let blocks = inode.size / block_size;
        if blocks > superblock.blocks {
            return Err(fault("the journal is longer than the file system"));
        }
        let mut runs: Vec<FileBlockRun> = Vec::new();
        for run in filesystem.map(inode) {
            let run = run?;
            let Some(start) = run.physical else {
                return Err(fault(&format!("block {} of the journal is a hole", run.logical)));
            };
            match runs.last_mut() {
                Some(last) if last.physical.is_some_and(|before| before + last.blocks == start) => {
                    last.blocks += run.blocks;
                }
                _ => runs.push(run),
            }
        }
        Ok(Self { runs, block_size, blocks, superblock: 0 })
    }

    /// Locates the journal on a separate device, which must be the journal of `filesystem`.
    /// Errors: if the device is not a journal device, or is the journal of another file system.
    pub fn external(device: &dyn DiskReader, filesystem: &Ext4Superblock) -> Result<Self> {
        let structure = DiskStructure::JournalDevice;
        let mut bytes = [0; crate::superblock::BYTES];
        structure.read(device, OFFSET, &mut bytes)?;
        let superblock = Ext4Superblock::parse(&bytes, structure, OFFSET)?;
        if !superblock.incompat.contains(Incompat::JOURNAL_DEV) {
            return Err(structure.fault(OFFSET + 0x60, "not a journal device"));
        }
        if superblock.uuid != filesystem.journal_uuid {
            let problem = "the journal belongs to another file system: its UUID differs";
            return Err(structure.fault(OFFSET + 0x68, problem));
        }
        if superblock.block_size != filesystem.block_size {
            let problem = format!(
                "the journal has blocks of {} bytes, the file system of {} bytes",
                superblock.block_size, filesystem.block_size
            );
            return Err(structure.fault(OFFSET + 0x18, problem));
        }
        let block_size = u64::from(superblock.block_size);
        // Journal block numbers are block numbers of the journal device. The journal superblock is in the block after the one that contains
        // byte 1,024.
        let blocks = superblock.blocks;
        let run = FileBlockRun { logical: 0, blocks, physical: Some(0), unwritten: false };
        Ok(Self { runs: vec![run], block_size, blocks, superblock: OFFSET / block_size + 1 })
    }

    pub(crate) fn runs(&self) -> &[FileBlockRun] {
        &self.runs
    }

    /// Number of blocks of the journal.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block of the journal that contains its superblock.
    pub(crate) fn superblock_block(&self) -> u64 {
        self.superblock
    }

    /// The location of a block of the journal, in bytes on the disk that contains it; `None` if the block is beyond the end.
    pub fn offset(&self, block: u64) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.logical <= block);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let start = run.physical.filter(|_| block < run.end())?;
        (start + block - run.logical).checked_mul(self.block_size)
    }

    /// The block of the journal that contains a byte of the disk; `None` if the byte is outside of the journal.
    pub fn block_at(&self, offset: u64) -> Option<u64> {
        let block = offset / self.block_size.max(1);
        let holds = |run: &&FileBlockRun| run.physical.is_some_and(|start| (start..start + run.blocks).contains(&block));
        let run = self.runs.iter().find(holds)?;
        Some(run.logical + block - run.physical?)
    }

    /// Reads and checks the journal superblock.
    /// Errors: as for [`JournalSuperblock::parse`]; also if sizes do not agree with those of the file system.
    pub fn superblock(&self, disk: &dyn DiskReader) -> Result<JournalSuperblock> {
        let structure = DiskStructure::JournalSuperblock;
        let offset = self.offset(self.superblock).ok_or_else(|| structure.fault(0, "the journal is empty"))?;
        let mut bytes = [0; JOURNAL_SUPERBLOCK_BYTES];
        structure.read(disk, offset, &mut bytes)?;
        let out = JournalSuperblock::parse(&bytes, offset)?;
        if u64::from(out.block_size) != self.block_size {
            let problem =
                format!("the journal has blocks of {} bytes, the file system of {} bytes", out.block_size, self.block_size);
            return Err(structure.fault(offset + 0xC, problem));
        }
        if u64::from(out.blocks) > self.blocks {
            let problem = format!("{} blocks are stated, but the journal has {}", out.blocks, self.blocks);
            return Err(structure.fault(offset + 0x10, problem));
        }
        Ok(out)
    }
}
