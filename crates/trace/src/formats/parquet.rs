//! Parquet, emmclab's own format, to which every other format is converted.
//!
//! The columns are those of [`crate::TraceColumn`]; those of block notes exist if the header states that the trace has notes.
//! Requests are in order of arrival. Three entries of the metadata describe the trace: `emmclab.schema` (version of the columns),
//! `emmclab.header` and `emmclab.ledger` (JSON of [`TraceHeader`] and [`Ledger`]). Row groups have 2^20 requests, and no batch
//! spans two of them. Every byte is covered by a checksum ([`crate::checksum_seal`]). Files of other tools can be read if they
//! have the required columns with their types and are uncompressed or compressed with zstd or snappy.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::{Arc, Once};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::prelude::*;
use crate::{
    BATCH_ROWS, ByteCount, GrowingNameTable, SEALED_WRITER, SealedFile, TraceExtent, checksum_seal::CheckedFile, finish_sealed,
    open_seekable,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "parquet",
    about: "Apache Parquet with the columns of emmclab; the format to store traces in",
    known_by: "`PAR1` in the first 4 bytes",
    from: "`emmclab record` and `emmclab convert TRACE x.parquet`; or any program that writes these columns (pandas, polars, DuckDB, Spark)",
    gives: &TraceColumn::ALL_OPTIONAL,
    unknown: "everything that was not recorded",
    extensions: &["parquet", "pq"],
    times: FormatTimes::Stored,
    sniff: |head, _| head.starts_with(MAGIC),
    open,
    writes: Some((FormatCapabilities::EVERYTHING, create)),
    ..TraceFormat::READ_ONLY
};

const MAGIC: &[u8] = b"PAR1";
/// Version of the columns of a trace file; increased when the meaning of a column changes.
const SCHEMA_VERSION: &str = "1";
const SCHEMA_KEY: &str = "emmclab.schema";
const HEADER_KEY: &str = "emmclab.header";
const LEDGER_KEY: &str = "emmclab.ledger";
const ROW_GROUP_ROWS: usize = 1 << 20;

thread_local! {
    /// Whether a panic on this thread is turned into an error, so that Rust prints no message.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Calls the Parquet decoder. It reports most damage as an error, but panics on some forged lengths; the panic is turned into an error.
fn guarded<T>(call: impl FnOnce() -> std::result::Result<T, ParquetError>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                usual(info);
            }
        }));
    });
    GUARDED.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(call));
    GUARDED.set(false);
    let problem = match outcome {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the Parquet decoder failed".to_owned(),
    };
    let hint = if problem.contains("Disabled feature") {
        "its compression is not supported; write it with zstd or snappy"
    } else {
        "the Parquet file is truncated or damaged; convert the original again"
    };
    Err(Error::new(ErrorClass::Syntax, problem).hint(hint))
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    if !input.is_regular() {
        return Err(Error::new(
            ErrorClass::Unsupported,
            "a Parquet trace cannot be read from a pipe, because reading begins at its end",
        )
        .hint("name the file itself, or write the trace to a file first"));
    }
    Ok(Box::new(ParquetSource::open(input.path(), options)?))
}

/// Maximum size of the names in a column of a row group, in bytes, without the part that is proportional to the number of requests.
const NAMES_ROOM: u64 = 64 << 20;
/// Additional size of the names for each request, in bytes.
const NAME_ROOM: u64 = 1 << 10;

struct ParquetSource {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    file: CheckedFile,
    header: TraceHeader,
    ledger: Ledger,
    extent: Option<TraceExtent>,
    processes: GrowingNameTable,
    devices: GrowingNameTable,
    lenient: bool,
    /// Number of rows that were omitted because they are not valid requests.
    skipped: u64,
    /// Number of rows whose notes on the roles of blocks were dropped.
    notes_left_out: u64,
    last_arrival: i64,
    rows_done: u64,
    rows: u64,
    /// Number of requests of the whole trace if this file is a part of it.
    requests_of_whole_trace: Option<u64>,
    bytes: u64,
}

