//! Classifies the writes to an ext4 file system from the writes alone.
//!
//! An [`Annotator`] knows the locations of metadata ([`metadata_layout`]) and follows the log as it is written ([`journal`]). Locations are
//! read from the metadata itself: at first from a disk ([`Annotator::attach`]) or from the writes of mkfs, later from logged or written
//! blocks. A logged block at an unknown location is classified as a directory if it consists of directory entries, otherwise as other
//! metadata. It keeps this class until it is revoked or discarded, or until its directory is deleted. With `data=journal`, contents of
//! files are also logged, and cannot be distinguished from other metadata.
//!
//! Without a disk, the last 16 MiB of writes are kept until the file system is known. They are examined when a superblock or a block with
//! the journal's magic number is written. mkfs flushes its superblock before its other blocks, so all of these are classified.

mod journal;
mod metadata_layout;
mod recent_writes;

use std::fmt;

use emmclab_base::{BlockNote, BlockRole, Error, ErrorClass, Result, SECTOR_BYTES};

use crate::disk::{DiskReader, DiskStructure, le16};
use crate::files::{Ext4Filesystem, GroupDescriptor};
use crate::journal::{JOURNAL_MAGIC, JournalLocation, JournalRecovery};
use crate::superblock::{BYTES, Compat, Ext4Superblock, Incompat, MAGIC, OFFSET};
use journal::JournalFollower;
use metadata_layout::{BlockLookup, BlockRunKind, MetadataLayout, check_layout, runs_of};
use recent_writes::RecentWrites;

const SECTOR: usize = SECTOR_BYTES as usize;
const OWN: std::ops::Range<u64> = OFFSET / SECTOR_BYTES..(OFFSET + BYTES as u64) / SECTOR_BYTES;
/// Minimum block size of a file system, bytes.
const LEAST_BLOCK: usize = 1024;

/// The location of the journal, if known.
enum JournalPlacement {
    /// The location is not known yet.
    Unknown,
    /// The file system has no journal.
    None,
    /// Inside the file system.
    Inside,
    /// On a separate device, from which nothing has been read.
    Elsewhere,
    /// On a separate device with this number of blocks.
    External(u64),
}

/// Classifies each write of an ext4 file system.
///
/// ```
/// use emmclab_base::BlockRole;
/// use emmclab_ext4::{Annotator, AnnotatorStatus};
///
/// let mut annotator = Annotator::new();
/// let mut notes = Vec::new();
/// annotator.write(8, &[0; 4096], &mut notes);
/// assert_eq!((notes[0].role, notes[0].sectors), (BlockRole::Data, 8));
/// assert_eq!(annotator.status(), AnnotatorStatus::NoFilesystem);
/// ```
pub struct Annotator {
    layout: Option<MetadataLayout>,
    journal: JournalFollower,
    journal_placement: JournalPlacement,
    /// The bytes of the superblock, which may be written in parts.
    superblock: Box<[u8; BYTES]>,
    /// The reason why no file system layout is known.
    refused: AnnotatorStatus,
    /// Whether the log has transactions of an earlier mount that have not been replayed.
    recovering: bool,
    recent: RecentWrites,
    recent_journal: RecentWrites,
}

impl Default for Annotator {
    fn default() -> Self {
        Self::new()
    }
}

impl Annotator {
    /// Creates an annotator that learns the file system from the writes of mkfs.
    pub fn new() -> Self {
        Self {
            layout: None,
            journal: JournalFollower::default(),
            journal_placement: JournalPlacement::Unknown,
            superblock: Box::new([0; BYTES]),
            refused: AnnotatorStatus::NoFilesystem,
            recovering: false,
            recent: RecentWrites::default(),
            recent_journal: RecentWrites::default(),
        }
    }

