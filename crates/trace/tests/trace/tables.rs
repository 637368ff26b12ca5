//! Tables of published traces, including those of caches, and described columns.

use crate::support::{SAMPLES, Trace, lenient, read, read_bytes, read_plain, scratch};
use emmclab_trace::{ErrorClass, Nanos, Op, ReadOptions, Request, RequestFlags, Result, Sector};

fn sample(format: &str) -> Trace {
    let sample = SAMPLES.iter().find(|sample| sample.format == format).unwrap();
    read_plain(sample.text, sample.ending).unwrap()
}

fn with_columns(text: &str, columns: &str, time: Option<&str>, size: Option<&str>) -> Result<Trace> {
    let options = ReadOptions {
        columns: Some(columns.into()),
        time_unit: time.map(Into::into),
        size_unit: size.map(Into::into),
        ..ReadOptions::default()
    };
    read_bytes(text.as_bytes(), "dat", &options)
}

#[test]
fn published_tables_mean_what_their_documentation_says() {
    let trace = sample("fiu");
    let request = &trace.requests[1];
    assert_eq!(
        (request.arrival, request.sector, request.sectors, request.op, request.pid),
        (Nanos(39_064_000), Sector(926_858_672), 16, Op::Read, Some(2522))
    );
    assert_eq!((trace.processes[1].as_str(), trace.devices[1].as_str()), ("my daemon", "6,1"));

    let trace = sample("k5cloud");
    let request = &trace.requests[0];
    assert_eq!((request.sector, request.sectors, request.op), (Sector(2048), 8, Op::Write));
    assert_eq!(trace.requests[1].arrival, Nanos(125_000));

    let sample_text = SAMPLES.iter().find(|sample| sample.format == "hfplayer").unwrap().text;
    let text = format!("{sample_text}150.5,RD_OUT,5,1,1170210688,8,0\n");
    let trace = read_plain(text, "csv").unwrap();
    assert_eq!((trace.requests[0].response(), trace.requests[1].response()), (Some(Nanos(39_964)), None));
    assert_eq!((trace.requests[1].arrival, trace.ledger.skipped), (Nanos(145_714), 1));

    // Replies end the arrivals without a latency, in the order of the file.
    let text = "#ELAPSED_USECS.D,CMD.S,LUN_SSID.I,PHASE.I,LBA.I,NBLKS.I,LATENCY_USECS.D\n\
                10,RD_IN,5,0,64,8,0\n20,RD_IN,5,0,64,8,0\n21,WR_IN,5,0,8,8,0\n50,RD_OUT,5,1,64,8,40\n60,WR_OUT,5,1,8,8,0\n";
    let trace = read_plain(text, "csv").unwrap();
    let ends = trace.rows(|request| request.complete.map(|end| end.0 / 1_000));
    assert_eq!((ends, trace.ledger.skipped), (vec![Some(50), None, Some(60)], 2));

    let text = "Timestamp,Response,IOType,LUN,Offset,Size\n1.0,0.1,W,0,512,512\n2.0,,,0,512,512\n3.0,,,0,0,512\n";
    let trace = read_plain(text, "csv").unwrap();
    assert!(trace.header.note.unwrap().starts_with("2 of the records have no operation"));

    let trace = sample("thesios");
    let request = &trace.requests[0];
    assert_eq!((request.sector, request.sectors, request.op), (Sector(672), 88, Op::Read));
    assert_eq!((request.start, request.response()), (Some(request.arrival), Some(Nanos(2_300_000))));
    assert_eq!((trace.requests[1].start, trace.requests[1].sectors, trace.ledger.rounded), (None, 1, 1));
    assert!(trace.header.note.unwrap().contains("no addresses"));

    let trace = sample("tectonic");
    assert_eq!((trace.requests[0].op, trace.requests[0].sectors, trace.requests[1].op), (Op::Write, 8192, Op::Read));
    assert_eq!(trace.requests[1].sector, Sector(((16 << 20) + 1_048_576) / 512));

    let trace = sample("vscsi-csv");
    assert_eq!((trace.requests[0].op, trace.requests[0].sector, trace.requests[1].op), (Op::Write, Sector(42_932_745), Op::Read));
    assert_eq!(trace.ledger.skipped, 1);
}

