//! Classifies the writes of an ext4 file system, by looking at the writes alone.
//!
//! An [`Annotator`] knows the locations of metadata ([`layout`]) and follows the log as it is written ([`journal`]). Locations are
//! read from the metadata itself: first from a disk ([`Annotator::attach`]) or from the writes of mkfs, later from what is logged
//! or written. A logged block at an unknown location is classified as a directory if it consists of directory entries, otherwise as
//! other metadata. It keeps this class until it is revoked, discarded, or found in a deleted directory. With `data=journal`,
//! contents of files are logged, too, and cannot be distinguished from other metadata.
//!
//! Without a disk, the order of writes matters only until the file system is known. Until then the last 16 MiB that were written
//! are kept, and examined when a superblock or a block with the journal's magic number is written. When mkfs flushes its buffers,
//! the superblock is the first block that is written, so that all later blocks are classified.

mod attach;
mod copies;
mod directories;
mod journal;
mod layout;
mod parts;
mod places;
mod recent;
mod status;

use emmclab_base::{BlockNote, Kind as ErrorKind, Role, SECTOR_BYTES};

pub use status::Status;

use crate::files::Filesystem;
use crate::journal::{JOURNAL_MAGIC, Location};
use crate::structure::Structure;
use crate::superblock::{BYTES, Compat, Incompat, OFFSET, Superblock};
use journal::Journal;
use layout::Layout;
use places::{At, Kind};
use recent::Recent;

const SECTOR: usize = SECTOR_BYTES as usize;
/// The sectors of the superblock.
const OWN: std::ops::Range<u64> = OFFSET / SECTOR_BYTES..(OFFSET + BYTES as u64) / SECTOR_BYTES;
/// Smallest blocks of a file system, bytes.
const LEAST_BLOCK: usize = 1024;

/// Location of the journal, as far as it is known.
enum Whereabouts {
    /// Not known yet.
    Unknown,
    /// The file system has no journal.
    None,
    /// Inside the file system.
    Inside,
    /// On a separate device, of which nothing was seen yet.
    Elsewhere,
    /// On a separate device, with this many blocks.
    External(u64),
}

/// Classifies each write of an ext4 file system.
///
/// ```
/// use emmclab_base::Role;
/// use emmclab_ext4::{Annotator, Status};
///
/// let mut annotator = Annotator::new();
/// let mut notes = Vec::new();
/// annotator.write(8, &[0; 4096], &mut notes);
/// assert_eq!((notes[0].role, notes[0].sectors), (Role::Data, 8));
/// assert_eq!(annotator.status(), Status::NoFilesystem);
/// ```
pub struct Annotator {
    layout: Option<Layout>,
    journal: Journal,
    whereabouts: Whereabouts,
    /// The bytes of the superblock, which may be written in parts.
    superblock: Box<[u8; BYTES]>,
    /// The reason why there is no layout.
    refused: Status,
    /// Whether transactions of an earlier mount wait for their replay.
    recovering: bool,
    recent: Recent,
    recent_journal: Recent,
}

impl Default for Annotator {
    fn default() -> Self {
        Self::new()
    }
}

impl Annotator {
    /// An annotator that knows nothing yet; it learns the file system from the writes of mkfs.
    pub fn new() -> Self {
        Self {
            layout: None,
            journal: Journal::default(),
            whereabouts: Whereabouts::Unknown,
            superblock: Box::new([0; BYTES]),
            refused: Status::NoFilesystem,
            recovering: false,
            recent: Recent::default(),
            recent_journal: Recent::default(),
        }
    }

    /// Classifies a write of whole sectors to the disk of the file system. `notes` is cleared; the new notes cover the write
    /// without gaps.
    pub fn write(&mut self, sector: u64, data: &[u8], notes: &mut Vec<BlockNote>) {
        notes.clear();
        if self.is_looking() {
            self.recent.write(sector.saturating_mul(SECTOR_BYTES), data);
        }
        let end = sector.saturating_add((data.len() / SECTOR) as u64);
        if sector < OWN.end && end > OWN.start {
            self.superblock_written(sector, data);
        }
        let mut at = sector;
        while at < end {
            if self.layout.as_mut().is_some_and(Layout::take_journal_moved) {
                self.locate_journal();
            }
            let rest = &data[(at - sector) as usize * SECTOR..];
            let note = self.next_note(at, &rest[..rest.len() / SECTOR * SECTOR]);
            at += u64::from(note.sectors);
            match notes.last_mut() {
                Some(last) if note.role == Role::Data && last.role == Role::Data => {
                    last.sectors += note.sectors;
                }
                _ => notes.push(note),
            }
        }
        if self.layout.as_mut().is_some_and(Layout::take_journal_moved) {
            self.locate_journal();
        }
        let is_due = |recent: &mut Recent| has_magic(data) && recent.is_due();
        if matches!(self.whereabouts, Whereabouts::Unknown) && is_due(&mut self.recent) {
            self.locate_journal();
        }
    }

