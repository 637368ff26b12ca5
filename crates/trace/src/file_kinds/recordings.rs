//! Recognises recordings of requests in forms that no reader supports, by their first bytes or lines. Each hint tells how to
//! convert the recording into a supported form.

use super::{FileHead, ForeignFileKind};
use crate::formats::is_action;

/// Kinds of recordings that the reader of a trace format would accept by mistake; they are checked before the trace formats.
pub(super) static FIRST: &[ForeignFileKind] = &[ForeignFileKind {
    noun_phrase: "the latency format of the kernel's tracer, whose lines have no time of a clock",
    matches: |head| head.has_many(1, |line| line.starts_with(b"# latency: ")),
    hint: "turn it off and save the text again: `echo 0 > /sys/kernel/tracing/options/latency-format; cat \
           /sys/kernel/tracing/trace > trace.txt`",
}];

/// The hint for recordings of `LTTng`.
const LTTNG: &str = "no reader knows the block events of LTTng: record them with `emmclab record`, trace-cmd or perf";

pub(super) static KINDS: &[ForeignFileKind] = &[
    ForeignFileKind {
        noun_phrase: "a CTF trace, of LTTng or barectf",
        matches: |head| {
            head.has(0, &[0xc1, 0x1f, 0xfc, 0xc1])
                || head.has(0, &[0xc1, 0xfc, 0x1f, 0xc1])
                || head.has(0, &[0x57, 0x1d, 0xd1, 0x75])
                || head.has(0, &[0x75, 0xd1, 0x1d, 0x57])
                || head.has(0, b"/* CTF 1.")
        },
        hint: LTTNG,
    },
    ForeignFileKind {
        noun_phrase: "the text of babeltrace, printed from a CTF trace of LTTng",
        matches: |head| head.has_many(1, is_of_babeltrace),
        hint: LTTNG,
    },
    ForeignFileKind {
        noun_phrase: "a recording of Event Tracing for Windows (.etl)",
        // Marker of the first event after the header of the first buffer, on 64-bit and 32-bit systems.
        matches: |head| head.has(0x48, &[2, 0, 2, 0xc0]) || head.has(0x48, &[2, 0, 1, 0xc0]),
        hint: "export the table Disk Usage of Windows Performance Analyzer as CSV, with a row for each I/O, and name its columns \
               in order, such as `--columns op,arrival_s,complete_s,offset_bytes,size_bytes,device`",
    },
    ForeignFileKind {
        noun_phrase: "events of Event Tracing for Windows, printed by `xperf -a dumper`",
        matches: |head| {
            head.has_lines(&["BeginHeader"])
                || head.has_many(1, |line| line.starts_with(b"DiskRead,") || line.starts_with(b"DiskWrite,"))
        },
        hint: "keep its reads and writes, `grep -E '^ *Disk(Read|Write), *[0-9]' FILE | sed 's/^ *Disk//' > disk.csv`, and read \
               them with `--columns op,complete_us,-,-,-,offset_bytes,size_bytes,response_us,device,-,service_us,-,-,-,-`",
    },
    ForeignFileKind {
        noun_phrase: "the latency format of `trace-cmd report -l` or of the kernel's tracer",
        matches: |head| head.has_many(1, is_of_latency_format),
        hint: "name the file that trace-cmd recorded (trace.dat) itself, or print it without -l: `trace-cmd report > trace.txt`; \
               of tracefs, turn the format off: `echo 0 > /sys/kernel/tracing/options/latency-format`",
    },
    ForeignFileKind {
        noun_phrase: "text of blkparse in a format of your own (-f)",
        matches: is_of_own_format,
        hint: "name the binary files (NAME.blktrace.0), or print them without -f: `blkparse -i NAME > trace.txt`; each request has \
               several lines (Q, D, C), of which a table needs one: if you have only this text, keep only the lines of C \
               and name their columns with --columns",
    },
    ForeignFileKind {
        noun_phrase: "a list of numbers, such as the block numbers of a reference string",
        matches: |head| {
            let is_number = |line: &[u8]| line.len() <= 20 && line.iter().all(u8::is_ascii_digit);
            head.whole_lines().count() > 1 && head.whole_lines().all(is_number)
        },
        hint: "`--columns offset --size-unit page --time-unit none` reads each number as a read of one page of 4 KB, in this \
               order and without times",
    },
];

/// Whether the line has the form `[HH:MM:SS.NNNNNNNNN] (+S.NNNNNNNNN) HOST EVENT: { FIELDS }, ...`.
fn is_of_babeltrace(line: &[u8]) -> bool {
    line.starts_with(b"[")
        && memchr::memmem::find(line, b"] (+").is_some()
        && memchr::memmem::find(line, b": { ").is_some()
        && line.ends_with(b" }")
}

fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect()
}

/// Whether the line has the form `NAME-PID CPU+FLAGS TIME: EVENT: ...`, with a time in seconds, or in microseconds with a mark.
fn is_of_latency_format(line: &[u8]) -> bool {
    let is_task = |word: &[u8]| {
        let dash = memchr::memrchr(b'-', word);
        dash.is_some_and(|dash| dash + 1 < word.len() && word[dash + 1..].iter().all(u8::is_ascii_digit))
    };
    let is_cpu = |word: &[u8]| {
        let flags = word.iter().position(|byte| !byte.is_ascii_digit());
        let is_flag = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'#');
        flags.is_some_and(|at| at > 0 && word.len() >= at + 3 && word.iter().all(is_flag))
    };
    let is_time = |word: &[u8]| {
        let end = word.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(word.len());
        end > 0 && (word[end..] == *b":" && word.contains(&b'.') || word[end..].starts_with(b"us"))
    };
    let words = words(line);
    words.windows(3).any(|three| is_task(three[0]) && is_cpu(three[1]) && is_time(three[2]))
}

/// Whether each line has an action of blkparse and a time with nine decimals, between any separators. At least one letter must be
/// an action that is not also an operation.
fn is_of_own_format(head: &FileHead) -> bool {
    let fields = |line: &'_ [u8]| -> (bool, bool, bool) {
        let fields = line.split(|byte| byte.is_ascii_whitespace() || b",;|".contains(byte));
        fields.fold((false, false, false), |(action, certain, time), field| {
            let decimals = memchr::memchr(b'.', field).map_or(0, |dot| field.len() - dot - 1);
            let is_time = decimals == 9 && field.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
            (action || is_action(field), certain || matches!(field, b"C" | b"Q"), time || is_time)
        })
    };
    let mut judged = head.whole_lines().map(fields).peekable();
    let mut is_certain = false;
    judged.peek().is_some()
        && judged.all(|(action, certain, time)| {
            is_certain |= certain;
            action && time
        })
        && is_certain
}