impl ParquetSource {
    fn open(path: &Path, read: &ReadOptions) -> Result<Self> {
        let ParquetFooter { file, bytes, metadata } = ParquetFooter::of(path)?;
        let groups = read.slice.as_ref().and_then(|slice| slice.groups.clone());
        let entries = metadata.metadata().file_metadata().key_value_metadata();
        let entry = |key: &str| -> Option<String> {
            entries?.iter().find(|entry| entry.key == key).and_then(|entry| entry.value.clone())
        };
        if let Some(version) = entry(SCHEMA_KEY).filter(|version| version != SCHEMA_VERSION) {
            return Err(Error::new(ErrorClass::Unsupported, "the trace was written by another version of emmclab")
                .of_field(SCHEMA_KEY, 0, version.as_bytes())
                .hint("convert the original trace again"));
        }
        let header = entry(HEADER_KEY).map_or_else(|| Ok(foreign_header(path)), |json| described(HEADER_KEY, &json))?;
        let rows = metadata.metadata().file_metadata().num_rows().max(0) as u64;
        let mut ledger: Ledger = entry(LEDGER_KEY)
            .map_or_else(|| Ok(Ledger { seen: rows, kept: rows, ..Ledger::default() }), |json| described(LEDGER_KEY, &json))?;
        // `filtered` counts the requests that are filtered out now; those that were filtered out before the file was written are
        // counted separately.
        ledger.filtered_before += std::mem::take(&mut ledger.filtered);
        // Other tools that split a trace copy the metadata of the whole trace into each part.
        let whole = Some(ledger.kept).filter(|kept| *kept > rows);
        ledger.kept = ledger.kept.min(rows);
        refuse_huge_names(&metadata)?;
        let extent = guarded(|| extent(&metadata))?;
        let has_notes = metadata.schema().field_with_name(TraceColumn::Role.name()).is_ok();
        let header = TraceHeader {
            block_notes: has_notes.then(|| header.block_notes.unwrap_or_else(|| TraceHeader::EXT4.to_owned())),
            ..header
        };
        let schema = readable_schema(metadata.schema());
        let options = ArrowReaderOptions::new().with_schema(schema);
        let reader = guarded(|| {
            let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata).with_batch_size(BATCH_ROWS);
            match &groups {
                Some(groups) => builder.with_row_groups(groups.clone().collect()).build(),
                None => builder.build(),
            }
        })?;
        let before = groups.map_or(0, |groups| rows_of(&metadata).take(groups.start).sum());
        Ok(Self {
            path: path.to_owned(),
            reader,
            file,
            header,
            ledger,
            extent,
            processes: GrowingNameTable::default(),
            devices: GrowingNameTable::default(),
            lenient: read.lenient,
            skipped: 0,
            notes_left_out: 0,
            last_arrival: i64::MIN,
            rows_done: before,
            rows,
            requests_of_whole_trace: whole,
            bytes,
        })
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let next = guarded(|| self.reader.next().transpose().map_err(ParquetError::from));
        let Some(record) = next.map_err(|error| self.file.damage().unwrap_or(error))? else {
            return Ok(None);
        };
        self.decode(&record).map(Some).map_err(|error| error.at_line(self.rows_done + 1))
    }

    fn decode(&mut self, record: &RecordBatch) -> Result<Batch> {
        let batch = Batch::from_record_batch(record, self.rows_done, &mut self.processes, &mut self.devices)?;
        batch.check_order(&mut self.last_arrival)?;
        let rows = batch.len() as u64;
        let batch = match batch.first_fault() {
            None => batch,
            Some(_) if self.lenient => batch.sound(),
            Some((row, error)) => {
                return Err(error.at_line(self.rows_done + row as u64 + 1).hint("use --lenient to skip and count bad rows"));
            }
        };
        self.skipped += rows - batch.len() as u64;
        self.rows_done += rows;
        Ok(batch)
    }
}

