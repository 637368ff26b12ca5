//! The registry: every format has a sample, is recognised by its contents, and reads it correctly.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::support::{SAMPLES, Trace, read_bytes, read_plain};
use emmclab_trace::formats::{FORMATS, by_extension, by_name, writable};
use emmclab_trace::{ErrorClass, Nanos, Op, ReadOptions, Request, RequestFlags, Result, Sector};

/// Formats with binary samples; each has its own test file.
const BINARY: [&str; 6] = ["parquet", "blktrace", "perfetto", "lcs", "oracle-general", "vscsi"];

#[test]
fn every_format_has_a_sample_and_a_line_about_it() {
    let registered: BTreeSet<_> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(registered.len(), FORMATS.len(), "two formats share a name");
    let shown: BTreeSet<_> = SAMPLES.iter().map(|sample| sample.format).chain(BINARY).collect();
    assert_eq!(registered, shown, "add the format's sample to tests/trace/support.rs");
    for format in FORMATS {
        assert!(format.about.len() > 10, "{} needs a line about it", format.name);
        assert!(format.known_by.len() > 10, "{} needs a word on what it is known by", format.name);
        assert!(std::ptr::eq(by_name(format.name, &[]).unwrap(), *format));
    }
}

#[test]
fn every_sample_is_found_by_its_content_and_read() {
    for sample in SAMPLES {
        let trace = read_plain(sample.text, sample.ending).unwrap_or_else(|error| panic!("{}: {error}", sample.format));
        assert_eq!(trace.header.format, sample.format);
        assert_eq!(trace.requests.len(), sample.requests, "{}", sample.format);
        assert_eq!(trace.ledger.kept, sample.requests as u64, "{}", sample.format);
    }
}

#[test]
fn every_ending_names_one_writable_format() {
    let endings: Vec<_> = writable().flat_map(|format| format.extensions).collect();
    assert_eq!(endings.len(), endings.iter().collect::<BTreeSet<_>>().len());
    for ending in endings {
        by_extension(std::path::Path::new(&format!("x.{ending}"))).unwrap();
    }
    assert_eq!(by_extension("x.txt".as_ref()).map(|_| ()).unwrap_err().kind(), ErrorClass::UnknownFormat);
}

fn first(format: &str) -> (Request, Trace) {
    let sample = SAMPLES.iter().find(|sample| sample.format == format).unwrap();
    let trace = read_plain(sample.text, sample.ending).unwrap();
    (trace.requests[0], trace)
}

#[test]
fn fields_mean_what_the_formats_say() {
    let (request, trace) = first("msr");
    // 2007-02-22 17:00:00.3061629 UTC.
    assert_eq!(request.arrival, Nanos(1_172_163_600_306_162_900));
    assert_eq!(request.complete.unwrap() - request.arrival, Nanos(4_128_600));
    assert_eq!((request.sector, request.sectors, request.op), (Sector(13_700_410), 48, Op::Read));
    assert_eq!((trace.devices[0].as_str(), trace.header.clock.as_str()), ("usr_0", "unix"));

    let (request, trace) = first("pixel");
    assert_eq!((request.process, request.pid), (None, Some(12_228)));
    assert_eq!(trace.processes, ["kworker/4:1H", "Jit"]);
    assert_eq!(trace.devices, ["8,0"]);
    assert_eq!(trace.requests[1].arrival, Nanos(159_273_837_487_000));
    assert_eq!(trace.requests[2].pid, None);

    let (request, _) = first("alibaba");
    assert_eq!(request.arrival, Nanos(1_577_808_144_360_767_000));
    assert_eq!((request.sector, request.sectors, request.op), (Sector(17_173_304), 32, Op::Write));

    let (request, trace) = first("tencent");
    assert_eq!((request.sector, request.sectors, request.op), (Sector(12_910_952), 128, Op::Read));
    assert_eq!(trace.requests[1].op, Op::Write);

    let (request, trace) = first("systor17");
    assert_eq!(request.complete, Some(request.arrival + Nanos(113_000)));
    assert_eq!(trace.requests[1].complete, None);

    let (request, _) = first("spc1");
    assert_eq!((request.sector, request.sectors, request.op), (Sector(20_941_264), 16, Op::Write));

    for format in ["ssdsim", "disksim"] {
        let (request, trace) = first(format);
        assert_eq!((request.op, trace.requests[1].op), (Op::Write, Op::Read));
        assert_eq!(trace.requests[1].arrival, Nanos(3_773_000));
    }

    let (request, trace) = first("fio");
    assert_eq!((request.arrival, request.sector, request.sectors), (Nanos(161_000), Sector(120), 8));
    assert_eq!((trace.requests[2].op, trace.requests[2].sectors), (Op::Flush, 0));

    let (request, trace) = first("csv");
    assert_eq!((request.arrival, request.sector, request.sectors), (Nanos(1_500), Sector(8), 1));
    assert_eq!(trace.processes, ["a,b", "c"]);

    let (request, trace) = first("ftrace");
    assert_eq!(trace.processes[request.process.unwrap().0 as usize], "Binder:1_2");
    assert_eq!((request.pid, request.flags), (Some(77), RequestFlags::META));
    assert_eq!((request.start, request.complete), (Some(Nanos(1_807_610_878_000)), Some(Nanos(1_807_610_904_000))));
    assert_eq!((trace.ledger.lost, trace.ledger.paired), (3, 1));

    let (request, trace) = first("blkparse");
    assert_eq!(request.complete, Some(Nanos(1_000_000)));
    assert_eq!((trace.ledger.seen, trace.ledger.skipped, trace.ledger.lost), (4, 1, 4));
}