    /// Classifies a write of whole sectors to the disk of the file system. Replaces the contents of `notes` with notes that cover the write
    /// without gaps.
    pub fn write(&mut self, sector: u64, data: &[u8], notes: &mut Vec<BlockNote>) {
        notes.clear();
        // Recent writes are kept while the file system or its journal is not known yet.
        if matches!(self.journal_placement, JournalPlacement::Unknown) {
            self.recent.write(sector.saturating_mul(SECTOR_BYTES), data);
        }
        let end = sector.saturating_add((data.len() / SECTOR) as u64);
        if sector < OWN.end && end > OWN.start {
            self.superblock_written(sector, data);
        }
        let mut at = sector;
        while at < end {
            if self.layout.as_mut().is_some_and(MetadataLayout::take_journal_moved) {
                self.locate_journal();
            }
            let rest = &data[(at - sector) as usize * SECTOR..];
            let note = self.next_note(at, &rest[..rest.len() / SECTOR * SECTOR]);
            at += u64::from(note.sectors);
            match notes.last_mut() {
                Some(last) if note.role == BlockRole::Data && last.role == BlockRole::Data => {
                    last.sectors += note.sectors;
                }
                _ => notes.push(note),
            }
        }
        if self.layout.as_mut().is_some_and(MetadataLayout::take_journal_moved) {
            self.locate_journal();
        }
        let is_due = |recent: &mut RecentWrites| has_magic(data) && recent.is_due();
        if matches!(self.journal_placement, JournalPlacement::Unknown) && is_due(&mut self.recent) {
            self.locate_journal();
        }
    }

    /// Like [`Self::write`], for a write of whole sectors to the device of an external journal.
    pub fn write_journal(&mut self, sector: u64, data: &[u8], notes: &mut Vec<BlockNote>) {
        notes.clear();
        if matches!(self.journal_placement, JournalPlacement::Unknown | JournalPlacement::Elsewhere) {
            self.recent_journal.write(sector.saturating_mul(SECTOR_BYTES), data);
            if has_magic(data) && self.recent_journal.is_due() {
                self.locate_external();
            }
        }
        let (Some(layout), &JournalPlacement::External(blocks)) = (&mut self.layout, &self.journal_placement) else {
            push_data(notes, (data.len() / SECTOR) as u64);
            return;
        };
        let size = u64::from(layout.superblock().block_size) / SECTOR_BYTES;
        let mut rest = data;
        let mut at = sector;
        while rest.len() >= SECTOR {
            let (block, within) = (at / size, at % size);
            let length = (size - within).min((rest.len() / SECTOR) as u64);
            let (part, after) = rest.split_at(length as usize * SECTOR);
            let first = OFFSET / SECTOR_BYTES / size;
            if block > first && block < blocks {
                let note = self.journal.write(block as u32, within as usize, part, layout);
                notes.push(note);
            } else if block == first {
                notes.push(BlockNote::new(BlockRole::Superblock, length as u32));
            } else {
                push_data(notes, length);
            }
            self.recovering &= self.journal.superblock().is_none_or(|superblock| superblock.start != 0);
            at = at.saturating_add(length);
            rest = after;
        }
    }

    /// Handles a discard of sectors on the disk of the file system.
    pub fn discard(&mut self, sector: u64, sectors: u64) {
        let end = sector.saturating_add(sectors);
        self.recent.discard(sector.saturating_mul(SECTOR_BYTES), end.saturating_mul(SECTOR_BYTES));
        if sector <= OWN.start && end >= OWN.end {
            self.superblock.fill(0);
            self.refuse(AnnotatorStatus::NoFilesystem);
        }
        let Some(layout) = &mut self.layout else { return };
        let size = u64::from(layout.superblock().block_size) / SECTOR_BYTES;
        layout.discarded(sector.div_ceil(size), end / size, |block| self.journal.forget(block));
    }

    /// The status of the annotation: whether a file system is known, and why writes are not classified.
    pub fn status(&self) -> AnnotatorStatus {
        if self.layout.is_none() {
            return self.refused;
        }
        match (&self.journal_placement, self.journal.fault()) {
            (JournalPlacement::Unknown, _) => AnnotatorStatus::JournalUnknown,
            (JournalPlacement::None, _) => AnnotatorStatus::NoJournal,
            (JournalPlacement::Elsewhere, _) => AnnotatorStatus::JournalElsewhere,
            (_, Some(fault)) if fault.kind() == ErrorClass::Unsupported => AnnotatorStatus::JournalUnsupported,
            (_, Some(_)) => AnnotatorStatus::JournalDamaged,
            _ if self.journal.superblock().is_none() => AnnotatorStatus::JournalUnknown,
            _ if self.recovering => AnnotatorStatus::Recovering,
            _ => AnnotatorStatus::Following,
        }
    }