struct ParquetFooter {
    file: CheckedFile,
    bytes: u64,
    metadata: ArrowReaderMetadata,
}

impl ParquetFooter {
    fn of(path: &Path) -> Result<Self> {
        let mut file = open_seekable(path).map_err(|error| Error::io(path, error))?;
        let bytes = check_frame(&mut file).map_err(|error| Error::io(path, error))??;
        let file = CheckedFile::new(file, bytes).map_err(|error| Error::io(path, error))??;
        let metadata = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()))?;
        file.check_writer(metadata.metadata().file_metadata().created_by())?;
        Ok(Self { file, bytes, metadata })
    }
}

/// Rejects a file whose names need far more memory than its requests, before they are decoded.
fn refuse_huge_names(metadata: &ArrowReaderMetadata) -> Result<()> {
    let columns = metadata.metadata().row_groups().iter().flat_map(RowGroupMetaData::columns);
    for column in columns {
        let name = column.column_path().string();
        let bytes = column.uncompressed_size().max(0).cast_unsigned();
        let room = NAMES_ROOM + NAME_ROOM * column.num_values().max(0).cast_unsigned();
        if [TraceColumn::Process, TraceColumn::Device].iter().any(|names| names.name() == name) && bytes > room {
            let problem = format!("the column has {} of names for {} requests", ByteCount(bytes), column.num_values());
            return Err(Error::new(ErrorClass::Value, problem)
                .in_field(&name)
                .hint("shorten the names in this column, or leave the column out"));
        }
    }
    Ok(())
}

/// Number of requests in each row group of a Parquet file. Fails if the file cannot be read or is not a Parquet file.
pub fn row_groups(path: &Path) -> Result<Vec<u64>> {
    let footer = ParquetFooter::of(path).map_err(|error| error.in_file(path))?;
    Ok(rows_of(&footer.metadata).collect())
}

/// Checks all bytes of a Parquet file, for callers whose reader does not check them. A file of another tool has no checksums and
/// passes. Fails if the file cannot be read, is not a Parquet file, or is damaged.
pub fn check_parquet(path: &Path) -> Result<()> {
    let file = ParquetFooter::of(path).map_err(|error| error.in_file(path))?.file;
    let checked = file.check_all();
    checked.map_err(|error| file.damage().map_or_else(|| Error::io(path, error), |damage| damage.in_file(path)))
}

fn rows_of(metadata: &ArrowReaderMetadata) -> impl Iterator<Item = u64> {
    metadata.metadata().row_groups().iter().map(|group| group.num_rows().max(0).cast_unsigned())
}

/// Checks the magic numbers at the start and at the end of the file. If the number at the end is missing, the file was truncated. The error
/// states this more clearly than the Parquet decoder would.
fn check_frame(file: &mut File) -> std::io::Result<Result<u64>> {
    let bytes = file.metadata()?.len();
    let mut magic = [0; 4];
    let framed = bytes >= 12 && {
        file.seek(SeekFrom::Start(0))?;
        file.read_exact(&mut magic)?;
        let starts = magic == MAGIC;
        file.seek(SeekFrom::End(-4))?;
        file.read_exact(&mut magic)?;
        starts && magic == MAGIC
    };
    Ok(if framed {
        Ok(bytes)
    } else {
        Err(Error::new(ErrorClass::Truncated, "the end of the Parquet file is missing, or the whole file is compressed")
            .at_offset(bytes)
            .hint("write or copy the Parquet file again: it was truncated, or packed with gzip, which Parquet does not need"))
    })
}

