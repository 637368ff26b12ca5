//! The Parquet format: nothing is lost, and errors on damage contain its place.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::support::{batch_of, lenient, scratch, write_batches};
use emmclab_trace::{
    Batch, ErrorClass, Ledger, NameTable, Nanos, Op, ReadOptions, RecordedFeatures, Request, RequestFilter, RequestFlags,
    SEALED_WRITER, Sector, TraceHeader, TraceReader, TraceSlice, TraceWriter, WriteOptions, check_parquet, row_groups,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

fn write(path: &Path, batches: &[Batch]) -> (Ledger, TraceHeader) {
    let recorded = Some(RecordedFeatures::SERVED);
    let header = TraceHeader { source: "made.txt".into(), recorded, clock: "unix".into(), ..TraceHeader::default() };
    let kept = batches.iter().map(|batch| batch.len() as u64).sum();
    let ledger = Ledger { seen: kept + 3, kept, skipped: 3, ..Ledger::default() };
    let losses = write_batches(path, batches, &ledger, &header).unwrap();
    assert_eq!(losses, emmclab_trace::WriteLosses::default());
    (ledger, header)
}

fn read(path: &Path) -> emmclab_trace::Result<(Vec<Request>, TraceReader, Option<Batch>)> {
    read_with(path, &ReadOptions::default())
}

fn read_with(path: &Path, options: &ReadOptions) -> emmclab_trace::Result<(Vec<Request>, TraceReader, Option<Batch>)> {
    let mut reader = TraceReader::open(path, options)?;
    let mut requests = Vec::new();
    let mut last = None;
    while let Some(batch) = reader.next_batch()? {
        requests.extend(batch.iter());
        last = Some(batch);
    }
    Ok((requests, reader, last))
}

fn made(rows: usize) -> (Vec<Request>, Vec<Batch>) {
    let mut processes = NameTable::default();
    let mut devices = NameTable::default();
    let names: Vec<_> = ["kworker/4:1H", "übrige", "<...>"].map(|name| processes.intern(name)).into();
    let device = devices.intern("8,0");
    let request = |i: usize| {
        let arrival = Nanos(1_398_406_382_756_832_000 + i as i64 * 7_919);
        Request {
            start: (!i.is_multiple_of(3)).then_some(Nanos(arrival.0 + 13)),
            issue: (!i.is_multiple_of(5)).then_some(Nanos(arrival.0 + 29)),
            served: i.is_multiple_of(11).then_some(Nanos(arrival.0 + 976_001)),
            complete: (!i.is_multiple_of(7)).then_some(Nanos(arrival.0 + 977_003)),
            flags: RequestFlags((i % 256) as u16),
            pid: (!i.is_multiple_of(2)).then_some(i as i32),
            process: (!i.is_multiple_of(4)).then(|| names[(i + 2) % 3]),
            device: Some(device),
            ..Request::new(arrival, Op::ALL[i % 5], Sector(i as u64 * 8 % 9_999_991), 1 + (i % 1024) as u32)
        }
    };
    let requests: Vec<_> = (0..rows).map(request).collect();
    let (processes, devices) = (processes.into(), devices.into());
    let batches = requests.chunks(50_000).map(|chunk| batch_of(chunk, &processes, &devices)).collect();
    (requests, batches)
}

/// The requests without names.
fn nameless(requests: &[Request]) -> Batch {
    let plain = |request: &Request| Request { process: None, device: None, pid: None, ..*request };
    batch_of(&requests.iter().map(plain).collect::<Vec<_>>(), &Arc::default(), &Arc::default())
}

#[test]
fn parquet_gives_back_every_value_over_row_groups() {
    let (_folder, path) = scratch("t.parquet");
    let (requests, batches) = made((1 << 20) + 70_001);
    let (ledger, header) = write(&path, &batches);
    let (found, reader, last) = read(&path).unwrap();
    assert!(found == requests);
    // With processes and completions, re-issues can be detected, but there are none.
    assert_eq!((reader.ledger(), reader.header()), (Ledger { reissued: Some(0), ..ledger }, header));
    let names: Vec<_> = last.unwrap().processes().iter().map(str::to_owned).collect();
    assert_eq!(names, ["kworker/4:1H", "übrige", "<...>"]);
    assert_eq!(reader.progress().done, path.metadata().unwrap().len());
}

#[test]
fn slices_of_row_groups_hold_the_requests_of_the_whole_and_name_lines_of_the_file() {
    let (_folder, path) = scratch("t.parquet");
    let rows = (1 << 20) + 20_000;
    let (mut requests, _) = made(rows);
    let bad = (1 << 20) + 10_000;
    requests[bad].complete = Some(Nanos(requests[bad].arrival.0 - 1));
    write(&path, &[nameless(&requests)]);
    assert_eq!(row_groups(&path).unwrap(), [1 << 20, 20_000]);
    let origin = requests[0].arrival;
    let read = |groups, lenient, only: Option<&str>| {
        let slice = Some(TraceSlice { origin, groups: Some(groups) });
        let only = only.map(|text| RequestFilter::parse(&[text.to_owned()]).unwrap());
        let options = ReadOptions { slice, lenient, only, ..ReadOptions::default() };
        let (requests, reader, _) = read_with(&path, &options)?;
        let arrivals: Vec<_> = requests.iter().map(|request| request.arrival).collect();
        emmclab_trace::Result::Ok((arrivals, reader.ledger().skipped))
    };
    let error = read(1..2, false, None).unwrap_err();
    assert_eq!((error.field(), error.line()), (Some("complete_ns"), Some(bad as u64 + 1)), "{error}");
    let (mut arrivals, skipped) = read(0..1, true, None).unwrap();
    let (later, skipped_later) = read(1..2, true, None).unwrap();
    assert_eq!((arrivals.len(), skipped, skipped_later), (1 << 20, 3, 4));
    arrivals.extend(later);
    requests.remove(bad);
    assert!(arrivals.iter().eq(requests.iter().map(|request| &request.arrival)));
    // Times are relative to the first arrival of the whole trace, and a slice may contain no selected request.
    let to = "op=write,to=1s";
    let wanted = requests.iter().filter(|request| request.op == Op::Write && request.arrival.0 - origin.0 < 1_000_000_000);
    assert_eq!(read(0..1, true, Some(to)).unwrap().0.len(), wanted.count());
    assert!(read(1..2, true, Some(to)).unwrap().0.is_empty());
}

#[test]
fn a_parquet_file_cut_anywhere_is_an_error() {
    let (folder, path) = scratch("t.parquet");
    write(&path, &made(500).1);
    let bytes = std::fs::read(&path).unwrap();
    let cut = folder.path().join("cut.parquet");
    for length in 0..bytes.len() {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let error = read(&cut).map(|_| ()).unwrap_err();
        assert_eq!(error.file(), Some(cut.as_path()), "{length}: {error}");
    }
}

/// Copies a file like another tool, with its metadata, and sets this name of the writer.
fn copy_as(writer: &str, from: &Path, to: &Path) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(from).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata().key_value_metadata().cloned();
    let properties = WriterProperties::builder().set_created_by(writer.to_owned());
    let properties = properties.set_key_value_metadata(metadata).build();
    let file = File::create(to).unwrap();
    let mut out = ArrowWriter::try_new(file, reader.schema().clone(), Some(properties)).unwrap();
    for batch in reader.build().unwrap() {
        out.write(&batch.unwrap()).unwrap();
    }
    out.close().unwrap();
}

