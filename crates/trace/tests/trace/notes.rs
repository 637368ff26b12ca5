//! Block notes: every operation on a trace keeps them, and files with invalid notes are rejected.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{lenient, scratch, write_batches};
use arrow_array::{
    Array, ArrayRef, Int64Array, ListArray, RecordBatch, RecordBatchIterator, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};
use emmclab_trace::{
    Batch, BatchBuilder, BlockNote, BlockRole, ErrorClass, Ledger, MendClock, Nanos, Op, ReadOptions, Request, RequestFilter,
    Sector, SectorSet, TraceCombiner, TraceHeader, TraceInput, TraceReader,
};
use proptest::prelude::*;

/// A request and its notes.
type Noted = (Request, Vec<BlockNote>);

fn batch_of(rows: &[Noted]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (request, notes) in rows {
        builder.push_noted(request, notes);
    }
    builder.finish(&Arc::default(), &Arc::default())
}

fn rows_of(batch: &Batch) -> Vec<Noted> {
    (0..batch.len()).map(|row| (batch.get(row), batch.notes(row).to_vec())).collect()
}

fn noted_header() -> TraceHeader {
    TraceHeader { block_notes: Some(TraceHeader::EXT4.to_owned()), clock: "relative".to_owned(), ..TraceHeader::default() }
}

fn write(path: &Path, rows: &[Noted], header: &TraceHeader) -> emmclab_trace::Result<emmclab_trace::WriteLosses> {
    let batches: Vec<_> = rows.chunks(5).map(batch_of).collect();
    write_batches(path, &batches, &Ledger::default(), header)
}

fn read(path: &Path, options: &ReadOptions) -> emmclab_trace::Result<(Vec<Noted>, TraceReader)> {
    all_rows(TraceReader::open(path, options)?)
}

fn all_rows(mut reader: TraceReader) -> emmclab_trace::Result<(Vec<Noted>, TraceReader)> {
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        rows.extend(rows_of(&batch));
    }
    Ok((rows, reader))
}

/// A write of a descriptor and a logged block, each of eight sectors.
fn logged(arrival: i64, home: u64) -> Noted {
    let transaction = Some(7);
    let notes = vec![
        BlockNote { transaction, changed: Some(SectorSet::first(1)), ..BlockNote::new(BlockRole::Descriptor, 8) },
        BlockNote { home: Some(home), transaction, changed: Some(SectorSet::first(2)), ..BlockNote::new(BlockRole::Logged, 8) },
    ];
    (Request::new(Nanos(arrival), Op::Write, Sector(4096), 16), notes)
}

fn plain(arrival: i64, op: Op) -> Noted {
    (Request::new(Nanos(arrival), op, Sector(8), u32::from(op != Op::Flush) * 8), Vec::new())
}

prop_compose! {
    fn a_note()(
        role in prop::sample::select(BlockRole::ALL.to_vec()),
        sectors in 1u32..300,
        home in prop::option::of(any::<u64>()),
        transaction in prop::option::of(any::<u32>()),
        changed in prop::option::of(0u32..=128),
    ) -> BlockNote {
        BlockNote { role, sectors, home, transaction, changed: changed.map(|changed| SectorSet::first(changed.min(sectors))) }
    }
}