/// A record of vscsi, version 1.
fn version_1(code: u16, length: u32, block: u64, us: u64) -> Vec<u8> {
    let words = [1, length, 1].map(u32::to_le_bytes).concat();
    let version = 0x100_u16.to_le_bytes();
    [&words[..], &code.to_le_bytes(), &version, &block.to_le_bytes(), &us.to_le_bytes()].concat()
}

/// A record of vscsi, version 2.
fn version_2(code: u16, length: u32, block: u64, us: u64) -> Vec<u8> {
    let words = [1, length, 1].map(u32::to_le_bytes).concat();
    let long_words = [block, us, 300].map(u64::to_le_bytes).concat();
    [&code.to_le_bytes()[..], &0x200_u16.to_le_bytes(), &words, &long_words].concat()
}

#[test]
fn both_versions_of_vscsi_read_the_same_and_damage_is_named_with_its_offset() {
    let rows = [(0x2a, 512, 8, 1_000), (0x88, 4096, 16, 2_000), (0x12, 36, 0, 2_500), (0x35, 0, 0, 3_000)];
    for (record, size) in [(version_1 as fn(u16, u32, u64, u64) -> Vec<u8>, 32), (version_2, 40)] {
        let bytes: Vec<u8> = rows.into_iter().flat_map(|(code, length, block, us)| record(code, length, block, us)).collect();
        let trace = read_plain(&bytes, "vscsi").unwrap();
        let seen = trace.rows(|request| (request.arrival.0, request.op, request.sector.0, request.sectors));
        assert_eq!(seen, [(1_000_000, Op::Write, 8, 1), (2_000_000, Op::Read, 16, 8), (3_000_000, Op::Flush, 0, 0)]);
        assert_eq!((trace.header.format.as_str(), trace.ledger.skipped), ("vscsi", 1));
        for cut in size * 2 + 1..size * 3 {
            let error = read_plain(&bytes[..cut], "vscsi").unwrap_err();
            assert_eq!(error.kind(), ErrorClass::Truncated);
            assert!(error.to_string().contains(&format!("byte {}", size * 2)), "{error}");
            assert_eq!(read_bytes(&bytes[..cut], "vscsi", &lenient()).unwrap().requests.len(), 2);
        }
    }
}

/// A record of oracleGeneral, or with an operation of lcs version 2.
fn object(seconds: u32, id: u64, size: u32, op: Option<u32>) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(seconds.to_le_bytes());
    out.extend(id.to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend(op.map(|op| op | 7 << 8).into_iter().flat_map(u32::to_le_bytes));
    out.extend((-1_i64).to_le_bytes());
    out
}

#[test]
fn traces_of_caches_are_laid_out_by_first_use_and_say_so() {
    let bytes = [object(1, 77, 4096, None), object(1, 5, 512, None), object(2, 77, 4096, None)].concat();
    let (_folder, path) = scratch("w1.oracleGeneral.bin");
    std::fs::write(&path, &bytes).unwrap();
    let trace = read(&path).unwrap();
    assert_eq!(
        trace.rows(|request| (request.sector.0, request.sectors, request.op)),
        [(0, 8, Op::Read), (8, 1, Op::Read), (0, 8, Op::Read)]
    );
    let note = trace.header.note.unwrap();
    assert!(note.contains("no addresses") && note.contains("all are reads"), "{note}");
    // The contents of the file do not identify the format.
    assert_eq!(read_plain(&bytes, "bin").unwrap_err().kind(), ErrorClass::UnknownFormat);

    let mark = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    let mut head = vec![0; 8192];
    head[..8].copy_from_slice(&mark);
    head[8] = 2;
    head[8184..].copy_from_slice(&mark);
    let bytes = [head.clone(), object(1, 77, 4096, Some(12)), object(1, 77, 4096, Some(3)), object(1, 77, 0, Some(9))].concat();
    let trace = read_plain(&bytes, "lcs").unwrap();
    let ops = trace.rows(|request| request.op);
    assert_eq!((ops, trace.processes, trace.ledger.skipped), (vec![Op::Read, Op::Write], vec!["tenant 7".to_owned()], 1));
    head[8] = 9;
    let error = read_plain(&head, "lcs").unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Value, Some("version")));
    assert_eq!(read_plain(&head[..100], "lcs").unwrap_err().kind(), ErrorClass::Truncated);
}

