//! Columnar traces, the ledger, and a reader or writer for each trace format.
//!
//! A trace is a stream of [`Batch`]es in order of arrival. [`TraceReader`] opens a file of any known format and yields batches
//! in bounded memory; [`TraceWriter`] writes them. Requests that a reader dropped, split, merged or reordered are counted in a
//! [`Ledger`] that is stored with the trace.

mod arrow_batch;
mod arrow_source;
mod atomic_file;
mod batch;
mod checksum_seal;
mod clock;
mod columns;
mod cpu_stream_merge;
mod diagnosis;
mod duration;
mod events;
mod file_kinds;
pub mod formats;
mod header;
mod name_table;
mod opcodes;
mod pairing;
mod reader;
mod request_screen;
mod trace_combiner;
mod writer;

pub use atomic_file::{ASIDE_PREFIX, AtomicFile, OutputCompression, compress_checked, sweep};
pub use batch::{BATCH_ROWS, Batch, BatchBuilder, RequestIter};
pub use checksum_seal::{SEALED_WRITER, SealedFile, finish_sealed};
pub use clock::{ArrivalGaps, ClockJump, ClockJumps, GapLocation, JumpDirection, LargestValues, MOST_JUMPS, MendClock};
pub use columns::TraceColumn;
pub use cpu_stream_merge::CpuStreamMerge;
pub use diagnosis::EventTally;
pub use emmclab_base::{
    BlockNote, BlockRole, ByteCount, Error, ErrorClass, InputFile, NameId, Nanos, Op, Request, RequestFlags, Result,
    SECTOR_BYTES, Sector, SectorSet, closest, interrupt, open_seekable, read_settings,
};
pub use events::{
    CommandCounts, CommandEvent, CommandKind, CommandStep, CommandTarget, DecodedEvent, EraseKind, EventField, EventFieldValues,
    EventMatcher, FsEvent, FsStep, FsWriterThreads, HostActivity, JournalCounts, KernelEvent, LostEventsGap, RecordedActivity,
    SyncCounts, SyncWait, UnfinishedWait,
};
pub use formats::{
    DecompressedInput, ReadOptions, RequestSender, TraceSlice, check_parquet, parquet_error, picture_file, row_groups,
};
pub use header::{Ledger, RecognisedFormat, RecordedFeatures, TraceHeader};
pub use name_table::{GrowingNameTable, NameTable, dev_t_label, fixed, unfilled};
pub use pairing::{BlockEventKind, BlockLayerEvent, EventCounts, EventPairer, ZoneCommand};
pub use reader::{REORDER_WINDOW, ReadProgress, TraceExtent, TraceReader, TraceSource};
pub use request_screen::{ReissueWindow, RequestFilter};
pub use trace_combiner::{TraceCombiner, TraceInput};
pub use writer::{TraceSink, TraceWriter, WriteLosses, WriteOptions};
