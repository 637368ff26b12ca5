//! Text that users or programs changed after the recording: repeated, sorted by columns, with decimal commas, rounded by a spreadsheet.

use crate::support::{SAMPLES, Trace, read_bytes, read_plain};
use emmclab_trace::{Error, ErrorClass, Nanos, ReadOptions, Result};

fn read(text: &str, ending: &str) -> Result<Trace> {
    read_plain(text, ending)
}

fn refused(text: &str) -> Error {
    read(text, "txt").unwrap_err()
}

/// The two parts into which `head` and `tail` in a hint split a text.
fn parts(text: &str, hint: &str) -> [String; 2] {
    let number = |mark: &str| -> usize {
        let rest = &hint[hint.find(mark).unwrap() + mark.len()..];
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    [lines[..number("head -n ")].concat(), lines[number("tail -n +") - 1..].concat()]
}

#[test]
fn a_recording_that_is_in_the_file_twice_is_refused_with_the_commands_that_separate_it() {
    let mut refused = 0;
    for sample in SAMPLES.iter().filter(|sample| sample.format != "systrace") {
        let whole = read(sample.text, sample.ending).unwrap().requests;
        let twice = sample.text.repeat(2);
        match read(&twice, sample.ending) {
            Ok(trace) => {
                // Without repeated lines, backward steps are detected, unless all requests have the same time.
                let back = trace.ledger.clock_jumps + trace.ledger.reordered;
                let is_timed = whole.iter().any(|request| request.arrival != whole[0].arrival);
                assert!(back > 0 || !is_timed, "{}: {:?}", sample.format, trace.ledger);
            }
            Err(error) => {
                refused += 1;
                let hint = error.hint_text().unwrap().to_owned();
                assert!(error.to_string().contains("already contains one"), "{}: {error}", sample.format);
                for part in parts(&twice, &hint) {
                    assert_eq!(read(&part, sample.ending).unwrap().requests, whole, "{}", sample.format);
                }
            }
        }
    }
    assert!(refused > 10, "{refused} formats");
}

#[test]
fn a_heading_that_is_repeated_while_times_go_on_is_one_recording() {
    let heading = "arrival_us,op,sector,sectors\n";
    let trace = read(&format!("{heading}1,R,8,8\n2,R,16,8\n{heading}3,R,8,8\n"), "csv").unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.seen), (3, 3));
}

#[test]
fn two_tables_on_a_page_are_two_recordings() {
    let page = "Demonstrations of biosnoop.\n\n# ./biosnoop\n\
                TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n\
                0.000004    supervise      1950   xvda1   W 13092560   4096       0.74\n\
                1.500000    supervise      1950   xvda1   W 13092568   4096       0.74\n\n# ./biosnoop -Q\n\
                TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)\n\
                0.000004    xfsaild        456    xvda1   R 62901512   8192   0.10    0.43\n";
    let error = refused(page);
    assert_eq!(error.line(), Some(9), "{error}");
    let [first, second] = parts(page, error.hint_text().unwrap());
    assert_eq!([first, second].map(|part| read(&part, "txt").unwrap().requests.len()), [2, 1]);
}