fn some_rows() -> impl Strategy<Value = Vec<Noted>> {
    let row = (0i64..1 << 30, prop::collection::vec(a_note(), 0..6), any::<bool>());
    prop::collection::vec(row, 1..60).prop_map(|rows| {
        let mut rows: Vec<Noted> = rows
            .into_iter()
            .map(|(arrival, notes, read)| {
                let sectors = notes.iter().map(|note| note.sectors).sum::<u32>().max(1);
                let op = if notes.is_empty() && read { Op::Read } else { Op::Write };
                (Request::new(Nanos(arrival), op, Sector(0), sectors), notes)
            })
            .collect();
        rows.sort_by_key(|(request, _)| request.arrival);
        rows
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(64)))]
    #[test]
    fn parquet_and_arrow_give_back_the_notes_of_each_request(rows in some_rows()) {
        let (_folder, path) = scratch("t.parquet");
        write(&path, &rows, &noted_header()).unwrap();
        let (found, reader) = read(&path, &ReadOptions::default()).unwrap();
        prop_assert_eq!(&found, &rows);
        prop_assert_eq!(reader.header().block_notes, noted_header().block_notes);

        let records: Vec<_> = rows.chunks(7).map(|rows| batch_of(rows).to_record_batch(true).unwrap()).collect();
        let records = RecordBatchIterator::new(records.into_iter().map(Ok), Batch::schema(true));
        let reader = TraceReader::of_arrow(Box::new(records), "table").unwrap();
        prop_assert_eq!(all_rows(reader).unwrap().0, rows);
    }

    #[test]
    fn combining_and_choosing_keep_the_notes_of_each_request(
        first in some_rows(), second in some_rows(), passes in 1u32..3,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let inputs: Vec<_> = [&first, &second].into_iter().zip(["a.parquet", "b.parquet"]).map(|(rows, name)| {
            let path = folder.path().join(name);
            write(&path, rows, &noted_header()).unwrap();
            TraceInput { path, start_offset: Nanos(17), ..TraceInput::default() }
        }).collect();
        let mut combined = TraceCombiner::open(inputs.clone(), passes).unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = combined.next_batch().unwrap() {
            prop_assert!(batch.has_notes());
            rows.extend(rows_of(&batch));
        }
        // The role of a request in the file system does not depend on its arrival.
        let key = |rows: &[Noted]| {
            let mut key: Vec<_> = rows.iter().map(|(request, notes)| format!("{:?} {notes:?}", request.op)).collect();
            key.sort();
            key
        };
        let all: Vec<Noted> = (0..passes).flat_map(|_| first.iter().chain(&second)).cloned().collect();
        prop_assert_eq!(key(&rows), key(&all));

        if first.iter().any(|(request, _)| request.op == Op::Write) {
            let only = RequestFilter::parse(&["op=write".to_owned()]).unwrap();
            let options = ReadOptions { only: Some(only), ..ReadOptions::default() };
            let wanted: Vec<_> = first.iter().filter(|(request, _)| request.op == Op::Write).cloned().collect();
            prop_assert_eq!(read(&inputs[0].path, &options).unwrap().0, wanted);
        }
    }
}

#[test]
fn a_trace_without_notes_has_no_columns_of_them() {
    let (_folder, path) = scratch("t.parquet");
    write(&path, &[plain(0, Op::Write), plain(1, Op::Read)], &TraceHeader::default()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(12).any(|part| part == b"role_sectors"));
    let mut reader = TraceReader::open(&path, &ReadOptions::default()).unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    assert!(!batch.has_notes() && batch.notes(0).is_empty() && batch.notes(5).is_empty());
    assert_eq!(reader.header().block_notes, None);
}

#[test]
fn notes_begin_and_end_anywhere_in_a_trace() {
    let (_folder, path) = scratch("t.parquet");
    let mut rows: Vec<_> = (0..20_000).map(|i| plain(i * 100_000, Op::Read)).collect();
    for row in [0, 8191, 8192, 9000, 19_999] {
        rows[row] = logged(row as i64 * 100_000, row as u64);
    }
    write(&path, &rows, &noted_header()).unwrap();
    assert_eq!(read(&path, &ReadOptions::default()).unwrap().0, rows);
}