#[test]
fn columns_may_be_separated_by_blanks() {
    let trace =
        with_columns("10  fio\t8 8   R\n20 dd 16 8 W  \n", "arrival,process,sector,sectors,op", Some("us"), None).unwrap();
    assert_eq!((trace.requests.len(), trace.processes), (2, vec!["fio".to_owned(), "dd".to_owned()]));
    assert_eq!(trace.requests[1].arrival, Nanos(20_000));
    let trace = read_plain("arrival_us op sector sectors\n1 read 8 8\n", "dat").unwrap();
    assert_eq!(trace.requests.len(), 1);
    let error = with_columns("10 8 8 R\n20 16 8\n", "arrival_us,sector,sectors,op", None, None).unwrap_err();
    assert_eq!(error.line(), Some(2), "{error}");
}

#[test]
fn the_arrival_is_the_completion_less_the_response_or_the_earliest_time_there_is() {
    let first_of = |text: &str, columns: &str| -> Result<Request> { Ok(with_columns(text, columns, None, None)?.requests[0]) };
    let request = first_of("10.5,2,8,8,R\n", "complete_ms,response_us,sector,sectors,op").unwrap();
    assert_eq!((request.arrival, request.complete), (Nanos(10_498_000), Some(Nanos(10_500_000))));
    let request = first_of("10,2,8,8,R\n", "complete_ms,service_ms,sector,sectors,op").unwrap();
    assert_eq!((request.arrival, request.start), (Nanos(8_000_000), Some(Nanos(8_000_000))));
    let request = first_of("10,8,8,R\n", "issue_ms,sector,sectors,op").unwrap();
    assert_eq!((request.arrival, request.issue), (Nanos(10_000_000), Some(Nanos(10_000_000))));
    let error = first_of("10,8,8,R\n", "complete_ms,sector,sectors,op").unwrap_err();
    assert!(error.to_string().contains("no column arrival"), "{error}");
}

#[test]
fn columns_hold_any_unit_of_time_hexadecimal_numbers_and_codes() {
    let trace = with_columns("0.5,0x10,1f,2a\n", "arrival_h,sector,sectors_hex,op_scsi", None, None).unwrap();
    let request = &trace.requests[0];
    assert_eq!((request.arrival.0, request.sector, request.sectors, request.op), (1_800_000_000_000, Sector(16), 31, Op::Write));
    let error = with_columns("1,8,8,1\n", "arrival_s,sector,sectors,op", None, None).unwrap_err();
    assert!(error.hint_text().unwrap().contains("op_read0"), "{error}");
    let trace = with_columns("1,8,8,1\n", "arrival_s,sector,sectors,op_read0", None, None).unwrap();
    assert_eq!(trace.requests[0].op, Op::Write);
}

#[test]
fn a_foreign_heading_is_refused_with_columns_that_read_the_file() {
    let text = "time_s op lba size seq\n0.000000 read 2048 8 rand\n0.000112 read 2056 8 seq\n";
    let error = read_plain(text, "txt").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::UnknownFormat);
    let hint = error.hint_text().unwrap();
    let columns = hint.split("--columns ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(hint.contains("--size-unit"), "{hint}");
    let trace = with_columns(text, columns, None, Some("sector")).unwrap();
    assert_eq!((trace.requests.len(), trace.requests[1].sector), (2, Sector(2056)));
}

#[test]
fn the_list_of_alibabas_devices_is_no_trace() {
    let error = read_plain("device_id,capacity\n0,536870912000\n", "csv").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::UnknownFormat);
    assert!(error.to_string().contains("capacities") && error.hint_text().unwrap().contains("io_traces.csv"), "{error}");
}

