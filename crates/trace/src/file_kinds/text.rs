//! Recognises text that is not a trace, by its first lines: output of other tools and of emmclab, and programs.

use super::{FileHead, ForeignFileKind, record};

/// Pages and documents of emmclab. They are checked before the trace formats, because some are HTML like systrace pages.
pub(super) static OWN: &[ForeignFileKind] = &[
    ForeignFileKind {
        noun_phrase: "a report page of emmclab",
        matches: |head| is_html(head) && head.holds("<p class=\"brand\">emmclab") || head.holds(" - emmclab</title>"),
        hint: "read the trace from which it was made; the page lists it under Provenance",
    },
    ForeignFileKind {
        noun_phrase: "a result of emmclab (--json)",
        matches: |head| is_json(head) && head.holds("\"ledger\"") && head.holds("\"seen\""),
        hint: "read the trace from which it was made; `emmclab convert TRACE x.csv` prints requests as text",
    },
];

pub(super) static KINDS: &[ForeignFileKind] = &[
    ForeignFileKind {
        noun_phrase: "fio's results (JSON)",
        matches: |head| head.holds("\"fio version\""),
        hint: "`emmclab calibrate FILE` makes a device preset of them; for a trace run the job with --write_iolog=FILE, or record \
               it with blktrace",
    },
    ForeignFileKind {
        noun_phrase: "fio's results as text",
        matches: |head| {
            head.has_many(1, |line| line.starts_with(b"fio-3.") || line.starts_with(b"fio-2."))
                || head.holds("Run status group 0")
        },
        hint: "run the job with --output-format=json+ and `emmclab calibrate` makes a device preset of the results; for a trace run \
               it with --write_iolog=FILE, or record it with blktrace",
    },
    ForeignFileKind {
        noun_phrase: "a job file of fio",
        matches: |head| {
            head.has_many(1, |line| line.starts_with(b"ioengine=") || line.starts_with(b"rw=") || line.starts_with(b"readwrite="))
        },
        hint: "`emmclab synth --fio FILE -o OUT.parquet` makes the requests that fio would issue; or run it with --write_iolog=FILE and \
               read that, or record the run with blktrace",
    },
    ForeignFileKind {
        noun_phrase: "a trace for Chrome's viewer (JSON)",
        matches: |head| is_json(head) && head.holds("\"traceEvents\""),
        hint: record!("it contains slices, but no block events: record with Perfetto (ftrace, `block`), or "),
    },
    ForeignFileKind {
        noun_phrase: "output of strace",
        matches: |head| head.has_many(2, is_system_call),
        hint: record!("`emmclab apps learn FILE` makes a program of it; for a trace "),
    },
    ForeignFileKind {
        noun_phrase: "output of iostat or sar, which are averages",
        matches: |head| {
            // The first line of the output is the same in every language, unlike the column headings.
            head.lines().next().is_some_and(|line| line.starts_with(b"Linux ") && line.ends_with(b" CPU)"))
                || head.has_many(1, |line| {
                    let begins =
                        line.starts_with(b"Device") || line.starts_with(b"DEV") || memchr::memmem::find(line, b" DEV ").is_some();
                    begins && [&b"tps"[..], b"r/s", b"rkB/s"].iter().any(|word| memchr::memmem::find(line, word).is_some())
                })
        },
        hint: record!("averages contain no single requests: "),
    },
    ForeignFileKind {
        noun_phrase: "output of vmstat",
        matches: |head| head.has_lines(&["procs -"]),
        hint: record!("averages contain no single requests: "),
    },
    ForeignFileKind {
        noun_phrase: "/proc/diskstats or the file `stat` of a disk, which are counters",
        matches: |head| {
            let mut lines = head.lines();
            let all = lines.all(|line| {
                let fields: Vec<_> = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
                let numbers = fields.iter().filter(|field| field.iter().all(u8::is_ascii_digit)).count();
                match fields.len() {
                    14 | 18 | 20 => numbers + 1 == fields.len() && !fields[2][0].is_ascii_digit(),
                    11 | 15 | 17 => numbers == fields.len(),
                    _ => false,
                }
            });
            all && (head.lines().count() == 1 || head.lines().next().is_some_and(|line| line.iter().any(u8::is_ascii_alphabetic)))
        },
        hint: record!("`emmclab lifetime` takes two readings of such counters; a trace has times and addresses: "),
    },
    ForeignFileKind {
        noun_phrase: "dumpsys diskstats of Android",
        matches: |head| head.has_lines(&["Latency:", "Data-Free:"]),
        hint: record!("it is a summary: on a phone use `emmclab record --adb`, Perfetto or `atrace disk`, else "),
    },
    ForeignFileKind {
        noun_phrase: "statistics of F2FS (iostat_info or status)",
        matches: |head| head.has_lines(&["[WRITE]", "fs data:"]) || head.holds("=====[ partition info"),
        hint: record!("counters have neither times nor addresses: "),
    },
    ForeignFileKind {
        noun_phrase: "the state of an MMC host (`ios` of debugfs)",
        matches: |head| head.has_lines(&["clock:", "bus width:"]) && head.holds("timing spec:"),
        hint: record!(
            "it states how the bus is driven (clock, width, timing), which a device preset states in `[interface]`; for a trace "
        ),
    },
    ForeignFileKind {
        noun_phrase: "a histogram of biolatency, bitesize, bpftrace or another tool of BCC",
        matches: |head| {
            let is_heading = |line: &[u8]| {
                memchr::memmem::find(line, b": count").is_some() && memchr::memmem::find(line, b"distribution").is_some()
            };
            head.has_many(1, is_heading)
                || head.has_many(2, |line| line.starts_with(b"[") && line.ends_with(b"|") && line.contains(&b')'))
        },
        hint: record!("a histogram contains no single requests: use `biosnoop` instead, or "),
    },
    ForeignFileKind {
        noun_phrase: "output of biotop or iotop, which are sums",
        matches: |head| head.has_words(&["PID", "COMM", "I/O", "Kbytes"]) || head.has_words(&["TID", "PRIO", "COMMAND"]),
        hint: record!("sums have neither times nor addresses: use `biosnoop` instead, or "),
    },
    ForeignFileKind {
        noun_phrase: "output of ext4slower or another tool that traces files",
        matches: |head| {
            head.has_words(&["COMM", "BYTES", "OFF_KB", "FILENAME"]) || head.has_words(&["PID", "COMM", "FD", "ERR", "PATH"])
        },
        hint: record!("operations on files are not those of the device, which sees other sizes and addresses: "),
    },
    ForeignFileKind {
        noun_phrase: "output of btt, which is a summary of blktrace",
        matches: |head| head.holds(" All Devices ====") || head.has_words(&["ALL", "MIN", "AVG", "MAX", "N"]),
        hint: "read the input of btt (files of blktrace) or the text of blkparse",
    },
    ForeignFileKind {
        noun_phrase: "the kernel's log (dmesg)",
        matches: |head| {
            let all = head.lines().count().min(3);
            all > 0 && head.has_many(all, is_of_kernel_log) && !head.holds(": block_rq_")
        },
        hint: record!("if your own module prints requests there, keep only their fields and name them with --columns; else "),
    },
    ForeignFileKind {
        noun_phrase: "a log or bug report of Android",
        matches: |head| head.has_lines(&["--------- beginning of"]) || head.holds("== dumpstate: "),
        hint: record!("it contains no requests: on a phone use `emmclab record --adb`, Perfetto or `atrace disk`, else "),
    },
    ForeignFileKind {
        noun_phrase: "output of smartctl or nvme-cli",
        matches: |head| {
            head.has_lines(&["smartctl "]) || head.holds("Smart Log for NVME") || head.holds("START OF INFORMATION SECTION")
        },
        hint: record!("it has the wear of a disk, not its requests: "),
    },
    ForeignFileKind {
        noun_phrase: "a list of disks, partitions or mounts (lsblk, df, mount)",
        matches: |head| {
            head.has_words(&["NAME", "MAJ:MIN"])
                || head.has_words(&["Filesystem", "Use%"])
                || head.has_words(&["major", "minor", "#blocks", "name"])
        },
        hint: record!("it lists devices, not requests: "),
    },
    ForeignFileKind {
        noun_phrase: "a preset or study (TOML)",
        matches: |head| {
            let is_table = |line: &[u8]| line.starts_with(b"[") && line.ends_with(b"]");
            head.has_many(1, |line| line.starts_with(b"name = ") || line.starts_with(b"version = ")) && head.has_many(1, is_table)
        },
        hint: "a device is named with `--device FILE`, a workload is made with `emmclab synth FILE`, a study is run with \
               `emmclab run FILE`",
    },
    ForeignFileKind {
        noun_phrase: "a document (JSON) without requests",
        matches: |head| is_json(head),
        hint: record!("the only JSON that emmclab reads are results of fio (`emmclab calibrate`); for a trace "),
    },
    ForeignFileKind {
        noun_phrase: "a log of fio of latencies, bandwidth or IOPS (_lat.log, _bw.log, _iops.log)",
        matches: is_fio_log,
        hint: "a latency log with --log_offset=1 can be read with `--columns complete_ms,response_ns,op_read0,size_bytes,offset_bytes` \
               (one more `,-` where it has a sixth column); for a trace run the job with --write_iolog=FILE, or record it with \
               blktrace",
    },
    ForeignFileKind {
        noun_phrase: "fio's results in its terse form",
        matches: |head| head.has_many(1, |line| line.split(|byte| *byte == b';').nth(1).is_some_and(is_fio)),
        hint: "run the job with --output-format=json+ and `emmclab calibrate` makes a device preset of the results; for a trace run \
               it with --write_iolog=FILE",
    },
    ForeignFileKind {
        noun_phrase: "output of `perf stat` or `perf report`, which are sums",
        matches: |head| head.holds("Performance counter stats for") || head.holds("# Overhead "),
        hint: record!("print the events with `perf script`, if the recording contains block events; else "),
    },
    ForeignFileKind {
        noun_phrase: "output of a benchmark (dd, hdparm, ioping, sysbench, iozone)",
        matches: |head| {
            let is_result = |line: &[u8]| {
                let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
                has(" copied, ") || has("Timing buffered disk reads") || has("Timing cached reads") || has("min/avg/max/mdev = ")
            };
            head.has_many(1, is_result) || head.has_lines(&["sysbench "]) || head.holds("Iozone: Performance Test")
        },
        hint: record!("results of a benchmark contain no single requests: run it again, and meanwhile "),
    },
    ForeignFileKind {
        noun_phrase: "a program as text (source code or a script)",
        matches: is_source,
        hint: record!("name the file of requests that the program reads or writes; for a trace of its I/O "),
    },
];