#[test]
fn fio_version_2_adds_up_its_delays() {
    let text = "fio version 2 iolog\n/f add\n/f open\n/f read 0 4096\n/f wait 250 0\n/f write 4096 512\n/f wait 1000 0\n\
                /f trim 0 4096\n/f datasync 0 0\n/f close\n";
    let trace = read_plain(text, "x").unwrap();
    let seen = trace.rows(|request| (request.arrival.0, request.op));
    assert_eq!(seen, [(0, Op::Read), (250_000, Op::Write), (1_250_000, Op::Discard), (1_250_000, Op::Flush)]);
}

#[test]
fn columns_describe_any_csv() {
    let options = |columns: &str, time: Option<&str>, size: Option<&str>| ReadOptions {
        columns: Some(columns.into()),
        time_unit: time.map(Into::into),
        size_unit: size.map(Into::into),
        ..ReadOptions::default()
    };
    let columns = options("-,arrival,op,offset,size,response_us", Some("ms"), Some("byte"));
    let text = b"id,time,type,off,len,lat\nx,12.5,R,1024,4096,7\ny,13,w,512,100,\n";
    let trace = read_bytes(text, "dat", &columns).unwrap();
    assert_eq!(trace.requests.len(), 2);
    assert_eq!(trace.requests[0].arrival, Nanos(12_500_000));
    assert_eq!(trace.requests[0].complete, Some(Nanos(12_507_000)));
    assert_eq!((trace.requests[1].sector, trace.requests[1].sectors, trace.requests[1].op), (Sector(1), 1, Op::Write));
    let pages = options("arrival_s,op,offset,size", None, Some("page"));
    let trace = read_bytes(b"1,r,3,2\n", "dat", &pages).unwrap();
    assert_eq!((trace.requests[0].sector, trace.requests[0].sectors), (Sector(24), 16));
    for (bad, why) in [
        (options("arrival,op,sector,sectors", None, None), "no unit of time"),
        (options("arrival_s,op,offset,sectors", None, None), "no unit of size"),
        (options("arrival_s,op,sector,sectors", Some("ms"), None), "a unit for nothing"),
        (options("arrival_s,op,sector,sectors", None, Some("kb")), "a unit for nothing"),
        (options("arrival_s,op,sector", None, None), "no size"),
        (options("arrival_s,op,sector,sectors,colour", None, None), "an unknown column"),
        (options("arrival_s,op,sector,sectors,op", None, None), "a column twice"),
        (options("arrival,op,sector,sectors", Some("h"), None), "an unknown unit"),
    ] {
        let error = read_bytes(b"1,r,3,2\n", "dat", &bad).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config, "{why}: {error}");
    }
}

