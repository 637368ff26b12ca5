//! Reads ext4 and its journal (JBD2) from a disk, replays the journal in memory, and looks up files. Nothing is ever written. An
//! [`Annotator`] classifies the writes to a file system.
//!
//! ```no_run
//! use emmclab_ext4::{Ext4Filesystem, JournalRecovery};
//!
//! let image = std::fs::File::open("disk.img")?;
//! let mut recovery = JournalRecovery::new();
//! let replayed = recovery.replay(&image)?;
//! if let Some(refused) = &replayed.replay().refused {
//!     println!("Linux does not mount it: {refused}");
//! }
//! let files = Ext4Filesystem::open(&replayed)?;
//! if let Some(inode) = files.lookup("/folder/file")? {
//!     println!("{:?}", files.contents(&inode, 1 << 20)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The format on disk
//!
//! The file system is little-endian, the log big-endian, the records of fast commits little-endian. Checksums are CRC32C with the initial
//! value `!0`, without inversion at the end. The checksum of a structure starts with a seed of the file system (or the journal's UUID),
//! followed by the number of the structure. The checksum of a logged block covers seed, sequence number and block. Tags of version 2 have
//! 10 or 14 bytes: their size includes the two bytes of the checksum, although it is stored in two bytes that were unused. On a separate
//! device, the journal's blocks are counted from the start of the device. Sources: Linux `Documentation/filesystems/ext4/*.rst`;
//! `fs/jbd2/commit.c`, `recovery.c`, `revoke.c`; `fs/ext4/*.c`; e2fsprogs 1.47 `lib/ext2fs/csum.c` and `e2fsck/journal.c`.
//!
//! # Differences from Linux and e2fsck
//!
//! Where Linux and e2fsck differ, the replay follows Linux 6.12 to 6.18. A journal is replayed only if the superblock requests it (`e2fsck
//! -y` replays any log that is not empty). The log wraps before the blocks of fast commits (in e2fsck 1.47, after them). The replay stops
//! at a home block outside of the disk (e2fsck continues). [`JournalReplaySummary::refused`] contains the reason why Linux refuses to mount
//! a file system that e2fsck repairs. Only structures that are needed are checked: unlike in Linux, a bad descriptor of a block group
//! prevents the mount only if a path leads to the group.
//!
//! Fast commits on top of the log are replayed. Errors with the reason are returned for some fast commits that Linux replays (`fast`),
//! compression, encrypted files and directories, and unsupported features; also for a name that cannot be matched byte by byte in a
//! directory that ignores case. Orphans are not deleted.

mod annotate;
mod disk;
mod fast_commits;
mod files;
mod journal;
mod superblock;

pub use annotate::{Annotator, AnnotatorStatus};
pub use disk::DiskReader;
pub use files::{
    Attribute, DirectoryEntry, Ext4FileKind, Ext4Filesystem, FileBlockRun, Inode, InodeFlags, InodeTable, ROOT, TreeNode,
    WalkSummary,
};
pub use journal::{
    CommitBlock, FastCommitRecord, FastCommitRecords, FastCommitTag, JOURNAL_MAGIC, JournalChecksums, JournalFeatures,
    JournalLocation, JournalRecord, JournalRecordKind, JournalRecovery, JournalReplaySummary, JournalSuperblock, JournalTag,
    JournalTagFlags, JournalTags, LogFormat, ReplayedDisk, RevokedBlocks,
};
pub use superblock::{Compat, Ext4Superblock, Incompat, RoCompat};