#[test]
fn a_changed_bit_anywhere_is_an_error_and_in_a_copy_of_another_tool_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let [path, copy, bad] = ["t", "copy", "bad"].map(|name| folder.path().join(name).with_extension("parquet"));
    write(&path, &made(500).1);
    copy_as("DuckDB version v1.4.0 (build 1)", &path, &copy);
    assert!(read(&copy).unwrap().0 == read(&path).unwrap().0);
    check_parquet(&copy).unwrap();
    check_parquet(&path).unwrap();
    for (file, sealed) in [(path, true), (copy, false)] {
        let bytes = std::fs::read(&file).unwrap();
        // Only some of the bytes; the fuzz target for Parquet changes the others.
        for at in (0..bytes.len()).step_by(29) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&bad, &bytes).unwrap();
            let result = read(&bad).map(|_| ());
            if sealed {
                assert_eq!(result.unwrap_err().file(), Some(bad.as_path()), "byte {at}");
                assert!(check_parquet(&bad).is_err(), "byte {at}");
            }
        }
    }
}

#[test]
fn a_file_that_has_lost_its_checksums_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("t.parquet"), folder.path().join("copy.parquet"));
    write(&path, &made(500).1);
    copy_as(SEALED_WRITER, &path, &copy);
    let error = read(&copy).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("damaged after it was written"), "{error}");
}