    /// Returns the classification of the first sectors of a write.
    fn next_note(&mut self, sector: u64, data: &[u8]) -> BlockNote {
        let sectors = (data.len() / SECTOR) as u64;
        let Some(layout) = &mut self.layout else { return BlockNote::new(BlockRole::Data, sectors as u32) };
        let size = u64::from(layout.superblock().block_size) / SECTOR_BYTES;
        let (block, within) = (sector / size, sector % size);
        let place = match layout.at(block) {
            BlockLookup::Gap(until) => {
                let sectors = until.saturating_mul(size).saturating_sub(sector).min(sectors);
                return BlockNote::new(BlockRole::Data, sectors as u32);
            }
            BlockLookup::Place(place) => place,
        };
        let sectors = (size - within).min(sectors) as usize;
        let bytes = &data[..sectors * SECTOR];
        let role = match place.kind {
            BlockRunKind::Journal => {
                let block = place.number(block) as u32;
                let note = self.journal.write(block, within as usize, bytes, layout);
                self.recovering &= self.journal.superblock().is_none_or(|superblock| superblock.start != 0);
                return note;
            }
            BlockRunKind::Descriptors => BlockRole::GroupDescriptors,
            BlockRunKind::Inodes => BlockRole::InodeTable,
            BlockRunKind::Fixed(role) | BlockRunKind::Learned(role) => role,
        };
        let compared = self.journal.compare(block, within as usize, bytes);
        let changed = compared.map(|(changed, ..)| changed);
        // The locations of other metadata in this block are read, unless they are known from an equal copy in the journal.
        if compared.is_none_or(|(changed, _, learned)| !changed.is_empty() || !learned) {
            layout.learn(place, block, within as usize, bytes, None);
            self.journal.set_locations_known(block);
        }
        BlockNote {
            transaction: compared.map(|(_, transaction, _)| transaction),
            changed,
            ..BlockNote::new(role, sectors as u32)
        }
    }

    /// Handles a write to sectors of the superblock.
    fn superblock_written(&mut self, sector: u64, data: &[u8]) {
        for (place, own) in OWN.enumerate() {
            let from = own.checked_sub(sector).map(|ahead| ahead as usize * SECTOR);
            if let Some(bytes) = from.and_then(|from| data.get(from..from + SECTOR)) {
                self.superblock[place * SECTOR..(place + 1) * SECTOR].copy_from_slice(bytes);
            }
        }
        let parsed = Ext4Superblock::parse(&self.superblock[..], DiskStructure::Superblock, OFFSET);
        let parsed = parsed.and_then(|superblock| {
            check_layout(&superblock, u64::MAX)?;
            Ok(superblock)
        });
        match parsed {
            Ok(superblock) if superblock.incompat.contains(Incompat::JOURNAL_DEV) => {
                self.refuse(AnnotatorStatus::NoFilesystem);
            }
            Ok(superblock) => self.set_superblock(superblock),
            Err(error) => {
                let is_other =
                    |layout: &MetadataLayout| crate::disk::uuid(&self.superblock[..], 0x68) != layout.superblock().uuid;
                // The superblock may be split over two write requests, of which only one has arrived.
                if self.layout.as_ref().is_none_or(is_other) {
                    self.refuse(AnnotatorStatus::of_superblock(&self.superblock[..], &error));
                }
            }
        }
    }

    fn set_superblock(&mut self, superblock: Ext4Superblock) {
        let same = self.layout.as_ref().is_some_and(|layout| layout.superblock().uuid == superblock.uuid);
        let block_bytes = superblock.block_size as usize;
        let kept = self.layout.as_mut().is_some_and(|layout| layout.update(superblock.clone()));
        if !kept {
            self.layout = Some(MetadataLayout::new(superblock));
        } else if !same && let Some(layout) = &mut self.layout {
            layout.forget_learned();
        }
        if kept && same {
            return;
        }
        self.journal.reset(block_bytes, 0);
        self.journal_placement = JournalPlacement::Unknown;
        self.recovering = false;
        self.examine_recent();
    }

    fn refuse(&mut self, why: AnnotatorStatus) {
        self.layout = None;
        self.refused = why;
        self.journal.reset(0, 0);
        self.journal_placement = JournalPlacement::Unknown;
        self.recovering = false;
    }

