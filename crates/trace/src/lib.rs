//! Columnar traces, the ledger, and one reader and writer per trace format.
//!
//! A trace is a stream of [`Batch`]es in order of arrival. [`TraceReader`] opens a file of any known format and yields batches
//! in bounded memory; [`TraceWriter`] writes them. Requests that a reader dropped, split, merged or reordered are counted in a
//! [`Ledger`] that is stored with the trace.

mod arrow_batch;
mod arrow_conversions;
mod arrow_source;
mod atomic_file;
mod batch;
mod batch_faults;
mod batch_notes;
mod batch_rows;
mod builder;
mod checksum_seal;
mod clock;
mod columns;
mod compression;
mod cpu_stream_merge;
mod diagnosis;
mod duration;
mod event_tally;
mod events;
mod file_kinds;
pub mod formats;
mod header;
mod ledger;
mod name_table;
mod notes_arrow;
mod opcodes;
mod pairing;
mod read_ahead;
mod reader;
mod recorded_features;
mod request_screen;
mod sink;
mod source;
mod temporary_file;
mod trace_combiner;
mod writer;
mod zone_command;

pub use atomic_file::AtomicFile;
pub use batch::{BATCH_ROWS, Batch};
pub use batch_rows::RequestIter;
pub use builder::BatchBuilder;
pub use checksum_seal::{SEALED_WRITER, SealedFile, finish_sealed};
pub use clock::{ArrivalGaps, ClockJump, ClockJumps, GapLocation, JumpDirection, LargestValues, MOST_JUMPS, MendClock};
pub use columns::TraceColumn;
pub use compression::{OutputCompression, compress_checked};
pub use cpu_stream_merge::CpuStreamMerge;
pub use emmclab_base::{
    BlockNote, BlockRole, ByteCount, Error, ErrorClass, InputFile, NameId, Nanos, Op, Request, RequestFlags, Result,
    SECTOR_BYTES, Sector, SectorSet, closest, interrupt, open_seekable, read_settings,
};
pub use event_tally::EventTally;
pub use events::{
    CommandCounts, CommandEvent, CommandKind, CommandStep, CommandTarget, DecodedEvent, EraseKind, EventField,
    EventFieldValues, EventMatcher, FsEvent, FsStep, FsWriterThreads, HostActivity, JournalCounts, KernelEvent,
    LostEventsGap, RecordedActivity, SyncCounts, SyncWait, UnfinishedWait,
};
pub use formats::{
    DecompressedInput, ReadOptions, RequestSender, TraceSlice, check_parquet, parquet_error, picture_file, row_groups,
};
pub use header::{RecognisedFormat, TraceHeader};
pub use ledger::Ledger;
pub use name_table::{GrowingNameTable, NameTable, dev_t_label, fixed, unfilled};
pub use pairing::{BlockEventKind, BlockLayerEvent, EventCounts, EventPairer};
pub use reader::{REORDER_WINDOW, TraceReader};
pub use recorded_features::RecordedFeatures;
pub use request_screen::{ReissueWindow, RequestFilter};
pub use sink::TraceSink;
pub use source::{ReadProgress, TraceExtent, TraceSource};
pub use temporary_file::{ASIDE_PREFIX, sweep};
pub use trace_combiner::{TraceCombiner, TraceInput};
pub use writer::{TraceWriter, WriteLosses, WriteOptions};
pub use zone_command::ZoneCommand;