#[test]
fn damage_is_named_with_its_place_and_does_not_matter_where_nothing_is_read() {
    let (_folder, path) = scratch("t.parquet");
    let (requests, batches) = made((1 << 20) + 20_000);
    write(&path, &batches);
    let mut bytes = std::fs::read(&path).unwrap();
    let place = 1 << 16;
    bytes[place + 77] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let read = |groups| {
        let slice = Some(TraceSlice { origin: requests[0].arrival, groups: Some(groups) });
        read_with(&path, &ReadOptions { slice, ..ReadOptions::default() }).map(|(requests, ..)| requests.len())
    };
    let error = read(0..1).unwrap_err().to_string();
    assert!(error.contains(&format!("byte {place}: the file was damaged after it was written")), "{error}");
    assert_eq!(read(1..2).unwrap(), 20_000);
}

#[test]
fn parquet_rows_out_of_order_are_an_error() {
    let (_folder, path) = scratch("t.parquet");
    let (_, mut batches) = made(100_000);
    batches.reverse();
    write(&path, &batches);
    assert_eq!(read(&path).map(|_| ()).unwrap_err().kind(), ErrorClass::Order);
}

#[test]
fn a_row_with_a_time_before_an_earlier_one_is_named_or_counted() {
    let (_folder, path) = scratch("t.parquet");
    let (mut requests, _) = made(100_000);
    let row = 70_000;
    requests[row].complete = Some(Nanos(requests[row].arrival.0 - 1));
    let (ledger, _) = write(&path, &[nameless(&requests)]);
    let error = read(&path).map(|_| ()).unwrap_err();
    assert_eq!((error.field(), error.line()), (Some("complete_ns"), Some(row as u64 + 1)), "{error}");
    let (found, reader, _) = read_with(&path, &lenient()).unwrap();
    assert_eq!(found.len(), requests.len() - 1);
    let expected = Ledger { kept: ledger.kept - 1, skipped: ledger.skipped + 1, reissued: Some(0), ..ledger };
    assert_eq!(reader.ledger(), expected);
}

#[test]
fn an_output_that_is_not_finished_is_not_there() {
    let (folder, path) = scratch("t.parquet");
    let (_, batches) = made(100);
    let mut writer = TraceWriter::create(&path, &TraceHeader::default(), &WriteOptions::default()).unwrap();
    writer.write(&batches[0]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(64)))]
    #[test]
    fn parquet_round_trip(rows in prop::collection::vec(
        // Within the limits that the check of units permits.
        (0i64..1 << 40, prop::option::of(0i64..1 << 35), 0u64..1 << 44, 1u32..1 << 21, 0usize..5, any::<u16>(),
         prop::option::of(0i32..), prop::option::of("[a-z]{0,3}")), 1..200)) {
        let mut names = NameTable::default();
        let mut requests: Vec<_> = rows.iter().map(|(arrival, complete, sector, sectors, op, flags, pid, name)| Request {
            complete: complete.map(|took| Nanos(arrival + took)), flags: RequestFlags(*flags), pid: *pid,
            process: name.as_ref().map(|name| names.intern(name)),
            ..Request::new(Nanos(*arrival), Op::ALL[*op], Sector(*sector), *sectors)
        }).collect();
        requests.sort_by_key(|request| request.arrival);
        let batch = batch_of(&requests, &names.into(), &Arc::default());
        let (_folder, path) = scratch("t.parquet");
        write(&path, std::slice::from_ref(&batch));
        let (found, _, last) = read(&path).unwrap();
        let name = |batch: &Batch, request: &Request| {
            request.process.map(|id| batch.processes().get(id).unwrap().to_owned())
        };
        let last = last.unwrap();
        for (found, request) in found.iter().zip(&requests) {
            prop_assert_eq!(name(&last, found), name(&batch, request));
            prop_assert_eq!(Request { process: None, ..*found }, Request { process: None, ..*request });
        }
        prop_assert_eq!(found.len(), requests.len());
    }
}

