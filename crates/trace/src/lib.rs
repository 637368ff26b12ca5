//! Columnar traces, the ledger, and one reader and writer per trace format.
//!
//! A trace is a stream of [`Batch`]es in order of arrival. [`TraceReader`] opens a file of any known format and yields batches
//! in bounded memory; [`TraceWriter`] writes them. Requests that a reader dropped, split, merged or reordered are counted in a
//! [`Ledger`] that is stored with the trace.

mod ahead;
mod arrow_batch;
mod arrow_conversions;
mod arrow_source;
mod aside;
mod atomic_file;
mod batch;
mod batch_faults;
mod builder;
mod clock;
mod columns;
mod combine;
mod compression;
mod diagnosis;
mod duration;
mod events;
pub mod formats;
mod header;
mod kinds;
mod ledger;
mod merge;
mod names;
mod notes;
mod notes_arrow;
mod opcodes;
mod pairing;
mod reader;
mod recorded;
mod rows;
mod screen;
mod seal;
mod sink;
mod source;
mod tally;
mod writer;
mod zones;

pub use aside::{ASIDE_PREFIX, sweep};
pub use atomic_file::AtomicFile;
pub use batch::{BATCH_ROWS, Batch};
pub use builder::BatchBuilder;
pub use clock::{ClockJump, ClockJumps, Direction, Gaps, Largest, MOST_JUMPS, MendClock, Place};
pub use columns::Column;
pub use combine::{Combiner, TraceInput};
pub use compression::{Compression, compress_checked};
pub use emmclab_base::{
    BlockNote, Bytes, Error, Flags, InputFile, Kind, NameId, Nanos, Op, Request, Result, Role, SECTOR_BYTES,
    Sector, SectorSet, closest, interrupt, open_seekable, read_settings,
};
pub use events::{
    Activity, CommandCounts, CommandEvent, CommandKind, CommandStep, DecodedEvent, Erase, FsEvent, FsStep,
    Gap, HostActivity, JournalCounts, KernelEvent, Matcher, Slot, SyncCounts, SyncWait, Target,
    UnfinishedWait, Values, Writers,
};
pub use formats::{
    Input, ReadOptions, Sender, Slice, check_parquet, parquet_error, picture_file, row_groups,
};
pub use header::{Header, Recognised};
pub use ledger::Ledger;
pub use merge::Merge;
pub use names::{GrowingNames, Names, dev_t_label, fixed, unfilled};
pub use pairing::{Event, EventCounts, EventKind, Pairer};
pub use reader::{REORDER_WINDOW, TraceReader};
pub use recorded::Recorded;
pub use rows::Requests;
pub use screen::{Only, ReissueWindow};
pub use seal::{SEALED_WRITER, SealedFile, finish_sealed};
pub use sink::Sink;
pub use source::{Extent, Progress, Source};
pub use tally::Tally;
pub use writer::{Losses, TraceWriter, WriteOptions};
pub use zones::ZoneCommand;