#[test]
fn an_option_that_would_be_ignored_is_refused() {
    for options in [
        ReadOptions { time_unit: Some("ms".into()), ..ReadOptions::default() },
        ReadOptions { size_unit: Some("kb".into()), ..ReadOptions::default() },
        ReadOptions { format: Some("pixel".into()), columns: Some("a".into()), ..ReadOptions::default() },
    ] {
        let pixel = SAMPLES.iter().find(|sample| sample.format == "pixel").unwrap();
        let error = read_bytes(pixel.text.as_bytes(), "csv", &options).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config, "{error}");
    }
}

#[test]
fn a_time_unit_changes_an_open_clock() {
    let options = ReadOptions { time_unit: Some("us".into()), ..ReadOptions::default() };
    let trace = read_bytes(b"5 0 8 8 1\n7 0 8 8 0\n", "ascii", &options).unwrap();
    assert_eq!(trace.requests[1].arrival, Nanos(7_000));
}

#[test]
fn the_wrong_unit_is_named_by_the_reader() {
    let lines: Vec<_> = (0..5_000).map(|i| format!("{} 0 {} 8 1", i * 3, i * 8)).collect();
    let error = read_plain(lines.join("\n"), "ascii").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Unit);
    assert!(error.hint_text().unwrap().contains("--time-unit us"), "{:?}", error.hint_text());
}

/// Reads an I/O log of fio.
fn log(text: &str) -> Result<Trace> {
    read_plain(text, "log")
}

#[test]
fn a_stream_that_does_not_lie_on_sectors_stays_sequential_and_keeps_its_length() {
    let trace =
        log("fio version 2 iolog\n/f add\n/f open\n/f write 2072348000 4000\n/f write 2072352000 4000\n/f close\n").unwrap();
    let [one, other] = trace.requests.as_slice() else { panic!("{:?}", trace.requests) };
    assert_eq!(one.end(), other.sector);
    assert_eq!((one.sectors, other.sectors, trace.ledger.rounded), (8, 8, 2));
    let mut text = "fio version 2 iolog\n".to_owned();
    for at in 0..1_000 {
        let _ = writeln!(text, "/f write {} 4000", 4_000 * at);
    }
    let sectors: u32 = log(&text).unwrap().requests.iter().map(|request| request.sectors).sum();
    assert_eq!(sectors, 4_000_000 / 512);
    let small = log("fio version 2 iolog\n/f read 944111 512\n/f read 100 3\n/f read 4096 512\n").unwrap();
    assert!(small.requests.iter().all(|request| request.sectors == 1));
    assert_eq!(small.ledger.rounded, 2);
}

#[test]
fn a_log_without_its_heading_is_known_by_its_actions() {
    let trace = log("/dev/sdhu read 129521664 2048\n/dev/sdhu write 0 4096\n").unwrap();
    assert_eq!((trace.header.format.as_str(), trace.requests.len()), ("fio", 2));
    let trace = log("10 /dev/sdhu open\n20 /dev/sdhu read 0 2048\n").unwrap();
    assert_eq!(trace.requests[0].arrival.0, 20_000);
}

#[test]
fn actions_that_are_no_requests_are_skipped_or_refused_by_name() {
    let trace = log("fio version 2 iolog\n/f sync_file_range 0 4096\n/f sync\n/f datasync 0 0\n").unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (2, 1));
    assert!(trace.requests.iter().all(|request| request.op == Op::Flush));
    let error = log("fio version 3 iolog\n5 /f wait 100 0\n").unwrap_err();
    assert_eq!((error.field(), error.line()), (Some("action"), Some(2)));
    assert!(error.to_string().contains("version 3"), "{error}");
}

#[test]
fn times_of_version_3_in_another_unit_are_refused_with_the_likely_one() {
    let mut text = "fio version 3 iolog\n".to_owned();
    for at in 0..3_000_u64 {
        let _ = writeln!(text, "{} /f read {} 4096", at / 40, at * 4096);
    }
    let error = log(&text).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Unit, "{error}");
    assert!(error.hint_text().unwrap().contains("--time-unit ms"), "{:?}", error.hint_text());
    let options = ReadOptions { time_unit: Some("ms".into()), ..ReadOptions::default() };
    assert_eq!(read_bytes(text.as_bytes(), "log", &options).unwrap().requests.len(), 3_000);
}