    /// Like [`Self::write`], for a write of whole sectors to the device of an external journal.
    pub fn write_journal(&mut self, sector: u64, data: &[u8], notes: &mut Vec<BlockNote>) {
        notes.clear();
        if matches!(self.whereabouts, Whereabouts::Unknown | Whereabouts::Elsewhere) {
            self.recent_journal.write(sector.saturating_mul(SECTOR_BYTES), data);
            if has_magic(data) && self.recent_journal.is_due() {
                self.locate_external();
            }
        }
        let (Some(layout), &Whereabouts::External(blocks)) = (&mut self.layout, &self.whereabouts) else {
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
                notes.push(BlockNote::new(Role::Superblock, length as u32));
            } else {
                push_data(notes, length);
            }
            self.recovering &= self.journal.superblock().is_none_or(|superblock| superblock.start != 0);
            at = at.saturating_add(length);
            rest = after;
        }
    }

    /// Notes that sectors of the disk of the file system were discarded.
    pub fn discard(&mut self, sector: u64, sectors: u64) {
        let end = sector.saturating_add(sectors);
        self.recent.discard(sector.saturating_mul(SECTOR_BYTES), end.saturating_mul(SECTOR_BYTES));
        if sector <= OWN.start && end >= OWN.end {
            self.superblock.fill(0);
            self.refuse(Status::NoFilesystem);
        }
        let Some(layout) = &mut self.layout else { return };
        let size = u64::from(layout.superblock().block_size) / SECTOR_BYTES;
        layout.discarded(sector.div_ceil(size), end / size, |block| self.journal.forget(block));
    }

    /// The status of the annotation: whether a file system is known, and why writes are not classified.
    pub fn status(&self) -> Status {
        if self.layout.is_none() {
            return self.refused;
        }
        match (&self.whereabouts, self.journal.fault()) {
            (Whereabouts::Unknown, _) => Status::JournalUnknown,
            (Whereabouts::None, _) => Status::NoJournal,
            (Whereabouts::Elsewhere, _) => Status::JournalElsewhere,
            (_, Some(fault)) if fault.kind() == ErrorKind::Unsupported => Status::JournalUnsupported,
            (_, Some(_)) => Status::JournalDamaged,
            _ if self.journal.superblock().is_none() => Status::JournalUnknown,
            _ if self.recovering => Status::Recovering,
            _ => Status::Following,
        }
    }

    /// Whether writes are kept because the file system or its journal is still unknown.
    fn is_looking(&self) -> bool {
        matches!(self.whereabouts, Whereabouts::Unknown)
    }

    /// Returns the note of the first sectors of a write.
    fn next_note(&mut self, sector: u64, data: &[u8]) -> BlockNote {
        let sectors = (data.len() / SECTOR) as u64;
        let Some(layout) = &mut self.layout else { return BlockNote::new(Role::Data, sectors as u32) };
        let size = u64::from(layout.superblock().block_size) / SECTOR_BYTES;
        let (block, within) = (sector / size, sector % size);
        let place = match layout.at(block) {
            At::Gap(until) => {
                let sectors = until.saturating_mul(size).saturating_sub(sector).min(sectors);
                return BlockNote::new(Role::Data, sectors as u32);
            }
            At::Place(place) => place,
        };
        let sectors = (size - within).min(sectors) as usize;
        let bytes = &data[..sectors * SECTOR];
        let role = match place.kind {
            Kind::Journal => {
                let block = place.number(block) as u32;
                let note = self.journal.write(block, within as usize, bytes, layout);
                self.recovering &= self.journal.superblock().is_none_or(|superblock| superblock.start != 0);
                return note;
            }
            Kind::Descriptors => Role::GroupDescriptors,
            Kind::Inodes => Role::InodeTable,
            Kind::Fixed(role) | Kind::Learned(role) => role,
        };
        let compared = self.journal.compare(block, within as usize, bytes);
        let changed = compared.map(|(changed, ..)| changed);
        // If the block was logged, its locations were read at that time.
        if compared.is_none_or(|(changed, _, learned)| !changed.is_empty() || !learned) {
            layout.learn(place, block, within as usize, bytes, None);
            self.journal.set_learned(block);
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
        let parsed = Superblock::parse(&self.superblock[..], Structure::Superblock, OFFSET);
        let parsed = parsed.and_then(|superblock| {
            layout::check(&superblock, u64::MAX)?;
            Ok(superblock)
        });
        match parsed {
            Ok(superblock) if superblock.incompat.contains(Incompat::JOURNAL_DEV) => {
                self.refuse(Status::NoFilesystem);
            }
            Ok(superblock) => self.set_superblock(superblock),
            Err(error) => {
                let is_other = |layout: &Layout| {
                    crate::bytes::uuid(&self.superblock[..], 0x68) != layout.superblock().uuid
                };
                // This may be one half of a superblock that is written with two requests.
                if self.layout.as_ref().is_none_or(is_other) {
                    self.refuse(Status::of_superblock(&self.superblock[..], &error));
                }
            }
        }
    }

    fn set_superblock(&mut self, superblock: Superblock) {
        let same = self.layout.as_ref().is_some_and(|layout| layout.superblock().uuid == superblock.uuid);
        let block_bytes = superblock.block_size as usize;
        let kept = self.layout.as_mut().is_some_and(|layout| layout.update(superblock.clone()));
        if !kept {
            self.layout = Some(Layout::new(superblock));
        } else if !same && let Some(layout) = &mut self.layout {
            layout.forget_learned();
        }
        if kept && same {
            return;
        }
        self.journal.reset(block_bytes, 0);
        self.whereabouts = Whereabouts::Unknown;
        self.recovering = false;
        self.look_back();
    }

    fn refuse(&mut self, why: Status) {
        self.layout = None;
        self.refused = why;
        self.journal.reset(0, 0);
        self.whereabouts = Whereabouts::Unknown;
        self.recovering = false;
    }

    /// Reads the blocks that were written before the superblock: first descriptors, then the inodes to which they refer.
    fn look_back(&mut self) {
        let Some(layout) = &mut self.layout else { return };
        let size = layout.superblock().block_size as usize;
        for kind in [Kind::Descriptors, Kind::Inodes] {
            for (offset, chunk) in self.recent.chunks() {
                for (ahead, bytes) in chunk.chunks(size).enumerate() {
                    let offset = offset + (ahead * size) as u64;
                    let (block, within) = (offset / size as u64, offset as usize % size / SECTOR);
                    if let At::Place(place) = layout.at(block)
                        && place.kind == kind
                    {
                        layout.learn(place, block, within, bytes, None);
                    }
                }
            }
        }
    }

    /// Locates the journal, if enough of it was written.
    fn locate_journal(&mut self) {
        let Some(layout) = &mut self.layout else { return };
        let superblock = layout.superblock().clone();
        self.whereabouts = Whereabouts::Unknown;
        if !superblock.compat.contains(Compat::HAS_JOURNAL) {
            layout.set_journal(&[]);
            self.whereabouts = Whereabouts::None;
            self.recent.clear();
            return;
        }
        if superblock.journal_inode == 0 {
            layout.set_journal(&[]);
            self.whereabouts = Whereabouts::Elsewhere;
            self.recent.clear();
            self.locate_external();
            return;
        }
        let number = superblock.journal_inode;
        let filesystem = Filesystem::with(&self.recent, superblock);
        let found = layout.journal_inode().map(|bytes| {
            let inode = filesystem.parse_inode(number, bytes, 0)?;
            Location::of_inode(&filesystem, &inode)
        });
        let Some(Ok(location)) = found else { return };
        // The inode may also be written again for other reasons.
        if layout.set_journal(location.runs()) {
            self.journal.relocate(location.superblock_block() as u32);
            if let Ok(superblock) = location.superblock(&self.recent) {
                self.journal.set_superblock(superblock);
            }
        }
        self.whereabouts = Whereabouts::Inside;
        self.recent.clear();
    }

    /// Locates an external journal, if enough of it was written.
    fn locate_external(&mut self) {
        let Some(layout) = &self.layout else { return };
        if !matches!(self.whereabouts, Whereabouts::Elsewhere) {
            return;
        }
        let Ok(location) = Location::external(&self.recent_journal, layout.superblock()) else { return };
        let superblock = location.superblock(&self.recent_journal);
        self.set_external(&location);
        if let Ok(superblock) = superblock {
            self.journal.set_superblock(superblock);
        }
        self.recent_journal.clear();
    }

    fn set_external(&mut self, location: &Location) {
        self.journal.relocate(location.superblock_block() as u32);
        self.whereabouts = Whereabouts::External(location.blocks());
    }
}

/// Whether a block of a journal may start in this data.
fn has_magic(data: &[u8]) -> bool {
    data.chunks_exact(LEAST_BLOCK).any(|block| block.starts_with(&JOURNAL_MAGIC.to_be_bytes()))
}

fn push_data(notes: &mut Vec<BlockNote>, sectors: u64) {
    match notes.last_mut() {
        Some(last) if last.role == Role::Data => last.sectors += sectors as u32,
        _ if sectors == 0 => {}
        _ => notes.push(BlockNote::new(Role::Data, sectors as u32)),
    }
}