/// A trace of one request with this name and these times.
fn named_once(name: &str, arrival: i64, complete: i64) -> Batch {
    let mut processes = NameTable::default();
    let process = Some(processes.intern(name));
    let complete = Some(Nanos(complete));
    let request = Request { process, complete, ..Request::new(Nanos(arrival), Op::Write, Sector(8), 8) };
    batch_of(&[request], &processes.into(), &Arc::default())
}

#[test]
fn batches_share_the_names_of_their_trace_and_store_their_own_only() {
    const ROWS: usize = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..ROWS).map(|i| format!("{},write,{},8,process-{i}\n", i * 1_000, i * 8)).collect();
    let csv = folder.path().join("many.csv");
    std::fs::write(&csv, format!("arrival_ns,op,sector,sectors,process\n{text}")).unwrap();
    let parquet = folder.path().join("many.parquet");
    for path in [&csv, &parquet] {
        let mut reader = TraceReader::open(path, &ReadOptions::default()).unwrap();
        let mut writer =
            (path == &csv).then(|| TraceWriter::create(&parquet, &reader.header(), &WriteOptions::default()).unwrap());
        let (mut before, mut rows) = (Arc::<NameTable>::default(), 0);
        while let Some(batch) = reader.next_batch().unwrap() {
            for (row, request) in batch.iter().enumerate() {
                let name = request.process.and_then(|id| batch.processes().get(id));
                assert_eq!(name, Some(format!("process-{}", rows + row).as_str()));
            }
            rows += batch.len();
            assert!(batch.processes().continues(&before), "{}", path.display());
            before = batch.processes().clone();
            let record = batch.to_record_batch(false).unwrap();
            let column = record.column_by_name("process").unwrap();
            let dictionary = arrow_array::cast::AsArray::as_any_dictionary(column);
            assert!(dictionary.values().len() <= 8_192, "{} of {rows}", dictionary.values().len());
            if let Some(writer) = &mut writer {
                writer.write(&batch).unwrap();
            }
        }
        assert_eq!(rows, ROWS);
        if let Some(writer) = writer {
            writer.finish(&reader.ledger(), &reader.header()).unwrap();
        }
    }
}

#[test]
fn times_whose_differences_have_no_room_are_refused_by_row_field_and_value() {
    let (_folder, path) = scratch("far.parquet");
    for (arrival, complete, field) in [
        (i64::MIN, 0, "arrival_ns"),
        (i64::MIN + 1, 0, "arrival_ns"),
        (-(1 << 62) - 1, 0, "arrival_ns"),
        (0, i64::MAX, "complete_ns"),
        ((1 << 62) + 1, (1 << 62) + 2, "arrival_ns"),
    ] {
        write(&path, &[named_once("app", arrival, complete)]);
        let error = read(&path).map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.field(), error.line()), (ErrorClass::Value, Some(field), Some(1)), "{error}");
        assert!(error.to_string().contains("146 years"), "{error}");
    }
    for (arrival, complete) in [(-(1 << 62), 0), (1 << 62, 1 << 62)] {
        write(&path, &[named_once("app", arrival, complete)]);
        assert_eq!(read(&path).unwrap().0.len(), 1);
    }
}

#[test]
fn a_name_that_is_longer_than_any_is_refused_and_a_huge_one_before_it_is_unpacked() {
    let (_folder, path) = scratch("long.parquet");
    for (bytes, said) in
        [(65_536, None), (65_537, Some("the name has 65537 bytes, more than 65536")), (80 << 20, Some("of names for 1 requests"))]
    {
        write(&path, &[named_once(&"x".repeat(bytes), 0, 5)]);
        match (read(&path), said) {
            (Ok(found), None) => assert_eq!(found.0.len(), 1),
            (Err(error), Some(said)) => {
                let text = error.to_string();
                assert!(text.contains(said) && text.len() < 400, "{text}");
                assert_eq!((error.kind(), error.field()), (ErrorClass::Value, Some("process")));
            }
            (found, said) => panic!("{bytes}: {said:?}, {:?}", found.map(|found| found.0.len())),
        }
    }
}
