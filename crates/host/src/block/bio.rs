//! A bio: a run of sectors that is submitted as one, and the state for its completion.

use emmclab_base::{BlockNote, BlockRole, Op, RequestFlags};

use crate::operation::FileClass;
use crate::request::IoCause;
use crate::task::TaskId;

/// Marks a missing index.
pub(crate) const NONE: u32 = u32::MAX;

/// Identifies a bio while it is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BioId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

impl BioId {
    /// Identifies no bio.
    pub const NONE: Self = Self { slot: NONE, generation: 0 };
}

/// The kind of a bio's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BioContents {
    /// Pages of a file, starting with `page`.
    Pages { inode: u32, page: u32 },
    /// Blocks of the file system, which itself checks whether they are complete.
    Blocks,
}

/// A bio to be submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BioRequest {
    pub op: Op,
    pub flags: RequestFlags,
    /// First sector, relative to the mount.
    pub sector: u64,
    pub sectors: u32,
    pub mount: u16,
    pub class: FileClass,
    pub cause: IoCause,
    pub content: BioContents,
    /// The roles of a write's sectors.
    pub note: Option<BlockNote>,
}

impl BioRequest {
    /// A read of blocks of the file system.
    pub fn read(mount: u16, sector: u64, sectors: u32, cause: IoCause) -> Self {
        Self {
            op: Op::Read,
            flags: RequestFlags::SYNC | RequestFlags::META,
            sector,
            sectors,
            mount,
            class: FileClass::Metadata,
            cause,
            content: BioContents::Blocks,
            note: None,
        }
    }

    /// A write of blocks of the file system.
    pub fn write(mount: u16, sector: u64, sectors: u32, role: BlockRole, cause: IoCause) -> Self {
        let class = if role.in_journal() { FileClass::FilesystemJournal } else { FileClass::Metadata };
        Self {
            op: Op::Write,
            flags: if role.in_journal() {
                RequestFlags::SYNC | RequestFlags::META | RequestFlags::JOURNAL
            } else {
                RequestFlags::META
            },
            class,
            note: Some(BlockNote::new(role, sectors)),
            ..Self::read(mount, sector, sectors, cause)
        }
    }

    /// A flush of the device's cache.
    pub fn flush(mount: u16, cause: IoCause) -> Self {
        let read = Self::read(mount, 0, 0, cause);
        Self { op: Op::Flush, flags: RequestFlags::SYNC, ..read }
    }

    /// Discards sectors that are no longer needed.
    pub fn discard(mount: u16, sector: u64, sectors: u32, cause: IoCause) -> Self {
        let read = Self::read(mount, sector, sectors, cause);
        Self { op: Op::Discard, flags: RequestFlags::empty(), ..read }
    }
}

/// A bio in progress.
#[derive(Debug)]
pub(super) struct Bio {
    pub submitted: BioRequest,
    pub generation: u32,
    /// Tasks that wait for it.
    pub waiters: Vec<TaskId>,
    /// The request that it belongs to.
    pub request: u32,
    /// The bio after it in the request.
    pub next: u32,
}