#[test]
fn a_table_is_read_by_the_names_of_its_columns_in_any_order() {
    let rows = [
        ["TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "QUE(ms)", "LAT(ms)"],
        ["1.000000", "Web Content", "1950", "sda", "W", "13092560", "4096", "0.25", "0.75"],
        ["1.100000", "fio", "7", "sda", "R", "8", "512", "0.00", "0.50"],
    ];
    let text = |order: &[usize]| -> String {
        rows.iter().map(|row| order.iter().map(|at| row[*at]).collect::<Vec<_>>().join(" ") + "\n").collect()
    };
    let usual: Vec<_> = (0..9).collect();
    let whole = read(&text(&usual), "txt").unwrap();
    assert_eq!((whole.requests.len(), whole.requests[0].complete), (2, Some(Nanos(1_000_000_000))));
    for first in 0..9 {
        let turned: Vec<_> = (0..9).map(|at| (at * 2 + first) % 9).collect();
        let trace = read(&text(&turned), "txt").unwrap_or_else(|error| panic!("{error}\n{}", text(&turned)));
        assert_eq!((trace.requests, trace.processes), (whole.requests.clone(), whole.processes.clone()));
        let backwards: Vec<_> = turned.into_iter().rev().collect();
        assert_eq!(read(&text(&backwards), "txt").unwrap().requests, whole.requests);
    }
    // Without the columns on processes.
    let trace = read(&text(&[8, 6, 5, 4, 3, 0]), "txt").unwrap();
    assert_eq!((trace.requests.len(), trace.processes.len()), (2, 0));
    let iosnoop = "BLOCK BYTES LATms COMM PID TYPE DEV STARTs ENDs\n80 4096 0.62 x y 9 W 202,1 5.302061 5.302679\n";
    let trace = read(iosnoop, "txt").unwrap();
    assert_eq!((trace.header.format.as_str(), trace.processes[0].as_str()), ("iosnoop", "x y"));
}

#[test]
fn decimal_commas_are_named_and_points_in_their_place_make_a_trace() {
    let tables = [
        "TIME(s)  COMM  PID  DISK  T SECTOR  BYTES  LAT(ms)\n1.000000  fio  7  sda  W 8  4096  0.75\n",
        "STARTs ENDs COMM PID TYPE DEV BLOCK BYTES LATms\n5.302061 5.302679 x 9 W 202,1 80 4096 0.62\n",
        "TIMESTAMP COMM PID DISK T SECTOR BYTES LAT(ms)\n10:11:12.123 x 9 sda W 80 4096 0.62\n",
        "arrival_us;op;sector;sectors\n1.5;R;8;8\n",
        "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 R 4096 () 8 + 8 [dd]\n\
         dd-2 [000] ..... 1.000100: block_rq_complete: 8,0 R () 8 + 8 [0]\n",
        "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n",
        "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n",
        "0.000004    Web Content    1950   sda     W 13092560   4096      0.25    0.74\n",
    ];
    for text in tables {
        assert!(!read(text, "txt").unwrap().requests.is_empty(), "{text}");
        let error = refused(&text.replace('.', ","));
        assert!(error.to_string().contains("decimal comma"), "{error}\n{text}");
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("points") || hint.contains("commas"), "{hint}");
        if let Some(digits) = hint.split("([0-9]),([0-9]").nth(1) {
            // The effect of `sed` in the hint.
            let length = if digits.starts_with("{4}") { 4 } else { 1 };
            let changed = text.replace('.', ",");
            let mut out: Vec<char> = changed.chars().collect();
            for at in 1..out.len().saturating_sub(length) {
                let is_decimal =
                    out[at] == ',' && out[at - 1].is_ascii_digit() && out[at + 1..=at + length].iter().all(char::is_ascii_digit);
                if is_decimal {
                    out[at] = '.';
                }
            }
            let out: String = out.into_iter().collect();
            assert_eq!(read(&out, "txt").unwrap().requests, read(text, "txt").unwrap().requests, "{hint}");
        }
    }
}

#[test]
fn stamps_that_a_spreadsheet_rounded_have_lost_their_digits() {
    let first = refused("1.28166E+17,usr,0,Read,7014609920,24576,41286\n");
    let second = refused("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1.28E+17,usr,0,Read,70,24,41\n");
    let later = refused("128166372003061629,usr,0,Read,512,512,41\n1.28166E+17,usr,0,Read,512,512,41\n");
    let table = refused("arrival_ns,op,sector,sectors\n1.5778E+15,R,8,8\n");
    for (error, line) in [(first, 1), (second, 2), (later, 2), (table, 2)] {
        assert!(error.to_string().contains("lost its last digits"), "{error}");
        assert_eq!(error.line(), Some(line), "{error}");
    }
    assert_eq!(read("arrival_s,op,sector,sectors\n1.5e-05,R,8,8\n2E3,R,8,8\n", "csv").unwrap().requests.len(), 2);
}

#[test]
fn msr_is_read_with_a_heading_blanks_and_other_separators() {
    let plain = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,0,Write,1317441536,8192,1963\n";
    let heading = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n";
    let whole = read(plain, "csv").unwrap();
    let with_heading = format!("{heading}{plain}");
    for text in [
        with_heading.clone(),
        with_heading.replace(',', ", "),
        plain.replace(',', ", "),
        with_heading.replace(',', ";"),
        plain.replace(',', "\t"),
        with_heading.lines().map(|line| format!("\"{}\"\n", line.replace(',', "\",\""))).collect(),
    ] {
        let trace = read(&text, "csv").unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!((trace.header.format.as_str(), &trace.requests), ("msr", &whole.requests), "{text}");
        assert_eq!((trace.ledger.seen, trace.devices), (2, whole.devices.clone()));
    }
}

#[test]
fn a_list_of_block_numbers_is_read_as_its_hint_says() {
    let text = "100\n200\n100\n300\n";
    let hint = refused(text).hint_text().unwrap().to_owned();
    assert!(hint.contains("`--columns offset --size-unit page --time-unit none`"), "{hint}");
    let options = |columns: &str| ReadOptions {
        columns: Some(columns.into()),
        size_unit: Some("page".into()),
        time_unit: Some("none".into()),
        ..ReadOptions::default()
    };
    let trace = read_bytes(text.as_bytes(), "txt", &options("offset")).unwrap();
    assert_eq!(trace.rows(|request| (request.sector.0, request.sectors)), [(800, 8), (1600, 8), (800, 8), (2400, 8)]);
    assert!(trace.header.note.unwrap().contains("no times"));
    // The lists of the ARC paper also have a length.
    let trace = read_bytes(b"110765 64 0 0\n110829 64 0 0\n", "lis", &options("offset,size,-,-")).unwrap();
    assert_eq!((trace.requests[1].sector.0, trace.requests[1].sectors), (110_829 * 8, 512));
    let error = read_bytes(b"1 2\n", "lis", &options("offset,arrival_us")).unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Config, Some("--columns")));
}