/// The extent of the trace from the statistics in the footer; `None` if some are missing.
fn extent(metadata: &ArrowReaderMetadata) -> std::result::Result<Option<TraceExtent>, ParquetError> {
    let file = metadata.metadata();
    let groups = file.row_groups();
    let column = |name: &str| {
        let schema = file.file_metadata().schema_descr();
        StatisticsConverter::try_new(name, metadata.schema(), schema)
    };
    let (Ok(sector), Ok(sectors)) = (column("sector"), column("sectors")) else { return Ok(None) };
    let (highest, longest) = (sector.row_group_maxes(groups)?, sectors.row_group_maxes(groups)?);
    if highest.null_count() + longest.null_count() > 0 {
        return Ok(None);
    }
    let highest = highest.as_primitive_opt::<UInt64Type>().and_then(|values| values.iter().flatten().max());
    let longest = longest.as_primitive_opt::<UInt32Type>().and_then(|values| values.iter().flatten().max());
    let (Some(highest), Some(longest)) = (highest, longest) else { return Ok(None) };
    let mut without_completion = file.file_metadata().num_rows().max(0) as u64;
    if let Ok(complete) = column("complete_ns") {
        let missing = complete.row_group_null_counts(groups)?;
        if missing.null_count() > 0 {
            return Ok(None);
        }
        without_completion = missing.iter().flatten().sum();
    }
    let end = Sector(highest.saturating_add(u64::from(longest)));
    Ok(Some(TraceExtent { end, without_completion, one_device: is_of_one_device(groups) }))
}

/// Whether the statistics show that all requests have the same device.
fn is_of_one_device(groups: &[RowGroupMetaData]) -> bool {
    let columns = groups.iter().flat_map(RowGroupMetaData::columns);
    let mut bounds = columns.filter(|column| column.column_path().string() == TraceColumn::Device.name()).map(|column| {
        let statistics = column.statistics()?;
        statistics.min_bytes_opt().zip(statistics.max_bytes_opt())
    });
    // Without the device column, all requests have the same device. If a row group has no bounds of device names, the function returns
    // false.
    let Some(first) = bounds.next() else { return true };
    first.is_some_and(|(low, high)| low == high && bounds.all(|other| other == first))
}

fn foreign_header(path: &Path) -> TraceHeader {
    let source = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    TraceHeader { source, format: FORMAT.name.into(), clock: "relative".into(), ..TraceHeader::default() }
}

fn described<T: serde::de::DeserializeOwned>(key: &str, json: &str) -> Result<T> {
    serde_json::from_str(json)
        .map_err(|error| Error::new(ErrorClass::Syntax, error.to_string()).of_field(key, 0, json.as_bytes()))
}

/// The schema of the file, but with names as dictionaries, because other tools store them as plain text.
fn readable_schema(schema: &Schema) -> Arc<Schema> {
    let wanted = Batch::schema(true);
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| match (wanted.field_with_name(field.name()), field.data_type()) {
            (Ok(ours), data_type) => {
                Field::new(field.name(), with_dictionaries(data_type, ours.data_type()), field.is_nullable())
            }
            _ => field.as_ref().clone(),
        })
        .collect();
    Arc::new(Schema::new(fields))
}

fn with_dictionaries(data_type: &DataType, wanted: &DataType) -> DataType {
    match (data_type, wanted) {
        // Arrow's metadata gives this type to a column without values.
        (DataType::Dictionary(_, values), _) if **values == DataType::Null => DataType::Null,
        (DataType::Utf8 | DataType::Dictionary(..), DataType::Dictionary(..)) => wanted.clone(),
        (DataType::List(item), DataType::List(wanted)) => {
            let data_type = with_dictionaries(item.data_type(), wanted.data_type());
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(data_type)))
        }
        _ => data_type.clone(),
    }
}

