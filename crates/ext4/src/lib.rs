//! ext4 and its journal (JBD2) as they lie on disk: read, replayed in memory, looked up. Nothing is ever written. An [`Annotator`]
//! names the writes of others.
//!
//! ```no_run
//! use emmclab_ext4::{Filesystem, Recovery};
//!
//! let image = std::fs::File::open("disk.img")?;
//! let mut recovery = Recovery::new();
//! let replayed = recovery.replay(&image)?;
//! if let Some(refused) = &replayed.replay().refused {
//!     println!("Linux does not mount it: {refused}");
//! }
//! let files = Filesystem::open(&replayed)?;
//! if let Some(inode) = files.lookup("/folder/file")? {
//!     println!("{:?}", files.contents(&inode, 1 << 20)?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The form on disk
//!
//! The file system is little-endian, the log big-endian, the records of fast commits little-endian. Checksums are CRC32C from
//! `!0` on, without inversion at the end; those of a structure start with a seed of the file system (or the journal's UUID), then
//! its number. A logged block's checksum covers seed, sequence number and block; tags of version 2 have 10 or 14 bytes, the
//! checksum's two bytes counted although they stand where two were free. On a device of its own, the journal's blocks are
//! counted from the beginning of the device. Sources: Linux `Documentation/filesystems/ext4/*.rst`; `fs/jbd2/commit.c`,
//! `recovery.c`, `revoke.c`; `fs/ext4/*.c`; e2fsprogs 1.47 `lib/ext2fs/csum.c` and `e2fsck/journal.c`.
//!
//! # What is as in Linux, and what is not
//!
//! The replay follows Linux 6.12 to 6.18, not e2fsck, where they differ: a journal is replayed only where the superblock asks for
//! it (`e2fsck -y` replays any log that is not empty), wraps before the blocks of fast commits (e2fsck 1.47 after them), and
//! stops at a home block outside of the disk (e2fsck goes on). [`Replay::refused`] says where Linux does not mount what e2fsck
//! repairs. Only what is needed is checked: a bad descriptor of a block group that no path leads to does not refuse the mount here.
//!
//! Fast commits on top of the log are replayed. Refused by name: some that Linux replays (`fast`), compression, encrypted files and directories, features unknown here; and a
//! name that is not found byte by byte in a directory that ignores case. Orphans are not deleted, and extended attributes not read.

mod annotate;
mod blocks;
mod bytes;
mod checksum;
mod fast;
mod files;
mod journal;
mod structure;
mod superblock;

pub use annotate::{Annotator, Status};
pub use blocks::Blocks;
pub use files::{
    Attribute, Entry, FileKind, Filesystem, Inode, InodeFlags, InodeTable, Node, ROOT, Run, Walk,
};
pub use journal::{
    Checksums, Commit, FastCommitRecord, FastCommitRecords, FastCommitTag, JOURNAL_MAGIC, JournalFeatures,
    JournalSuperblock, Location, LogFormat, Record, RecordKind, Recovery, Replay, Replayed, Revoked, Tag,
    TagFlags, Tags,
};
pub use superblock::{Compat, Incompat, RoCompat, Superblock};
