//! A table with one row per request, in order of arrival, which is streamed to Parquet.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use emmclab_device::{CommandFlags, Observer, RequestCompleted};
use emmclab_trace::{
    AtomicFile, BATCH_ROWS, Batch, Error, NameId, NameTable, Op, RequestFlags, Result, SEALED_WRITER, SealedFile, finish_sealed,
    parquet_error,
};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::sequence_map::{ReorderBuffer, SequenceMap};

/// Key of the file's metadata for the description of the run, in JSON.
const RUN_KEY: &str = "emmclab.run";

/// Names of the columns with times in nanoseconds.
const TIMES: [&str; 9] = [
    "arrival_ns", "start_ns", "complete_ns", "wait_queue_ns", "wait_controller_ns", "wait_bus_ns", "wait_array_ns", "wait_gc_ns",
    "wait_wake_up_ns",
];

/// Sender of a request, as recorded in the trace: (process id, process, device, flags).
type Sender = (Option<i32>, Option<NameId>, Option<NameId>, RequestFlags);

/// The flags that describe a request itself. Other flags describe the recording and do not apply to the run.
const ASKED: RequestFlags = RequestFlags::SYNC
    .union(RequestFlags::FUA)
    .union(RequestFlags::PREFLUSH)
    .union(RequestFlags::META)
    .union(RequestFlags::READAHEAD)
    .union(RequestFlags::JOURNAL)
    .union(RequestFlags::APPEND);

/// Writes a row for every request, in order of arrival, to a Parquet file. The file appears only when it is complete, at
/// [`RequestRows::finish`].
pub struct RequestRows {
    path: PathBuf,
    writer: ArrowWriter<SealedFile>,
    schema: SchemaRef,
    times: [Vec<i64>; 9],
    sector: Vec<u64>,
    sectors: Vec<u32>,
    subrequests: Vec<u32>,
    op: Vec<u8>,
    pid: Vec<Option<i32>>,
    process: Vec<Option<NameId>>,
    disk: Vec<Option<NameId>>,
    flags: Vec<u16>,
    /// Senders of the submitted requests, by number of the request.
    senders: SequenceMap<Sender>,
    /// Sorts the rows by arrival as in a trace, because layers may complete requests in another order.
    in_order: ReorderBuffer,
    processes: Arc<NameTable>,
    disks: Arc<NameTable>,
    /// The first write error. An observer cannot return it, so [`RequestRows::check`] does.
    failed: Option<Error>,
}

