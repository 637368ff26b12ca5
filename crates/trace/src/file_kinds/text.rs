//! Recognises text that is not a trace, by its first lines: output of other tools and of emmclab.

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
        hint: record!("counters have neither times nor addresses: "),
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

#[cfg(test)]
mod tests {
    use super::super::tests::named;

    #[test]
    fn output_of_other_tools_is_named() {
        for (text, word) in [
            ("Linux 6.1.0 (board) \t29.11.2026 \t_x86_64_\t(4 CPU)\n\nGer\u{e4}t  tps  kB_gel/s\nsda  1,52  20,11\n", "iostat"),
            ("[ 12.5] mybdev: W sector=4096 len=8\n", "dmesg"),
            ("Linux 6.1.0 (board)\n\nDevice   r/s  rkB/s %util\nmmcblk0  1.20 48.11 4.20\n", "iostat"),
            ("   7       0 loop0 27 2 100 44 359 446 165 735 0 58 85 1 0 5 2 16 51\n", "diskstats"),
            ("  27 2 100 44 359 446 165 735 0 58 85 1 0 5 2 16 51\n", "counters"),
            ("Latency: 0ms [512B Data Write]\nData-Free: 34881252K / 53684204K total = 64% free\n", "dumpsys"),
            ("time:\t\t1764000000\n[WRITE]\napp buffered data:\t1 2 3\nfs data:\t\t7 1 4096\n", "F2FS"),
            ("clock:\t\t200000000 Hz\nbus width:\t3 (8 bits)\ntiming spec:\t10 (mmc HS400)\n", "MMC host"),
            (
                "Tracing block device I/O... Hit Ctrl-C to end.\n     usecs           : count     distribution\n  0 -> 1 : 0 | |\n",
                "histogram",
            ),
            (
                "@usecs:\n[128, 256)            4 |@@@@@@@            |\n[256, 512)            9 |@@@@@@@@@@@@@@@@@@@|\n",
                "histogram",
            ),
            ("PID    COMM             D MAJ MIN DISK       I/O  Kbytes  AVGms\n1 x R 202 1 xvda1 3 4 5\n", "biotop"),
            (
                "TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n06:35:01 cron 1 R 1249 0 16.05 common-auth\n",
                "ext4slower",
            ),
            ("[    1.1] mmc0: new HS400 card\n[    1.2] mmcblk0: mmc0:0001\n[    1.3] mmcblk0: p1 p2\n", "dmesg"),
            ("{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : []\n}\n", "fio's results (JSON)"),
            ("job: (g=0): rw=read\nfio-3.33\nStarting 1 process\n", "fio's results as text"),
            ("[global]\nioengine=libaio\n[job]\nrw=randwrite\n", "job file of fio"),
            ("[{\"name\": \"x\", \"requests\": 3, \"ledger\": {\"seen\": 3}}]\n", "result of emmclab"),
            ("<!doctype html>\n<html><head><title>x - emmclab</title>\n", "report page of emmclab"),
            ("openat(AT_FDCWD, \"x\", O_RDONLY) = 3\nread(3, \"\", 4096) = 0\n", "strace"),
            ("1234 12:34:56.7 read(3, \"\", 4096) = 0 <0.000012>\n[pid 7] fsync(3 <unfinished ...>\n", "strace"),
            ("7 <... fsync resumed>)  = 0\n7 +++ exited with 0 +++\n", "strace"),
            ("name = \"nexus5\"\n[geometry]\ndies_per_chip = 2\n", "TOML"),
            ("{\"a\": 1}\n", "JSON"),
        ] {
            let name = named(text.as_bytes());
            assert!(name.starts_with("this is no trace, but ") && name.contains(word), "{word}: {name}");
        }
    }

    #[test]
    fn traces_are_not_taken_for_output_of_tools() {
        for text in [
            "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n",
            "arrival_us,op,sector,sectors\n1,R,8,8\n",
            "x-1 [001] ..... 1.5: block_rq_issue: 8,0 R 4096 () 8 + 8 [x]\n",
        ] {
            assert_eq!(named(text.as_bytes()), "unknown", "{text}");
        }
    }
}