fn is_html(head: &FileHead) -> bool {
    let start = head.bytes.trim_ascii_start();
    start.get(..14).is_some_and(|start| start.eq_ignore_ascii_case(b"<!doctype html"))
}

fn is_json(head: &FileHead) -> bool {
    let mut bytes = head.bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    match bytes.next() {
        Some(b'{') => matches!(bytes.next(), Some(b'"' | b'}')),
        Some(b'[') => matches!(bytes.next(), Some(b'{')),
        _ => false,
    }
}

/// Whether a line is `NAME(ARGUMENTS) = RESULT`, a part of it, or a message of strace, possibly after a process id and a time.
fn is_system_call(line: &[u8]) -> bool {
    let call = behind_stamps(line);
    if call.starts_with(b"<... ") {
        return memchr::memmem::find(call, b" resumed>").is_some();
    }
    if call.starts_with(b"+++ ") || call.starts_with(b"--- SIG") {
        return call.ends_with(b"+++") || call.ends_with(b"---");
    }
    let Some(open) = memchr::memchr(b'(', call) else { return false };
    let name = &call[..open];
    let is_name = !name.is_empty() && name.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
    is_name && (call.ends_with(b"<unfinished ...>") || has_result(&call[open..]))
}

/// Whether a call ends with `) = RESULT`, where the result is a number, an address, or a question mark.
fn has_result(call: &[u8]) -> bool {
    let Some(sign) = memchr::memmem::rfind(call, b" = ") else { return false };
    let result = call[sign + 3..].trim_ascii_start();
    let result = result.strip_prefix(b"-").unwrap_or(result);
    call[..sign].trim_ascii_end().ends_with(b")") && result.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'?')
}

