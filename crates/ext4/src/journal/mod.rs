//! JBD2: the format of the journal, and its replay.

mod checksum_cache;
mod fast_commit;
mod location;
mod records;
mod recovery;
mod replayed_disk;
mod superblock;

pub use fast_commit::{FastCommitRecord, FastCommitRecords, FastCommitTag};
pub(crate) use fast_commit::{HEAD as FAST_COMMIT_HEAD, tag as fast_commit_tag};
pub use location::JournalLocation;
pub use records::{
    CommitBlock, JournalRecord, JournalRecordKind, JournalTag, JournalTagFlags, JournalTags, LogFormat,
    MAGIC as JOURNAL_MAGIC, RevokedBlocks,
};
pub(crate) use records::{JournalBlockHeader, JournalBlockKind as HeaderKind};
pub use recovery::JournalRecovery;
pub(crate) use recovery::is_before;
pub use replayed_disk::{JournalReplaySummary, ReplayedDisk};
pub use superblock::{JournalChecksums, JournalFeatures, JournalSuperblock};