    /// Reads the blocks that were written before the superblock: first the group descriptors, then the inode tables to which the
    /// descriptors refer.
    fn examine_recent(&mut self) {
        let Some(layout) = &mut self.layout else { return };
        let size = layout.superblock().block_size as usize;
        for kind in [BlockRunKind::Descriptors, BlockRunKind::Inodes] {
            for (offset, chunk) in self.recent.chunks() {
                for (ahead, bytes) in chunk.chunks(size).enumerate() {
                    let offset = offset + (ahead * size) as u64;
                    let (block, within) = (offset / size as u64, offset as usize % size / SECTOR);
                    if let BlockLookup::Place(place) = layout.at(block)
                        && place.kind == kind
                    {
                        layout.learn(place, block, within, bytes, None);
                    }
                }
            }
        }
    }

    /// Locates the journal, if enough of it has been written.
    fn locate_journal(&mut self) {
        let Some(layout) = &mut self.layout else { return };
        let superblock = layout.superblock().clone();
        self.journal_placement = JournalPlacement::Unknown;
        if !superblock.compat.contains(Compat::HAS_JOURNAL) {
            layout.set_journal(&[]);
            self.journal_placement = JournalPlacement::None;
            self.recent.clear();
            return;
        }
        if superblock.journal_inode == 0 {
            layout.set_journal(&[]);
            self.journal_placement = JournalPlacement::Elsewhere;
            self.recent.clear();
            self.locate_external();
            return;
        }
        let number = superblock.journal_inode;
        let filesystem = Ext4Filesystem::with_superblock(&self.recent, superblock);
        let location = layout.journal_inode().map(|bytes| {
            let inode = filesystem.parse_inode(number, bytes, 0)?;
            JournalLocation::of_inode(&filesystem, &inode)
        });
        let Some(Ok(location)) = location else { return };
        // The journal inode may also be rewritten without a change of the journal's location.
        if layout.set_journal(location.runs()) {
            self.journal.relocate(location.superblock_block() as u32);
            if let Ok(superblock) = location.superblock(&self.recent) {
                self.journal.set_superblock(superblock);
            }
        }
        self.journal_placement = JournalPlacement::Inside;
        self.recent.clear();
    }

    /// Locates an external journal, if enough of it has been written.
    fn locate_external(&mut self) {
        let Some(layout) = &self.layout else { return };
        if !matches!(self.journal_placement, JournalPlacement::Elsewhere) {
            return;
        }
        let Ok(location) = JournalLocation::external(&self.recent_journal, layout.superblock()) else {
            return;
        };
        let superblock = location.superblock(&self.recent_journal);
        self.set_external(&location);
        if let Ok(superblock) = superblock {
            self.journal.set_superblock(superblock);
        }
        self.recent_journal.clear();
    }

    fn set_external(&mut self, location: &JournalLocation) {
        self.journal.relocate(location.superblock_block() as u32);
        self.journal_placement = JournalPlacement::External(location.blocks());
    }
}

/// Whether these bytes may contain the start of a journal block, which begins with a magic number.
fn has_magic(data: &[u8]) -> bool {
    data.chunks_exact(LEAST_BLOCK).any(|block| block.starts_with(&JOURNAL_MAGIC.to_be_bytes()))
}

fn push_data(notes: &mut Vec<BlockNote>, sectors: u64) {
    match notes.last_mut() {
        Some(last) if last.role == BlockRole::Data => last.sectors += sectors as u32,
        _ if sectors == 0 => {}
        _ => notes.push(BlockNote::new(BlockRole::Data, sectors as u32)),
    }
}

impl Annotator {
    /// Forgets the current file system and reads the one on a disk. A disk without a file system is not an error. Reads the group
    /// descriptors, the inodes in use, and the journal if it must be replayed.
    /// Errors: if the disk cannot be read. Damaged structures are skipped; [`Self::status`] reports them.
    pub fn attach(&mut self, disk: &dyn DiskReader) -> Result<()> {
        let mut recovery = JournalRecovery::new();
        match recovery.replay(disk) {
            Ok(replayed) => {
                let end = replayed.replay().end;
                self.learn_disk(&replayed)?;
                self.learn_journal(disk, Some(end))
            }
            Err(error) if error.kind() == ErrorClass::Io => Err(error),
            Err(_) => {
                self.learn_disk(disk)?;
                self.learn_journal(disk, None)
            }
        }
    }

