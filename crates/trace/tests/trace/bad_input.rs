//! Bad input causes a clear error or a correct result, never a panic; tested on all readers. Of a trace without a request, the message
//! lists what it contains, and following the hint gives requests.

use emmclab_trace::formats::FORMATS;
use emmclab_trace::{DecompressedInput, Error, ErrorClass, ReadOptions};

use crate::support::{SAMPLES, Sample, fixture, lenient, read, read_bytes, read_plain};

/// Options that set the format, because a damaged file may not be recognised.
fn forced(format: &str, lenient: bool) -> ReadOptions {
    ReadOptions { format: Some(format.into()), lenient, ..ReadOptions::default() }
}

/// Checks that an error contains the file, and for an invalid record the line.
fn assert_clear(error: &Error, what: &str) {
    assert!(error.file().is_some(), "{what}: no file: {error}");
    let of_record = matches!(error.kind(), ErrorClass::Syntax | ErrorClass::Value);
    assert!(!of_record || error.line().is_some() || error.to_string().contains("byte"), "{what}: no line: {error}");
}

#[test]
fn a_byte_order_mark_before_the_text_changes_nothing() {
    for sample in SAMPLES {
        let marked = [b"\xef\xbb\xbf", sample.text.as_bytes()].concat();
        let [plain, marked] = [sample.text.as_bytes(), &marked].map(|bytes| read_plain(bytes, sample.ending).unwrap().requests);
        assert_eq!(plain, marked, "{}", sample.format);
    }
}

#[test]
fn a_time_before_an_earlier_one_is_named_or_counted() {
    let heading = "arrival_us,start_us,issue_us,complete_us,response_us,service_us,op,sector,sectors\n1,2,3,4,,,read,8,8\n";
    for (line, field, value) in [
        ("10,9,,,,,read,8,8", "start_us", "9"),
        ("10,12,11,,,,read,8,8", "issue_us", "11"),
        ("10,,,9,,,read,8,8", "complete_us", "9"),
        ("10,12,,11,,,read,8,8", "complete_us", "11"),
        ("10,12,,,1,,read,8,8", "complete_us", ""),
        ("10,,,,-1,,read,8,8", "response_us", "-1"),
        ("10,12,,,,-1,read,8,8", "service_us", "-1"),
    ] {
        let text = format!("{heading}{line}\n");
        let error = read_plain(&text, "csv").unwrap_err();
        assert_eq!((error.kind(), error.field(), error.line()), (ErrorClass::Value, Some(field), Some(3)), "{line}");
        let named = if value.is_empty() { "): the ".to_owned() } else { format!("): `{value}`: the ") };
        assert!(error.to_string().contains(&named), "{line}: {error}");
        let trace = read_bytes(text.as_bytes(), "csv", &lenient()).unwrap();
        assert_eq!((trace.requests.len(), trace.ledger.skipped), (1, 1), "{line}");
    }
    let equal = format!("{heading}10,10,10,10,,,read,8,8\n");
    assert_eq!(read_plain(equal, "csv").unwrap().requests.len(), 2);
}

#[test]
fn a_file_cut_at_any_byte_is_read_or_named() {
    for sample in SAMPLES {
        for length in 0..sample.text.len() {
            let bytes = &sample.text.as_bytes()[..length];
            for lenient in [false, true] {
                match read_bytes(bytes, sample.ending, &forced(sample.format, lenient)) {
                    Ok(trace) => {
                        assert!(trace.requests.len() <= sample.requests, "{} {length}", sample.format);
                    }
                    Err(error) => assert_clear(&error, &format!("{} cut at {length}", sample.format)),
                }
            }
            let _ = read_plain(bytes, sample.ending);
        }
    }
}

#[test]
fn any_byte_changed_never_panics() {
    for sample in SAMPLES {
        for at in 0..sample.text.len() {
            for (i, byte) in [0, b'\n', b'-', b'9', b','].into_iter().enumerate() {
                let mut bytes = sample.text.as_bytes().to_vec();
                bytes[at] = byte;
                let lenient = (at + i) % 2 == 0;
                if let Err(error) = read_bytes(&bytes, sample.ending, &forced(sample.format, lenient)) {
                    assert_clear(&error, sample.format);
                }
            }
        }
    }
}

