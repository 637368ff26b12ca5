//! Systrace pages and atrace output, which are built here from the text of a real kernel as the tools do.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::support::{Trace, host_text, lenient, read_bytes, read_plain};
use emmclab_trace::{CommandKind, ErrorClass, ReadOptions, RecordedActivity, RequestFlags};

/// The text of a kernel before 3.2, which has no column of flags.
fn without_flags(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(" ..") {
        Some((before, rest)) if !line.starts_with('#') => {
            format!("{before} {}\n", rest.split_once(' ').unwrap().1)
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

fn zlib(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for (line, bytes) in bytes.chunks(57).enumerate() {
        if line > 0 {
            out.push('\n');
        }
        for three in bytes.chunks(3) {
            let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            for place in 0..4 {
                let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
                out.push(if place > three.len() { '=' } else { digit as char });
            }
        }
    }
    out
}

/// A page of systrace: a script in one very long line, and the traces of several agents.
fn page(text: &str) -> String {
    let script = "  <script class=\"trace-data\" type=\"application/text\">\n";
    let long = "a();".repeat(100_000);
    format!(
        "<!DOCTYPE html>\n<html>\n<head i18n-values=\"dir:textdirection;\">\n<script>{long}</script>\n</head>\n<body>\n\
         <!-- BEGIN TRACE -->\n{script}{{\"traceEvents\": [{long}]}}\n  </script>\n{script}PROCESS DUMP\nUSER PID\n  \
         </script>\n{script}{text}  </script>\n<!-- END TRACE -->\n</body>\n</html>\n"
    )
}

/// A page of systrace from 2012.
fn old_page(text: &str) -> String {
    let quoted = text.replace('\n', "\\n\\\n");
    format!(
        "<!DOCTYPE HTML>\n<html>\n<body>\n  <script>\n  var linuxPerfData = \"\\\n{quoted}\
         \x20          dummy-0000  [000] 0.0: 0: trace_event_clock_sync: parent_ts=0.0\\n\";\n  \
         var view = 0;\n  function onLoad() {{\n  }}\n  </script>\n</body>\n</html>\n"
    )
}

/// A page of `trace2html`.
fn small_page(text: &str) -> String {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    let data = base64(&encoder.finish().unwrap());
    format!(
        "<!DOCTYPE html>\n<html>\n<body>\n<script id=\"viewer-data\" type=\"application/json\">\n{data}\n</script>\n</body>\n"
    )
}

fn open(bytes: impl AsRef<[u8]>) -> Trace {
    read_plain(bytes.as_ref(), "html").unwrap()
}

#[test]
fn every_wrapping_of_a_real_text_gives_its_requests() {
    let text = host_text();
    let expected = open(&text);
    assert!(expected.requests.len() > 200);
    let plain = without_flags(&text);
    assert!(!plain.contains(" ..... "));
    let words = "capturing trace... done\nTRACE:\n";
    for (name, bytes) in [
        ("page", page(&text).into_bytes()),
        ("old page", old_page(&plain).into_bytes()),
        ("small page", small_page(&text).into_bytes()),
        ("page of words", page(&format!("TRACE:\n{text}")).into_bytes()),
        ("atrace", format!("{words}{text}").into_bytes()),
        ("atrace -z", [words.as_bytes(), &zlib(&text)].concat()),
    ] {
        let result = open(&bytes);
        assert_eq!(result.header.format, "systrace", "{name}");
        assert!(result.requests == expected.requests, "{name}");
        assert_eq!(result.processes, expected.processes, "{name}");
        // The old page ends with an additional event.
        let own = u64::from(name == "old page");
        assert_eq!((result.ledger.seen - own, result.ledger.skipped - own), (expected.ledger.seen, 0), "{name}");
    }
    assert_eq!(open(&plain).header.format, "ftrace");
    assert!(open(&plain).requests == expected.requests);
}

#[test]
fn errors_name_the_line_of_the_page() {
    let bad = "dd-2 [000] ..... 1.000000: block_rq_issue: 8,0 K 4096 () 8 + 8 [dd]";
    let page = page(&format!("{}{bad}\n", host_text()));
    let number = page.lines().position(|line| line == bad).unwrap() as u64 + 1;
    let error = read_plain(&page, "html").unwrap_err();
    assert_eq!(error.line(), Some(number), "{error}");
    assert_eq!(read_bytes(page.as_bytes(), "html", &lenient()).unwrap().ledger.skipped, 1);
}

#[test]
fn a_page_without_a_trace_says_so() {
    for page in [page(""), "<html><body>Hello</body></html>".to_owned(), page("# tracer: nop\n")] {
        let error = read_plain(page, "html").unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Empty, "{error}");
        assert!(error.hint_text().unwrap().contains("block"), "{error}");
    }
}

#[test]
fn what_is_cut_anywhere_is_read_up_to_there_or_named() {
    let text = host_text();
    let mut few = String::new();
    for line in text.lines().take(30) {
        writeln!(few, "{line}").unwrap();
    }
    let forced = ReadOptions { format: Some("systrace".into()), ..ReadOptions::default() };
    let whole = open(&few).requests.len();
    let atrace = [b"TRACE:\n", &zlib(&few)[..]].concat();
    for bytes in [old_page(&few).as_bytes(), small_page(&few).as_bytes(), &atrace] {
        for end in (1..bytes.len()).step_by(53) {
            let result = read_bytes(&bytes[..end], "html", &forced);
            assert!(result.is_err() || result.unwrap().requests.len() <= whole);
        }
    }
    for end in (8..atrace.len()).step_by(5) {
        assert!(read_bytes(&atrace[..end], "html", &forced).is_err(), "{end}");
    }
}

/// Categories `disk` and `mmc` of a phone with kernel 3.10: thread groups, no queue events, MMC events of Android.
#[test]
fn the_disk_of_an_old_phone_is_read_with_its_commands_and_waits() {
    let text = "# tracer: nop\n#\n\
        com.example-1240  ( 1200) [001] ...1   100.000100: ext4_sync_file_enter: dev 259,3 ino 77 parent 12 datasync 1 \n\
        jbd2/mmcblk0p28-150 (  150) [000] ...1   100.000300: block_rq_issue: 179,0 WS 0 () 64 + 8 [mmcqd/0]\n\
        mmcqd/0-91    (   91) [000] ...1   100.000400: mmc_blk_rw_start: cmd=25,addr=0x00000040,size=0x00000008\n\
        mmcqd/0-91    (   91) [000] d.h2   100.001400: block_rq_complete: 179,0 WS () 64 + 8 [0]\n\
        mmcqd/0-91    (   91) [000] ...1   100.001500: mmc_blk_rw_end: cmd=25,addr=0x00000040,size=0x00000008\n\
        mmcqd/0-91    (   91) [000] ...1   100.001600: mmc_blk_erase_start: cmd=1,addr=0x00001000,size=0x00000800\n\
        mmcqd/0-91    (   91) [000] ...1   100.001700: mmc_blk_erase_end: cmd=1,addr=0x00001000,size=0x00000800\n\
        <...>-1240  (-----) [001] ...1   100.002100: ext4_sync_file_exit: dev 259,3 ino 77 ret 0\n\
        com.example-1240  ( 1200) [001] ...1   100.002200: ext4_da_write_begin: dev 259,3 ino 77 pos 0 len 8 flags 0\n";
    let result = open(format!("capturing trace... done\nTRACE:\n{text}"));
    let [request] = result.requests[..] else { panic!("{:?}", result.requests) };
    assert!(request.flags.contains(RequestFlags::JOURNAL));
    let times = [Some(request.arrival), request.start, request.issue, request.complete];
    assert_eq!(times.map(|time| time.unwrap().0 - 100_000_000_000), [300_000, 300_000, 400_000, 1_400_000]);
    assert_eq!((result.ledger.seen, result.ledger.skipped, result.ledger.unpaired), (9, 1, 0));
    let activity: RecordedActivity = serde_json::from_str(&result.header.activity.unwrap()).unwrap();
    let [host] = &activity.hosts[..] else { panic!("{activity:?}") };
    let rows: Vec<_> = host.commands.iter().map(|row| (row.kind, row.count, row.bytes.0, row.time.0)).collect();
    assert_eq!(rows, [(CommandKind::Write, 1, 4096, 1_100_000), (CommandKind::Discard, 1, 0, 100_000)]);
    assert_eq!((&*host.host, host.busy.0, host.unpaired), ("mmc", 1_200_000, 0));
    let [sync] = &activity.syncs[..] else { panic!("{activity:?}") };
    assert_eq!((&*sync.process, &*sync.file_system, sync.time.0), ("com.example", "ext4", 2_000_000));
}