    /// Like [`Self::attach`], for a journal on a separate device; writes to that device are passed to [`Self::write_journal`].
    /// Errors: if a device cannot be read, or `journal` is not the journal of this file system.
    pub fn attach_external(&mut self, disk: &dyn DiskReader, journal: &dyn DiskReader) -> Result<()> {
        let mut recovery = JournalRecovery::new();
        let end = match recovery.replay_external(disk, journal) {
            Ok(replayed) => {
                self.learn_disk(&replayed)?;
                Some(replayed.replay().end)
            }
            Err(error) if error.kind() == ErrorClass::Io => return Err(error),
            Err(_) => {
                self.learn_disk(disk)?;
                None
            }
        };
        let Some(layout) = &mut self.layout else { return Ok(()) };
        layout.take_journal_moved();
        self.journal_placement = JournalPlacement::Elsewhere;
        let location = JournalLocation::external(journal, layout.superblock())?;
        self.set_external(&location);
        self.read_log(journal, &location, end)
    }

    /// Reads the layout of a file system as it is after the replay of its journal, as far as it can be read.
    fn learn_disk(&mut self, disk: &dyn DiskReader) -> Result<()> {
        *self = Self::new();
        if disk.size().is_ok_and(|size| size < OFFSET + BYTES as u64) {
            return Ok(());
        }
        DiskStructure::Superblock.read(disk, OFFSET, &mut self.superblock[..])?;
        let size = disk.size().unwrap_or(u64::MAX);
        let superblock = Ext4Superblock::read(disk).and_then(|superblock| {
            check_layout(&superblock, size)?;
            Ok(superblock)
        });
        let superblock = match superblock {
            Ok(superblock) => superblock,
            Err(error) if error.kind() == ErrorClass::Io => return Err(error),
            Err(error) => {
                self.refused = AnnotatorStatus::of_superblock(&self.superblock[..], &error);
                return Ok(());
            }
        };
        self.journal.reset(superblock.block_size as usize, 0);
        let mut layout = MetadataLayout::new(superblock.clone());
        let filesystem = Ext4Filesystem::with_superblock(disk, superblock);
        let groups = filesystem.superblock().groups() as u32;
        let known: Vec<(u32, GroupDescriptor)> =
            (0..groups).filter_map(|number| Some((number, filesystem.group(number).ok()?))).collect();
        for (number, group) in &known {
            layout.set_group(*number, group);
        }
        for (_, group) in &known {
            learn_inodes(&mut layout, &filesystem, group)?;
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Locates the journal inside a known file system, and reads its log up to transaction `end`.
    fn learn_journal(&mut self, disk: &dyn DiskReader, end: Option<u32>) -> Result<()> {
        let Some(layout) = &mut self.layout else { return Ok(()) };
        layout.take_journal_moved();
        let superblock = layout.superblock().clone();
        if superblock.compat.contains(Compat::HAS_JOURNAL) && superblock.journal_inode == 0 {
            self.journal_placement = JournalPlacement::Elsewhere;
            return Ok(());
        }
        match JournalLocation::inside(&Ext4Filesystem::with_superblock(disk, superblock)) {
            Ok(Some(location)) => {
                layout.set_journal(location.runs());
                self.journal.relocate(location.superblock_block() as u32);
                self.journal_placement = JournalPlacement::Inside;
                self.read_log(disk, &location, end)
            }
            Ok(None) => {
                self.journal_placement = JournalPlacement::None;
                Ok(())
            }
            Err(error) if error.kind() == ErrorClass::Io => Err(error),
            Err(error) => {
                self.journal_placement = JournalPlacement::Inside;
                self.journal.set_fault(error);
                Ok(())
            }
        }
    }

    /// Reads the copies of blocks in the part of the log that must be replayed, up to transaction `end`. A replay writes these copies to
    /// their home blocks.
    fn read_log(&mut self, disk: &dyn DiskReader, location: &JournalLocation, end: Option<u32>) -> Result<()> {
        let superblock = match location.superblock(disk) {
            Ok(superblock) => superblock,
            Err(error) if error.kind() == ErrorClass::Io => return Err(error),
            Err(error) => {
                self.journal.set_fault(error);
                return Ok(());
            }
        };
        let (first, start) = (superblock.sequence, superblock.start);
        let (block_bytes, blocks) = (superblock.block_size as usize, superblock.blocks);
        self.journal.set_superblock(superblock);
        let Some(layout) = &mut self.layout else { return Ok(()) };
        let needs_recovery = layout.superblock().incompat.contains(Incompat::RECOVER);
        self.recovering = start != 0 && needs_recovery;
        let Some(end) = end.filter(|end| self.recovering && *end != first) else { return Ok(()) };
        let mut bytes = vec![0; block_bytes];
        let mut block = start;
        for _ in 0..blocks {
            let Some(offset) = location.offset(u64::from(block)) else { break };
            DiskStructure::JournalBlock(u64::from(block)).read(disk, offset, &mut bytes)?;
            let note = self.journal.write(block, 0, &bytes, layout);
            if note.role == BlockRole::Commit && note.transaction.is_some_and(|of| of.wrapping_add(1) == end) {
                break;
            }
            block = self.journal.after(block);
        }
        self.journal.forget_transactions();
        Ok(())
    }
}

/// Reads the layout from the used inodes of a group.
fn learn_inodes<B: DiskReader>(
    layout: &mut MetadataLayout, filesystem: &Ext4Filesystem<B>, group: &GroupDescriptor,
) -> Result<()> {
    // If the bitmap is damaged, all inodes are read.
    let used = match filesystem.inode_bitmap(group) {
        Ok(None) => return Ok(()),
        used => used.ok().flatten(),
    };
    let superblock = filesystem.superblock();
    let size = superblock.block_size as usize;
    let per_block = superblock.block_size / u32::from(superblock.inode_size);
    let mut bytes = vec![0; size];
    for at in 0..superblock.inodes_per_group.div_ceil(per_block) {
        let bit =
            |bit: u32| used.as_ref().is_none_or(|used| used.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1));
        if !(at * per_block..(at + 1) * per_block).any(bit) {
            continue;
        }
        let block = group.inode_table + u64::from(at);
        let BlockLookup::Place(place) = layout.at(block) else { continue };
        let first = group.first_inode(superblock) + at * per_block;
        DiskStructure::Inode(first).read(filesystem.disk(), block * size as u64, &mut bytes)?;
        layout.learn(place, block, 0, &bytes, None);
        for (slot, bytes) in (0..).zip(bytes.chunks_exact(usize::from(superblock.inode_size))) {
            if !runs_of(bytes).is_some_and(|runs| runs.is_deep) {
                continue;
            }
            let Ok(inode) = filesystem.inode(first + slot) else { continue };
            for run in filesystem.map(&inode).map_while(Result::ok) {
                if let Some(start) = run.physical {
                    layout.learn_directory(start, start + run.blocks);
                }
            }
        }
    }
    Ok(())
}

/// What an [`crate::Annotator`] knows about the file system, and why writes are not classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnnotatorStatus {
    /// No superblock of ext4 has been written; all writes count as data.
    NoFilesystem,
    /// The superblock is damaged; all writes count as data.
    Damaged,
    /// The file system has unsupported features, or an unsupported size; all writes count as data.
    Unsupported,
    /// The file system has no journal; metadata is classified by its location.
    NoJournal,
    /// The location of the journal is not known yet; metadata is classified by its location.
    JournalUnknown,
    /// The journal is on another device, which is not observed; metadata is classified by its location.
    JournalElsewhere,
    /// The inode or the superblock of the journal is damaged; the blocks of the journal are classified as data.
    JournalDamaged,
    /// The journal has unsupported features; its blocks count as data.
    JournalUnsupported,
    /// The log of an earlier mount has not been replayed yet, or is being replayed; all writes are classified.
    Recovering,
    /// All writes are classified.
    Following,
}

impl AnnotatorStatus {
    /// Returns the status after a superblock with these bytes has been rejected with this error.
    fn of_superblock(bytes: &[u8], error: &Error) -> Self {
        match error.kind() {
            _ if le16(bytes, 0x38) != MAGIC => Self::NoFilesystem,
            ErrorClass::Unsupported => Self::Unsupported,
            _ => Self::Damaged,
        }
    }
}

impl fmt::Display for AnnotatorStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFilesystem => "no ext4 file system",
            Self::Damaged => "the superblock of the file system is damaged",
            Self::Unsupported => "the file system has unknown features",
            Self::NoJournal => "the file system has no journal",
            Self::JournalUnknown => "the location of the journal is not known yet",
            Self::JournalElsewhere => "the journal is on another device",
            Self::JournalDamaged => "the journal is damaged",
            Self::JournalUnsupported => "the journal has unknown features",
            Self::Recovering => "the log of an earlier mount must be replayed",
            Self::Following => "ext4 with a journal",
        })
    }
}