/// The rest of the line after `[pid N]`, a process id and a time.
fn behind_stamps(line: &[u8]) -> &[u8] {
    let mut rest = line;
    if let Some(behind) = rest.strip_prefix(b"[pid ") {
        rest = memchr::memchr(b']', behind).map_or(rest, |end| behind[end + 1..].trim_ascii_start());
    }
    loop {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let is_stamp = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b':');
        if end == 0 || !rest[..end].iter().all(is_stamp) {
            return rest;
        }
        rest = rest[end..].trim_ascii_start();
    }
}

/// Whether a line is from the kernel log: `[   12.345678] ...`, possibly after `<6>`, with a date (`dmesg -T`), or with `kernel:`
/// (journalctl).
fn is_of_kernel_log(line: &[u8]) -> bool {
    let line = match line.strip_prefix(b"<") {
        Some(rest) => memchr::memchr(b'>', rest).map_or(rest, |end| &rest[end + 1..]),
        None => line,
    };
    if memchr::memmem::find(line, b" kernel: ").is_some() {
        return true;
    }
    let Some(rest) = line.strip_prefix(b"[") else { return false };
    let Some(close) = memchr::memchr(b']', rest) else { return false };
    let stamp = rest[..close].trim_ascii();
    let is_seconds = stamp.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') && stamp.contains(&b'.');
    let is_date = stamp.len() >= 20 && memchr::memchr_iter(b':', stamp).count() == 2;
    is_seconds || is_date
}