impl RequestRows {
    /// Creates a file at `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let schema = Self::schema();
        let failed = |error| parquet_error(path, error);
        let compression = Compression::ZSTD(ZstdLevel::try_new(3).map_err(failed)?);
        let properties =
            WriterProperties::builder().set_compression(compression).set_created_by(SEALED_WRITER.to_owned()).build();
        let file = SealedFile::new(AtomicFile::create(path)?);
        let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            writer,
            schema,
            times: Default::default(),
            sector: Vec::new(),
            sectors: Vec::new(),
            subrequests: Vec::new(),
            op: Vec::new(),
            pid: Vec::new(),
            process: Vec::new(),
            disk: Vec::new(),
            flags: Vec::new(),
            senders: SequenceMap::default(),
            in_order: ReorderBuffer::default(),
            processes: Arc::default(),
            disks: Arc::default(),
            failed: None,
        })
    }

    /// Returns the columns: simulated times, the parts of the response time (their sum is `complete_ns - arrival_ns`), and properties of
    /// the request.
    pub fn schema() -> SchemaRef {
        let op = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
        let name = DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::Utf8));
        let times = TIMES.map(|name| Field::new(name, DataType::Int64, false));
        let rest = [
            Field::new("sector", DataType::UInt64, false),
            Field::new("sectors", DataType::UInt32, false),
            Field::new("subrequests", DataType::UInt32, false),
            Field::new("op", op, false),
            Field::new("pid", DataType::Int32, true),
            Field::new("process", name.clone(), true),
            Field::new("device", name, true),
            Field::new("flags", DataType::UInt16, false),
        ];
        Arc::new(Schema::new(times.into_iter().chain(rest).collect::<Vec<_>>()))
    }

    /// Records the senders of the requests of the next batch. Without this call, process and device are unknown, and the flags are those of
    /// the commands.
    pub fn expect(&mut self, batch: &Batch) {
        // Later batches of a trace may contain more names, so the name tables are replaced.
        self.processes = batch.processes().clone();
        self.disks = batch.devices().clone();
        for request in batch {
            let flags = request.flags.intersection(ASKED);
            self.senders.push((request.pid, request.process, request.device, flags));
        }
    }

    fn add(&mut self, event: &RequestCompleted) {
        let moments = [event.arrival, event.start, event.complete];
        for (column, value) in self.times.iter_mut().zip(moments.into_iter().chain(event.waits.parts())) {
            column.push(value.0);
        }
        self.sector.push(event.sector);
        self.sectors.push(event.sectors);
        self.subrequests.push(event.subrequests);
        self.op.push(event.op as u8);
        let unnamed = || (None, None, None, flags_from_modifiers(event.modifiers));
        let (pid, process, disk, flags) = self.senders.take(event.id).unwrap_or_else(unnamed);
        self.flags.push(flags.0);
        self.pid.push(pid);
        self.process.push(process);
        self.disk.push(disk);
        if self.op.len() == BATCH_ROWS
            && let Err(error) = self.flush()
        {
            self.failed.get_or_insert(error);
        }
    }

    fn flush(&mut self) -> Result<()> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(17);
        for column in &mut self.times {
            columns.push(Arc::new(Int64Array::from(std::mem::take(column))));
        }
        columns.push(Arc::new(UInt64Array::from(std::mem::take(&mut self.sector))));
        columns.push(Arc::new(UInt32Array::from(std::mem::take(&mut self.sectors))));
        columns.push(Arc::new(UInt32Array::from(std::mem::take(&mut self.subrequests))));
        let words = Arc::new(StringArray::from_iter_values(Op::ALL.map(Op::name)));
        let op = UInt8Array::from(std::mem::take(&mut self.op));
        let failed = |error: ParquetError| parquet_error(&self.path, error);
        let op = DictionaryArray::<UInt8Type>::try_new(op, words).map_err(|error| failed(error.into()))?;
        columns.push(Arc::new(op));
        columns.push(Arc::new(Int32Array::from(std::mem::take(&mut self.pid))));
        for (ids, names) in [(&mut self.process, &self.processes), (&mut self.disk, &self.disks)] {
            let ids = std::mem::take(ids);
            columns.push(Arc::new(name_column(&ids, names).map_err(failed)?));
        }
        columns.push(Arc::new(UInt16Array::from(std::mem::take(&mut self.flags))));
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(|error| failed(error.into()))?;
        self.writer.write(&batch).map_err(failed)
    }

    /// Returns the first write error, once, so that a run can stop early.
    pub fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes the last rows and `run`, a description in JSON, and moves the file to its path.
    /// Errors: if a write failed at any time. No file is left in this case.
    pub fn finish(mut self, run: Option<&str>) -> Result<()> {
        for event in std::mem::take(&mut self.in_order).into_remaining() {
            self.add(&event);
        }
        self.check()?;
        self.flush()?;
        if let Some(run) = run {
            self.writer.append_key_value_metadata(KeyValue::new(RUN_KEY.to_owned(), run.to_owned()));
        }
        finish_sealed(self.writer).map_err(|error| parquet_error(&self.path, error))?.commit()
    }
}

/// Returns the flags of a request that does not come from a trace, derived from the modifiers of its command.
fn flags_from_modifiers(modifiers: CommandFlags) -> RequestFlags {
    let of = |modifier, flag| if modifiers.intersects(modifier) { flag } else { RequestFlags::empty() };
    of(CommandFlags::DURABLE, RequestFlags::FUA)
        .union(of(CommandFlags::PREFLUSH, RequestFlags::PREFLUSH))
        .union(of(CommandFlags::META, RequestFlags::META))
}

/// A dictionary column of names, which contains only the names in use.
fn name_column(ids: &[Option<NameId>], names: &NameTable) -> std::result::Result<DictionaryArray<UInt32Type>, ParquetError> {
    let mut places: HashMap<NameId, u32> = HashMap::new();
    let mut values = Vec::new();
    let keys: UInt32Array = ids
        .iter()
        .map(|id| {
            let id = (*id)?;
            let name = names.get(id)?;
            Some(*places.entry(id).or_insert_with(|| {
                values.push(name);
                values.len() as u32 - 1
            }))
        })
        .collect();
    Ok(DictionaryArray::try_new(keys, Arc::new(StringArray::from_iter_values(values)))?)
}

impl Observer for RequestRows {
    const UNITS: bool = false;

    fn request_completed(&mut self, event: &RequestCompleted) {
        self.in_order.insert(*event);
        while let Some(event) = self.in_order.pop() {
            self.add(&event);
        }
    }
}
