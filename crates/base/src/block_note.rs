//! Roles of the blocks of a write in the file system above.

/// The role of a run of sectors of a write in an ext4 file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockRole {
    /// Contents of files, and every block that is none of the following.
    Data,
    /// The superblock, or a copy of it.
    Superblock,
    /// Descriptors of block groups.
    GroupDescriptors,
    /// A bitmap of blocks.
    BlockBitmap,
    /// A bitmap of inodes.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// A block of a directory.
    Directory,
    /// Other metadata: extent trees, indirect blocks, extended attributes, symbolic links.
    Metadata,
    /// The superblock of the journal.
    JournalSuperblock,
    /// A descriptor block of the journal, which lists the places in the file system (homes) of the logged blocks after it.
    Descriptor,
    /// A copy of a block in the journal.
    Logged,
    /// A revoke block of the journal.
    Revoke,
    /// The commit block of a transaction.
    Commit,
    /// A block of fast commits.
    FastCommit,
}

impl BlockRole {
    /// All roles.
    pub const ALL: [Self; 14] = [
        Self::Data,
        Self::Superblock,
        Self::GroupDescriptors,
        Self::BlockBitmap,
        Self::InodeBitmap,
        Self::InodeTable,
        Self::Directory,
        Self::Metadata,
        Self::JournalSuperblock,
        Self::Descriptor,
        Self::Logged,
        Self::Revoke,
        Self::Commit,
        Self::FastCommit,
    ];

    /// The name in traces and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Superblock => "superblock",
            Self::GroupDescriptors => "group_descriptors",
            Self::BlockBitmap => "block_bitmap",
            Self::InodeBitmap => "inode_bitmap",
            Self::InodeTable => "inode_table",
            Self::Directory => "directory",
            Self::Metadata => "metadata",
            Self::JournalSuperblock => "journal_superblock",
            Self::Descriptor => "descriptor",
            Self::Logged => "logged",
            Self::Revoke => "revoke",
            Self::Commit => "commit",
            Self::FastCommit => "fast_commit",
        }
    }

    /// The role with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether the block is in the journal.
    pub const fn in_journal(self) -> bool {
        matches!(self, Self::JournalSuperblock | Self::Descriptor | Self::Logged | Self::Revoke | Self::Commit | Self::FastCommit)
    }

    /// Whether it is metadata at its place in the file system, which a journal may log.
    pub const fn at_home(self) -> bool {
        !self.in_journal() && !matches!(self, Self::Data)
    }
}

/// Sectors of a block, the first one in the lowest bit. Blocks have at most 64 KiB, which are 128 sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorSet(pub u128);

impl SectorSet {
    /// The first `count` sectors.
    pub const fn first(count: u32) -> Self {
        Self(if count >= u128::BITS { u128::MAX } else { (1 << count) - 1 })
    }

    /// Number of sectors in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains this sector.
    pub const fn contains(self, sector: u32) -> bool {
        sector < u128::BITS && self.0 >> sector & 1 == 1
    }
}

/// A run of sectors of a write and its role. The notes of a write cover it from its first sector on, without gaps; a run of [`BlockRole::Data`]
/// may have any length; a run of another role is a block, or a part of one if the write begins or ends inside the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockNote {
    /// Its role.
    pub role: BlockRole,
    /// Length in sectors.
    pub sectors: u32,
    /// For a logged block: the home of its first sector in this run; `None` if its descriptor was not written before it. For the
    /// journal's superblock: the beginning of the log, in sectors from the beginning of the journal; `None` if the log is empty.
    pub home: Option<u64>,
    /// For a block of the journal: its transaction. For a home block: the transaction that logged it last. For the journal's
    /// superblock: the first transaction that is to be replayed. Of fast commits, only the block with the tail has one.
    pub transaction: Option<u32>,
    /// The sectors that differ, counted from the first one of this run: of a logged block, from its last logged copy (as stored
    /// in the journal); of a home block, from its last logged copy; of other blocks of the journal, from zeros. `None` if there
    /// is no copy to compare with.
    pub changed: Option<SectorSet>,
}

impl BlockNote {
    /// A run for which only the role is known.
    pub const fn new(role: BlockRole, sectors: u32) -> Self {
        Self { role, sectors, home: None, transaction: None, changed: None }
    }
}