fn is_fio(version: &[u8]) -> bool {
    version.starts_with(b"fio-")
}

/// Whether the lines are four to six numbers separated by commas and blanks: time, value, direction, block size, offset, priority.
fn is_fio_log(head: &FileHead) -> bool {
    const JUDGED: usize = 50;
    let is_entry = |line: &[u8]| {
        let fields = line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let fields: Vec<_> = fields.collect();
        let is_number = |field: &&[u8]| {
            let digits = field.strip_prefix(b"0x").unwrap_or(field);
            !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit)
        };
        matches!(fields.len(), 4..=6)
            && fields.iter().all(is_number)
            && matches!(fields[2], b"0" | b"1" | b"2")
            && memchr::memmem::find(line, b", ").is_some()
    };
    let mut judged = head.whole_lines().take(JUDGED).peekable();
    judged.peek().is_some() && judged.all(is_entry)
}

/// Whether this is source code: a script with an interpreter line, or lines of a programming language.
fn is_source(head: &FileHead) -> bool {
    const WORDS: [&str; 18] = [
        "import ", "from ", "def ", "class ", "#include ", "#define ", "use ", "mod ", "fn ", "pub ", "impl ", "func ",
        "function ", "package ", "static ", "typedef ", "struct ", "if __name__",
    ];
    let is_code = |line: &[u8]| {
        let names_file = line.starts_with(b"import ")
            || line.starts_with(b"#include ")
            || line.starts_with(b"#define ")
            || line.starts_with(b"package ")
            || line.starts_with(b"from ") && memchr::memmem::find(line, b" import ").is_some();
        let goes_on = matches!(line.last(), Some(b':' | b';' | b'{' | b'(' | b','));
        names_file || goes_on && WORDS.iter().any(|word| line.starts_with(word.as_bytes()))
    };
    head.has(0, b"#!/") || head.has_many(2, is_code)
}
