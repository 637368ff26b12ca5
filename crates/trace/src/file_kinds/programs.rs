//! Recognises the text of programs, and the output of benchmarks and profilers.

use super::{FileHead, ForeignFileKind, record};

pub(super) static KINDS: &[ForeignFileKind] = &[
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