#[test]
fn both_forms_of_iotrace_say_the_same_and_events_of_files_are_skipped() {
    let csv = "device.id,device.name,file.path,header.sid,header.timestamp,io.error,io.flush,io.fua,io.latency,io.lba,io.len,io.operation\n\
               8388608,sda,,48,82383915,true,false,true,145584,193227744,8,Write\n\
               8388608,sda,/var/a,49,82383990,,,,,,,\n\
               8388608,sda,/var/a,50,82384000,false,false,false,0,64,16,Read\n\
               8388608,sda,,65,82575353,false,true,false,85643,0,0,Write\n";
    let json = r#"{"header":{"sid":"48","timestamp":"82383915"},"io":{"lba":"193227744","len":8,"operation":"Write","fua":true,"error":true,"latency":"145584"},"device":{"id":"8388608","name":"sda"}}
{"header":{"sid":"49","timestamp":"82383990"},"device":{"name":"sda"},"file":{"path":"/var/a","eventType":"Create"}}
{"header":{"sid":"50","timestamp":"82384000"},"io":{"lba":"64","len":16},"device":{"id":"8388608","name":"sda"}}
{"header":{"sid":"65","timestamp":"82575353"},"io":{"operation":"Write","flush":true,"latency":"85643"},"device":{"id":"8388608","name":"sda"}}
"#;
    let [of_csv, of_json] = [csv, json].map(|text| read_plain(text, "txt").unwrap());
    assert_eq!(of_csv.requests, of_json.requests);
    assert_eq!((of_csv.ledger.skipped, of_json.ledger.skipped, of_json.ledger.failed), (1, 1, 1));
    let rows = of_json.rows(|request| (request.op, request.sector.0, request.sectors));
    assert_eq!(rows, [(Op::Write, 193_227_744, 8), (Op::Read, 64, 16), (Op::Flush, 0, 0)]);
    let [write, read, flush] = &of_json.requests[..] else { panic!("{rows:?}") };
    assert_eq!(write.flags, RequestFlags::FUA.union(RequestFlags::FAILED));
    assert_eq!((read.complete, flush.complete), (None, Some(Nanos(82_575_353 + 85_643))));
    assert_eq!(of_json.devices, ["sda"]);
}

#[test]
fn stamps_coarser_than_the_responses_are_told_and_keep_the_order_of_the_file() {
    let log =
        "1, 300000, 0, 4096, 0, 0\n1, 310000, 0, 4096, 8192, 0\n1, 305000, 0, 4096, 16384, 0\n2, 300000, 0, 4096, 24576, 0\n";
    let columns = "complete_ms,response_ns,op_read0,size_bytes,offset_bytes,-";
    let trace = with_columns(log, columns, None, None).unwrap();
    assert_eq!(trace.header.coarse_clock.as_deref(), Some("1ms"));
    assert_eq!(trace.ledger.reordered, 0);
    assert_eq!(trace.rows(|request| request.sector.0), [0, 16, 32, 48]);
    assert_eq!(trace.rows(|request| request.response().unwrap().0), [300_000, 310_000, 305_000, 300_000]);
    // Whole seconds, with responses from another clock.
    let seconds = "7,0.2,8,8,R\n7,0.3,16,8,R\n8,0.2,24,8,R\n8,0.3,32,8,R\n";
    let trace = with_columns(seconds, "arrival_s,response_ms,sector,sectors,op", None, None).unwrap();
    assert_eq!(trace.header.coarse_clock.as_deref(), Some("1s"));
    let trace = with_columns("7,200,8,8,R\n7,300,16,8,R\n8,200,24,8,R\n", "arrival_ms,response_ms,sector,sectors,op", None, None);
    assert_eq!(trace.unwrap().header.coarse_clock, None);
}

#[test]
fn rows_of_flushes_without_sectors_are_flushes_and_commands_without_data_are_skipped() {
    let text = "1,FF,0,0\n2,F,0,0\n3,FN,0,0\n4,FWS,0,0\n5,WFS,0,0\n6,NS,0,0\n7,NS,8,8\n";
    let trace = with_columns(text, "arrival_us,op,sector,sectors", None, None).unwrap();
    let flushes = trace.requests.iter().filter(|request| request.op == Op::Flush).count();
    assert_eq!((flushes, trace.requests.len(), trace.ledger.skipped), (5, 6, 1));
    assert_eq!((trace.requests[3].flags, trace.requests[5].op), (RequestFlags::SYNC, Op::Write));
    for row in ["1,W,0,0\n", "1,R,8,0\n"] {
        let error = with_columns(row, "arrival_us,op,sector,sectors", None, None).unwrap_err();
        assert!(error.to_string().contains("transfers no data"), "{error}");
    }
}

#[test]
fn an_error_names_the_column_as_the_user_does() {
    for (row, name) in [("1,8,K,4096", "op"), ("x,8,R,8", "complete_ms"), ("1,-,R,8", "offset_kb"), ("1,8,R,y", "size")] {
        let columns = "complete_ms,offset_kb,op,size,response_us";
        let error = with_columns(&format!("1,8,R,4096,5\n{row},5\n"), columns, None, Some("byte"));
        assert_eq!(error.unwrap_err().field(), Some(name), "{row}");
    }
}
