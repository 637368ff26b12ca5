//! JBD2: the format of the journal, and its replay.

mod fast_commit;
mod location;
mod records;
mod recovery;
mod replayed;
mod superblock;
mod verified;

pub use fast_commit::{FastCommitRecord, FastCommitRecords, FastCommitTag};
pub(crate) use fast_commit::{HEAD as FAST_COMMIT_HEAD, tag as fast_commit_tag};
pub use location::Location;
pub use records::{
    Commit, LogFormat, MAGIC as JOURNAL_MAGIC, Record, RecordKind, Revoked, Tag, TagFlags, Tags,
};
pub(crate) use records::{Header, Kind as HeaderKind};
pub use recovery::Recovery;
pub(crate) use recovery::is_before;
pub use replayed::{Replay, Replayed};
pub use superblock::{Checksums, JournalFeatures, JournalSuperblock};