#[test]
fn a_file_with_notes_and_flipped_bytes_never_panics() {
    let (folder, path) = scratch("t.parquet");
    let rows: Vec<_> = (0..40).map(|i| logged(i * 100_000, i as u64 * 8)).collect();
    write(&path, &rows, &noted_header()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let bad = folder.path().join("bad.parquet");
    for at in (4..bytes.len() - 4).step_by(3) {
        let mut bytes = bytes.clone();
        bytes[at] ^= if at % 2 == 0 { 0x01 } else { 0xff };
        std::fs::write(&bad, &bytes).unwrap();
        // The notes that are read in spite of the errors fit their requests.
        for (request, notes) in read(&bad, &ReadOptions::default()).map(|(rows, _)| rows).unwrap_or_default() {
            let covered: u32 = notes.iter().map(|note| note.sectors).sum();
            assert!(notes.is_empty() || covered == request.sectors, "byte {at}");
        }
    }
}

#[test]
fn notes_of_which_the_header_does_not_tell_are_refused() {
    let (_folder, path) = scratch("t.parquet");
    let error = write(&path, &[logged(0, 8)], &TraceHeader::default()).unwrap_err();
    assert_eq!((error.kind(), error.file()), (ErrorClass::Config, Some(path.as_path())), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_format_without_a_place_for_notes_counts_what_it_loses() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t.csv", "t.fio", "t.ssdsim"] {
        let path = folder.path().join(name);
        let losses = write(&path, &[logged(0, 8), plain(512_000, Op::Write)], &noted_header()).unwrap();
        let lost = |column: &str| losses.values.iter().find(|(name, _)| *name == column).map(|(_, count)| *count);
        let columns = ["role", "role_sectors", "home_sector", "changed_sectors", "transaction"];
        assert_eq!(columns.map(lost), [Some(1); 5], "{name}");
        let (found, reader) = read(&path, &ReadOptions::default()).unwrap();
        assert!(found.iter().all(|(_, notes)| notes.is_empty()) && reader.header().block_notes.is_none(), "{name}");
    }
}

#[test]
fn mending_the_clock_counts_the_requests_whose_notes_it_leaves_out() {
    let (_folder, path) = scratch("t.parquet");
    write(&path, &[logged(0, 8), plain(5, Op::Read), logged(9, 16)], &noted_header()).unwrap();
    let options = ReadOptions { mend_clock: Some(MendClock::parse("1h").unwrap()), ..ReadOptions::default() };
    let (found, reader) = read(&path, &options).unwrap();
    assert_eq!((found.len(), reader.ledger().notes_left_out), (3, 2));
    assert!(found.iter().all(|(_, notes)| notes.is_empty()));
    assert_eq!(reader.header().block_notes, None);
}

/// The required columns of a trace of writes with these lengths in sectors.
fn needed(sectors: &[u32]) -> Vec<(&'static str, ArrayRef)> {
    let rows = sectors.len();
    vec![
        ("arrival_ns", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
        ("sector", Arc::new(UInt64Array::from(vec![0; rows]))),
        ("sectors", Arc::new(UInt32Array::from(sectors.to_vec()))),
        ("op", Arc::new(StringArray::from(vec!["write"; rows]))),
    ]
}

fn lists_of<T: arrow_array::ArrowPrimitiveType>(rows: &[&[Option<T::Native>]]) -> ArrayRef {
    Arc::new(ListArray::from_iter_primitive::<T, _, _>(rows.iter().map(|row| Some(row.to_vec()))))
}

fn texts(rows: &[&[Option<&str>]]) -> ArrayRef {
    let values: StringArray = rows.iter().flat_map(|row| row.iter().copied()).collect();
    let offsets = arrow_buffer::OffsetBuffer::from_lengths(rows.iter().map(|row| row.len()));
    let item = Arc::new(Field::new_list_field(arrow_schema::DataType::Utf8, true));
    Arc::new(ListArray::new(item, offsets, Arc::new(values), None))
}

fn record(columns: Vec<(&'static str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<_> = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// The record batch, read as a table in memory and as a Parquet file of another tool.
fn both_ways(record: &RecordBatch) -> [emmclab_trace::Result<Vec<Noted>>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let path = parquet_of(folder.path(), record);
    let records = RecordBatchIterator::new([Ok(record.clone())], record.schema());
    let of_table = TraceReader::of_arrow(Box::new(records), "table").and_then(all_rows);
    [of_table, read(&path, &ReadOptions::default())].map(|trace| trace.map(|(rows, _)| rows))
}

/// Writes a Parquet file like another tool.
fn parquet_of(folder: &Path, record: &RecordBatch) -> PathBuf {
    let path = folder.join("t.parquet");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, record.schema(), None).unwrap();
    writer.write(record).unwrap();
    writer.close().unwrap();
    path
}

#[test]
fn notes_of_other_tools_are_read_without_the_columns_that_may_lack() {
    let mut columns = needed(&[8, 24]);
    columns.push(("role", texts(&[&[Some("commit")], &[Some("data"), Some("logged")]])));
    columns.push(("role_sectors", lists_of::<arrow_array::types::UInt32Type>(&[&[Some(8)], &[Some(16), Some(8)]])));
    for rows in both_ways(&record(columns)) {
        let notes: Vec<_> = rows.unwrap().into_iter().map(|(_, notes)| notes).collect();
        let data = [BlockNote::new(BlockRole::Data, 16), BlockNote::new(BlockRole::Logged, 8)];
        assert_eq!(notes, [vec![BlockNote::new(BlockRole::Commit, 8)], data.to_vec()]);
    }
}

#[test]
fn notes_that_are_none_are_refused_with_row_and_column() {
    use arrow_array::types::{UInt16Type, UInt32Type, UInt64Type};
    let lengths = |second: &[Option<u32>]| ("role_sectors", lists_of::<UInt32Type>(&[&[Some(8)], second]));
    let roles = |second: &[Option<&str>]| ("role", texts(&[&[Some("data")], second]));
    let data = || roles(&[Some("data")]);
    let eight = || lengths(&[Some(8)]);
    let cases = [
        ("role_sectors", vec![data(), lengths(&[Some(4), Some(4)])]),
        ("role_sectors", vec![data(), lengths(&[Some(9)])]),
        ("role_sectors", vec![data(), lengths(&[None])]),
        ("role_sectors", vec![roles(&[Some("data"), Some("data")]), lengths(&[Some(8), Some(0)])]),
        ("role", vec![roles(&[Some("date")]), eight()]),
        ("role", vec![roles(&[None]), eight()]),
        ("home_sector", vec![data(), eight(), ("home_sector", lists_of::<UInt64Type>(&[&[None], &[]]))]),
        ("changed_sectors", vec![data(), eight(), ("changed_sectors", lists_of::<UInt16Type>(&[&[Some(8)], &[Some(9)]]))]),
        ("changed_sectors", vec![data(), eight(), ("changed_sectors", lists_of::<UInt16Type>(&[&[Some(8)], &[Some(u16::MAX)]]))]),
        ("transaction", vec![data(), eight(), ("transaction", lists_of::<UInt32Type>(&[&[None], &[None, None]]))]),
    ];
    for (field, columns) in cases {
        let mut all = needed(&[8, 8]);
        all.extend(columns);
        for result in both_ways(&record(all)) {
            let error = result.unwrap_err();
            let result = (error.kind(), error.field(), error.line());
            assert_eq!(result, (ErrorClass::Value, Some(field), Some(2)), "{error}");
        }
    }
    // Faults of a column as a whole.
    for (field, columns) in [
        ("role_sectors", vec![data()]),
        ("role", vec![eight()]),
        ("role", vec![("transaction", eight().1)]),
        ("role", vec![("role", eight().1), eight()]),
    ] {
        let mut all = needed(&[8, 8]);
        all.extend(columns);
        for result in both_ways(&record(all)) {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorClass::Syntax, "{error}");
            assert!(error.to_string().contains(field), "{error}");
        }
    }
}

#[test]
fn notes_at_a_request_that_is_no_write_are_refused() {
    let mut columns = needed(&[8]);
    columns[3] = ("op", Arc::new(StringArray::from(vec!["read"])));
    columns.push(("role", texts(&[&[Some("data")]])));
    columns.push(("role_sectors", lists_of::<arrow_array::types::UInt32Type>(&[&[Some(8)]])));
    for result in both_ways(&record(columns)) {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.field(), error.line()), (ErrorClass::Value, Some("role"), Some(1)), "{error}");
    }
}

#[test]
fn a_row_whose_notes_do_not_cover_it_is_left_out_and_counted_where_reading_is_lenient() {
    let mut columns = needed(&[8, 8]);
    columns.push(("role", texts(&[&[Some("data")], &[Some("data")]])));
    columns.push(("role_sectors", lists_of::<arrow_array::types::UInt32Type>(&[&[Some(8)], &[Some(7)]])));
    let folder = tempfile::tempdir().unwrap();
    let path = parquet_of(folder.path(), &record(columns));
    let (rows, reader) = read(&path, &lenient()).unwrap();
    assert_eq!((rows.len(), reader.ledger().skipped), (1, 1));
    assert_eq!(rows[0].1, [BlockNote::new(BlockRole::Data, 8)]);
}