impl TraceSource for ParquetSource {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let batch = self.next()?;
        self.notes_left_out += batch.as_ref().map_or(0, Batch::rows_with_notes);
        out.extend(batch.iter().flat_map(Batch::iter));
        Ok(batch.is_some())
    }

    fn extent(&self) -> Option<TraceExtent> {
        self.extent
    }

    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        Some(self.next().map_err(|error| error.in_file(&self.path)))
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (self.processes.names(), self.devices.names())
    }

    fn ledger(&self) -> Ledger {
        let mut ledger = self.ledger.clone();
        ledger.kept = ledger.kept.saturating_sub(self.skipped);
        ledger.skipped += self.skipped;
        ledger.notes_left_out += self.notes_left_out;
        ledger
    }

    fn header(&self) -> TraceHeader {
        let Some(whole) = self.requests_of_whole_trace else { return self.header.clone() };
        let part = format!("a part of a trace: {} of {whole} requests", self.rows);
        let note = self.header.note.iter().cloned().chain([part]).collect::<Vec<_>>().join("; ");
        TraceHeader { note: Some(note), ..self.header.clone() }
    }

    fn requests_of_whole_trace(&self) -> Option<u64> {
        self.requests_of_whole_trace
    }

    fn progress(&self) -> ReadProgress {
        let share = u128::from(self.bytes) * u128::from(self.rows_done) / u128::from(self.rows.max(1));
        ReadProgress { done: share as u64, total: Some(self.bytes) }
    }
}

fn create(file: AtomicFile, header: &TraceHeader) -> Result<Box<dyn TraceSink>> {
    let path = file.path().to_owned();
    let noted = header.block_notes.is_some();
    let writer = ArrowWriter::try_new(SealedFile::new(file), Batch::schema(noted), Some(properties()))
        .map_err(|e| parquet_error(&path, e))?;
    Ok(Box::new(ParquetSink { path, noted, writer }))
}

/// The encodings of the columns. Times and addresses increase or differ little, so delta encoding gives smaller files than
/// general compression and decodes faster. Values of other columns repeat, so a dictionary needs one or two bits for each.
fn properties() -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(SEALED_WRITER.to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_compression(Compression::ZSTD(ZstdLevel::default()));
    for name in ["arrival_ns", "start_ns", "issue_ns", "complete_ns", "sector"] {
        let column = ColumnPath::from(name);
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column.clone(), Encoding::DELTA_BINARY_PACKED)
            .set_column_compression(column, Compression::UNCOMPRESSED);
    }
    builder.build()
}

struct ParquetSink {
    path: PathBuf,
    /// Whether the file has the columns of block notes (roles of the blocks of a write).
    noted: bool,
    writer: ArrowWriter<SealedFile>,
}

/// The error for a failed write of a Parquet file; an error of the operating system keeps its errno.
pub fn parquet_error(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(error) => Error::io(path, *error),
            Err(other) => Error::new(ErrorClass::Io, other.to_string()).in_file(path),
        },
        other => Error::new(ErrorClass::Io, other.to_string()).in_file(path),
    }
}

impl TraceSink for ParquetSink {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.rows_with_notes() > 0 && !self.noted {
            let error =
                Error::new(ErrorClass::Config, "requests have block notes, but the header does not declare `block_notes`");
            return Err(error.in_file(&self.path).hint("set `block_notes` in the header before the first batch"));
        }
        self.writer.write(&batch.to_record_batch(self.noted)?).map_err(|error| parquet_error(&self.path, error))
    }

    fn finish(mut self: Box<Self>, ledger: &Ledger, header: &TraceHeader) -> Result<AtomicFile> {
        let json = |key: &str, value: serde_json::Result<String>| {
            value
                .map(|value| KeyValue::new(key.to_owned(), value))
                .map_err(|error| Error::new(ErrorClass::Value, error.to_string()).of_field(key, 0, b""))
        };
        self.writer.append_key_value_metadata(KeyValue::new(SCHEMA_KEY.to_owned(), SCHEMA_VERSION.to_owned()));
        self.writer.append_key_value_metadata(json(HEADER_KEY, serde_json::to_string(header))?);
        self.writer.append_key_value_metadata(json(LEDGER_KEY, serde_json::to_string(ledger))?);
        finish_sealed(self.writer).map_err(|error| parquet_error(&self.path, error))
    }
}
