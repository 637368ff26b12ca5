//! The roles of written blocks in an ext4 file system, such as journal or inode table.

/// The role of consecutive sectors of a write in an ext4 file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockRole {
    /// File data, or a block that has none of the other roles.
    Data,
    /// The superblock, or a copy of it.
    Superblock,
    /// Descriptors of block groups.
    GroupDescriptors,
    /// A block allocation bitmap.
    BlockBitmap,
    /// An inode allocation bitmap.
    InodeBitmap,
    /// A block of the inode table.
    InodeTable,
    /// A block of a directory.
    Directory,
    /// Other metadata: extent trees, indirect blocks, extended attributes, symbolic links.
    Metadata,
    /// The superblock of the journal.
    JournalSuperblock,
    /// A descriptor block of the journal. It lists the homes (sectors in the file system) of the logged blocks that follow it.
    Descriptor,
    /// A copy of a file-system block in the journal.
    Logged,
    /// A revoke block of the journal.
    Revoke,
    /// The commit block of a transaction.
    Commit,
    /// A block of fast commits.
    FastCommit,
}

impl BlockRole {
    /// All block roles.
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

    /// The name of the role in traces and results.
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

    /// The role with this name; `None` if no role has it.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether the block is in the journal.
    pub const fn in_journal(self) -> bool {
        matches!(self, Self::JournalSuperblock | Self::Descriptor | Self::Logged | Self::Revoke | Self::Commit | Self::FastCommit)
    }

    /// Whether the block is metadata at its home in the file system, as opposed to a copy in the journal.
    pub const fn at_home(self) -> bool {
        !self.in_journal() && !matches!(self, Self::Data)
    }
}

/// The sectors of one block as a bit mask: bit 0 is the first sector. A block has at most 64 KiB, which are 128 sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectorSet(pub u128);

impl SectorSet {
    /// The set of the first `count` sectors of a block.
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

/// The role of consecutive sectors of a write. The notes of a write cover all its sectors in order, without gaps. A note of
/// [`BlockRole::Data`] may have any length; a note of another role covers one block, or a part of it if the write begins or ends
/// inside the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockNote {
    /// Role of the sectors.
    pub role: BlockRole,
    /// Length in sectors.
    pub sectors: u32,
    /// For a logged block: its home, the first sector of the original block in the file system; `None` if no descriptor was written before
    /// it. For the journal's superblock: the beginning of the log, in sectors from the beginning of the journal; `None` if the log is
    /// empty.
    pub home: Option<u64>,
    /// For a block of the journal: the transaction that it belongs to; of a fast commit, only the block with the tail has a transaction.
    /// For a block outside the journal: the transaction that logged it last. For the journal's superblock: the first transaction to replay.
    pub transaction: Option<u32>,
    /// The sectors whose contents changed, counted from the first sector of this note; `None` if there is no copy to compare with. A logged
    /// block is compared with its previous copy in the journal. A block outside the journal is compared with its last logged copy, and any
    /// other block of the journal with zeros.
    pub changed: Option<SectorSet>,
}

impl BlockNote {
    /// Creates a note that gives `sectors` sectors a role. Their home block, transaction and changed sectors are not known.
    pub const fn new(role: BlockRole, sectors: u32) -> Self {
        Self { role, sectors, home: None, transaction: None, changed: None }
    }
}
