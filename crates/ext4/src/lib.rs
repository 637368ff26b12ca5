//! ext4 and its journal (JBD2) as they lie on disk: read, replayed in memory, looked up. Nothing is ever written.
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

mod blocks;
mod bytes;
mod checksum;
mod files;
mod journal;
mod structure;
mod superblock;

pub use blocks::Blocks;
pub use files::{Entry, FileKind, Filesystem, Inode, InodeFlags, ROOT, Run, Walk};
pub use journal::{
    Checksums, Commit, FastCommitRecord, FastCommitRecords, FastCommitTag, JournalFeatures,
    JournalSuperblock, Location, LogFormat, Record, RecordKind, Recovery, Replay, Replayed, Revoked, Tag,
    TagFlags, Tags,
};
pub use superblock::{Compat, Incompat, RoCompat, Superblock};