#[test]
fn garbage_is_an_error_in_every_format() {
    let mut state = 7u64;
    let garbage: Vec<u8> = (0..200_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    for format in FORMATS {
        let error = read_bytes(&garbage, "bin", &forced(format.name, false)).unwrap_err();
        assert!(error.file().is_some(), "{}: {error}", format.name);
        let result = read_bytes(&garbage, "bin", &forced(format.name, true));
        assert!(result.is_err(), "{} reads garbage as {:?}", format.name, result.map(|trace| trace.ledger));
    }
    assert_eq!(read_plain(&garbage, "bin").unwrap_err().kind(), ErrorClass::UnknownFormat);
    let nothing = vec![0; 1 << 20];
    assert!(read_plain(&nothing, "bin").is_err());
}

#[test]
fn an_empty_file_and_a_directory_say_so() {
    for format in FORMATS {
        let error = read_bytes(b"", "bin", &forced(format.name, false)).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Empty, "{}", format.name);
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(read(folder.path()).unwrap_err().kind(), ErrorClass::Io);
    assert_eq!(read(&folder.path().join("none")).unwrap_err().kind(), ErrorClass::Io);
    assert_eq!(read_bytes(b"\n\n\n", "csv", &forced("msr", false)).unwrap_err().kind(), ErrorClass::Empty);
}

#[test]
fn line_ends_and_a_missing_last_one_change_nothing() {
    for sample in SAMPLES {
        let read = |text: String| read_plain(text, sample.ending).unwrap();
        let plain = read(sample.text.to_owned());
        for other in [sample.text.replace('\n', "\r\n"), sample.text.trim_end().to_owned()] {
            let other = read(other);
            assert_eq!(other.requests, plain.requests, "{}", sample.format);
            assert_eq!(other.ledger, plain.ledger, "{}", sample.format);
            assert_eq!((other.processes, other.devices), (plain.processes.clone(), plain.devices.clone()));
        }
    }
}

#[test]
fn compressed_input_reads_the_same_and_a_cut_one_says_so() {
    use std::io::Write;
    for sample in SAMPLES {
        let plain = read_plain(sample.text, sample.ending).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(sample.text.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(sample.text.as_bytes()).unwrap();
        let zstd = zstd::encode_all(sample.text.as_bytes(), 1).unwrap();
        for packed in [gzip, xz.finish().unwrap(), zstd] {
            let trace = read_plain(&packed, sample.ending).unwrap();
            assert_eq!(trace.requests, plain.requests, "{}", sample.format);
            for length in 1..packed.len() {
                let cut = read_bytes(&packed[..length], sample.ending, &forced(sample.format, false));
                assert!(cut.is_err(), "{} cut at {length} of {}", sample.format, packed.len());
            }
        }
    }
}

/// A small compressed file that unpacks to 320 MB of zeros.
fn bomb(pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let packed = pack(&vec![0; 64 << 20]);
    packed.repeat(5)
}

#[test]
fn a_small_file_that_unpacks_to_far_more_is_refused_with_the_way_out() {
    use std::io::Write;
    let bzip2 = |bytes: &[u8]| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let xz = |bytes: &[u8]| {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (tool, packed) in [("bzip2", bomb(bzip2)), ("xz", bomb(xz)), ("zstd", bomb(zstd))] {
        assert!(packed.len() < 100_000, "{tool}: {}", packed.len());
        let path = folder.path().join("packed");
        std::fs::write(&path, &packed).unwrap();
        let error = DecompressedInput::open(&path).unwrap().into_file().unwrap_err();
        assert!(error.to_string().contains("more than 1000 times its size"), "{tool}: {error}");
        assert!(error.hint_text().unwrap().contains(&format!("`{tool} -dc")), "{tool}");
    }
}

#[test]
fn xz_that_needs_much_memory_is_refused_before_it_takes_it() {
    use std::io::Write;
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(SAMPLES[0].text.as_bytes()).unwrap();
    let mut packed = xz.finish().unwrap();
    // The block header begins at byte 12 and ends with a checksum; its byte 4 is the size of the dictionary: 40 means 4 GB.
    packed[16] = 40;
    let mut sum = flate2::Crc::new();
    sum.update(&packed[12..20]);
    packed.splice(20..24, sum.sum().to_le_bytes());
    let error = read_bytes(&packed, SAMPLES[0].ending, &ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("256.0 MB of memory"), "{error}");
    assert!(error.hint_text().unwrap().contains("`xz -dc"));
}

fn line(sample: &Sample, time: &str, address: &str, size: &str) -> String {
    let line = sample.line.replace("{time}", time).replace("{address}", address).replace("{size}", size);
    format!("{}{line}", sample.heading)
}

#[test]
fn impossible_values_are_named_with_field_and_line() {
    let good_size = |sample: &Sample| {
        let in_bytes =
            ["msr", "alibaba", "systor17", "spc1", "fio", "csv", "k5cloud", "thesios", "tectonic"].contains(&sample.format);
        if in_bytes { "4096" } else { "8" }
    };
    for sample in SAMPLES.iter().filter(|sample| !sample.line.is_empty()) {
        let time = if sample.format == "msr" { "128166372003061629" } else { "10" };
        let size = good_size(sample);
        let good = line(sample, time, "8192", size);
        let good_result = read_bytes(good.as_bytes(), sample.ending, &forced(sample.format, false));
        assert!(good_result.is_ok(), "{}: {:?}", sample.format, good_result.map(|_| ()));
        let two_64 = "18446744073709551616";
        let two_40 = "1099511627776";
        let cases = [
            ("size 0", line(sample, time, "8192", "0"), true),
            ("size 2^40", line(sample, time, "8192", two_40), true),
            ("address 2^64", line(sample, time, two_64, size), true),
            ("address 2^64 - 1", line(sample, time, "18446744073709551615", size), true),
            // CSV may contain times before the zero of its clock.
            ("negative time", line(sample, "-1", "8192", size), sample.format != "csv"),
            ("time beyond", line(sample, "99999999999999999999", "8192", size), true),
            ("no number", line(sample, time, "x1", size), true),
            ("negative size", line(sample, time, "8192", "-8"), true),
            ("empty size", line(sample, time, "8192", ""), true),
        ];
        for (what, text, bad) in cases {
            let what = format!("{}: {what}", sample.format);
            let result = read_bytes(text.as_bytes(), sample.ending, &forced(sample.format, false));
            if !bad {
                assert!(result.is_ok(), "{what}");
                continue;
            }
            let error = result.map(|trace| trace.requests).expect_err(&what);
            assert!(matches!(error.kind(), ErrorClass::Value | ErrorClass::Unit | ErrorClass::Syntax), "{what}: {error}");
            assert_clear(&error, &what);
            assert!(error.hint_text().is_some(), "{what}: no hint");
        }
    }
}

#[test]
fn lenient_reading_skips_and_counts_and_nothing_else_does() {
    for sample in SAMPLES.iter().filter(|sample| !sample.line.is_empty()) {
        let bad = "no such record\n";
        let text = format!("{}{bad}", sample.text);
        let error = read_plain(&text, sample.ending).unwrap_err();
        assert_eq!(error.line(), Some(text.lines().count() as u64), "{}: {error}", sample.format);
        let trace = read_bytes(text.as_bytes(), sample.ending, &lenient()).unwrap();
        assert_eq!((trace.requests.len(), trace.ledger.skipped), (sample.requests, 1), "{}", sample.format);
    }
}

#[test]
fn names_that_are_not_utf8_are_kept_as_latin_1() {
    let pixel = b"proces,device,rw_flag,sector,size,timestamp\nK\xfcche-7,8388608,R,8,8,1.5\n";
    let trace = read_plain(pixel, "csv").unwrap();
    assert_eq!(trace.processes, ["Küche"]);
    let ftrace = b"# tracer: nop\n  K\xfcche-7 [000] ..... 1.000001: block_bio_queue: 7,0 R 8 + 8 [K\xfcche]\n";
    assert_eq!(read_plain(ftrace, "txt").unwrap().processes, ["Küche"]);
}

#[test]
fn a_line_without_end_does_not_fill_the_memory() {
    let long = vec![b'1'; 10 << 20];
    for sample in SAMPLES {
        assert!(read_bytes(&long, "txt", &forced(sample.format, false)).is_err(), "{}", sample.format);
    }
}

#[test]
fn the_fuzz_corpus_never_panics() {
    let folder = fixture("../../../../fuzz/corpus");
    let mut files = 0;
    for target in std::fs::read_dir(folder).unwrap().flatten() {
        for file in std::fs::read_dir(target.path()).unwrap().flatten() {
            files += 1;
            let bytes = std::fs::read(file.path()).unwrap();
            for format in FORMATS {
                for lenient in [false, true] {
                    let _ = read_bytes(&bytes, "bin", &forced(format.name, lenient));
                }
            }
        }
    }
    assert!(files >= FORMATS.len(), "the corpus is missing");
}

const ISSUE: &str = "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n";
const COMPLETE: &str = "dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\n";
const SWITCH: &str = "dd-2 [000] ..... 1.000050: sched_switch: prev_comm=dd prev_pid=2 ==> next_comm=x next_pid=3\n";

fn refused(text: &str) -> (String, String) {
    let error: Error = read_plain(text, "txt").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
    (error.to_string(), error.hint_text().unwrap().to_owned())
}

fn requests(text: &str) -> usize {
    read_plain(text, "txt").unwrap().requests.len()
}

#[test]
fn a_trace_without_block_events_names_those_that_it_holds() {
    let (problem, hint) = refused(&format!("{SWITCH}{SWITCH}"));
    assert!(problem.ends_with("but 2 sched_switch, no block_rq_issue, no block_rq_complete"), "{problem}");
    assert!(hint.contains("trace-cmd record -e block"), "{hint}");
    assert!(!hint.contains("--"), "it names an option: {hint}");
    // The recording that the hint suggests.
    assert_eq!(requests(&format!("{ISSUE}{SWITCH}{COMPLETE}")), 1);
}

#[test]
fn packets_of_programs_are_named_and_no_pairing_is_blamed() {
    let blkparse = "8,0 3 1 0.000000 9 D R 36 (12 00 00 24 00) [udevd]\n8,0 3 2 0.000100 0 C R (12 00 00 24 00) [0]\n\
                    8,0 3 3 0.000200 9 D R 36 (12 00 00 24 00) [udevd]\n8,0 3 4 0.000300 0 C R (12 00 00 24 00) [0]\n";
    let ftrace = "x-2 [000] ..... 1.000000: block_rq_issue: 8,0 N 512 (a1 08 0e 00) 0 + 1 [smartctl]\n\
                  x-2 [000] ..... 1.000100: block_rq_complete: 8,0 N (a1 08 0e 00) 0 + 1 [0]\n";
    let plain = ftrace.replace("a1 08 0e 00", "").replace("0 + 1", "18446744073709551615 + 0");
    for (text, packets) in [
        (blkparse, "2 packets of programs (2 x SCSI 0x12)"),
        (ftrace, "1 packet of programs (1 x SCSI 0xa1)"),
        (&plain, "1 packet of programs (1 x without data)"),
    ] {
        let (problem, hint) = refused(text);
        assert!(problem.ends_with(&format!("no read or write, but {packets}")), "{problem}");
        assert!(hint.contains("while files are read or written"), "{hint}");
        // The recording that the hint suggests.
        assert_eq!(requests(&format!("{ISSUE}{COMPLETE}{ftrace}")), 1);
    }
}

#[test]
fn another_tracer_is_named() {
    let (problem, hint) = refused("# tracer: function\n#\n dd-2 [000] ..... 1.000050: schedule <-do_syscall\n");
    assert!(problem.contains("no block_rq_issue"), "{problem}");
    assert!(hint.contains("`function`"), "{hint}");
}

#[test]
fn completions_that_belong_to_no_issue_are_not_paired_and_named() {
    let other = ISSUE.replace("8 + 8", "800 + 8");
    let (problem, hint) = refused(&format!("{other}CPU:0 [LOST 9 EVENTS]\n{COMPLETE}"));
    assert!(problem.contains("1 block_rq_complete, 1 block_rq_issue"), "{problem}");
    assert!(hint.contains("9 events were lost"), "{hint}");
}

#[test]
fn skipping_bad_lines_is_advised_where_it_helps_and_only_there() {
    for sample in SAMPLES.iter().filter(|sample| !sample.line.is_empty()) {
        let options = ReadOptions { format: Some(sample.format.into()), ..ReadOptions::default() };
        let lenient = ReadOptions { format: Some(sample.format.into()), ..lenient() };
        let bad = "no such record\n";
        for text in [
            format!("{}{bad}", sample.text),
            format!("{}{bad}{}", sample.heading, sample.text.replacen(sample.heading, "", 1)),
            format!("{}{bad}{bad}", sample.heading),
        ] {
            let Err(error) = read_bytes(text.as_bytes(), sample.ending, &options) else { continue };
            let hint = error.hint_text().unwrap_or_default().to_owned();
            if !hint.contains("--lenient") && !hint.starts_with("the lines after it") {
                continue;
            }
            let result = read_bytes(text.as_bytes(), sample.ending, &lenient);
            assert_eq!(hint.contains("--lenient"), result.is_ok(), "{}: {error}; {hint}", sample.format);
        }
    }
}

#[test]
fn a_bad_first_line_before_good_ones_can_be_skipped() {
    let text = format!("dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 K 4096 () 8 + 8 [dd]\n{ISSUE}{COMPLETE}");
    let error = read_plain(&text, "txt").unwrap_err();
    assert!(error.hint_text().unwrap().contains("--lenient"), "{error}");
    let trace = read_bytes(text.as_bytes(), "txt", &lenient()).unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (1, 1));
}

#[test]
fn files_that_are_no_traces_are_named() {
    let error = read_plain(b"PK\x03\x04\x14\0\0\0\x08\0", "zip").unwrap_err();
    assert_eq!(error.kind(), ErrorClass::UnknownFormat);
    assert!(error.to_string().contains("this is no trace, but a zip archive"), "{error}");
    let page = b"<!doctype html>\n<html lang=\"en\">\n<head>\n<title>chat - emmclab</title>\n";
    let error = read_plain(page, "html").unwrap_err();
    assert!(error.to_string().contains("a report page of emmclab"), "{error}");
}
