//! Recognises lines of a recording that are not events: headings, losses, call stacks, and lines of other programs.

use crate::formats::fields::{blank_separated, is_digits, unsigned};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FtraceNotice<'a> {
    /// A heading, or a message of the recorder that is ignored.
    Heading,
    /// A heading with the name of the tracer of the following lines.
    Tracer(&'a [u8]),
    /// A heading that states how many events were overwritten in the buffer.
    Overwritten(u64),
    /// This number of events was lost here; 1 if the number is not known.
    Lost(u64),
    Stack,
    /// The line contains an event of the block layer, but in an unreadable form.
    Damaged,
    /// A line that does not belong to the recording.
    Foreign,
}

impl<'a> FtraceNotice<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        let text = line.trim_ascii();
        let text = text.strip_prefix(b"> ").unwrap_or(text);
        if text.is_empty() || text.starts_with(b"#") {
            return heading(text);
        }
        if is_stack(line, text) {
            return FtraceNotice::Stack;
        }
        if let Some(count) = lost(text) {
            return FtraceNotice::Lost(count);
        }
        let is_remark = text.starts_with(b"cpus=")
            || text.starts_with(b"version = ")
            || text.starts_with(b"CPU") && (text.ends_with(b" is empty") || text.ends_with(b"buffer started"))
            || text.starts_with(b"[ perf record: ");
        match is_remark {
            true => FtraceNotice::Heading,
            false if holds_block_event(text) => FtraceNotice::Damaged,
            false => FtraceNotice::Foreign,
        }
    }
}

/// Parses the heading `# tracer: NAME`, `# entries-in-buffer/entries-written: N/WRITTEN   #P:8`, or another one.
fn heading(text: &[u8]) -> FtraceNotice<'_> {
    let end = text.iter().position(|byte| *byte != b'#').unwrap_or(text.len());
    let words = text[end..].trim_ascii();
    if let Some(tracer) = words.strip_prefix(b"tracer:") {
        return FtraceNotice::Tracer(tracer.trim_ascii());
    }
    let numbers = words.strip_prefix(b"entries-in-buffer/entries-written:").and_then(|rest| blank_separated(rest).next());
    let overwritten = numbers.and_then(|numbers| {
        let slash = memchr::memchr(b'/', numbers)?;
        let number = |digits| unsigned(digits, "entries", 0).ok();
        number(&numbers[slash + 1..])?.checked_sub(number(&numbers[..slash])?)
    });
    match overwritten {
        Some(count) if count > 0 => FtraceNotice::Overwritten(count),
        _ => FtraceNotice::Heading,
    }
}

/// Whether a line belongs to a call stack. The tracer prints `=> FUNCTION`. perf prints `ADDRESS FUNCTION+OFFSET (OBJECT)`; the address or
/// the object may be missing.
fn is_stack(line: &[u8], text: &[u8]) -> bool {
    if text.starts_with(b"=> ") || text == b"=>" || text == b"<stack trace>" || text == b"<stack trace >" {
        return true;
    }
    let is_indented = line.first().is_some_and(u8::is_ascii_whitespace);
    if !is_indented {
        return false;
    }
    let mut words = blank_separated(text);
    let Some(first) = words.next() else { return false };
    let is_address = first.len() >= 4 && first.iter().all(u8::is_ascii_hexdigit);
    let names_object = text.ends_with(b")") && memchr::memrchr(b'(', text).is_some_and(|open| open > 0 && text[open - 1] == b' ');
    let count = 1 + words.count();
    (is_address && (names_object || count == 1 && first.len() >= 8 || count == 2)) || names_object && count == 2
}

/// The number of lost events, 1 if it is not given; `None` for other lines. Forms: `CPU:3 [LOST 17 EVENTS]`, `CPU 3: [LOST EVENTS]`, `CPU:3
/// [17 EVENTS DROPPED]`, `LOST 17 events!`, `Processed 900 events and lost 5 chunks!`, `You have 5 dropped events`.
fn lost(text: &[u8]) -> Option<u64> {
    const WORDS: usize = 12;
    let is_between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'[' | b']' | b'!' | b'.' | b',');
    let words = text.split(is_between).filter(|word| !word.is_empty());
    let mut before: &[u8] = &[];
    let (mut lost, mut count, mut things) = (false, None, false);
    for word in words.take(WORDS) {
        let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes()));
        if is(&["lost", "dropped"]) {
            lost = true;
            if is_digits(before) {
                count = unsigned(before, "lost", 0).ok();
            }
        } else if is(&["events", "event", "samples", "chunks", "records"]) {
            things = true;
            // In `900 events and lost 5 chunks`, only the number after `lost` counts lost records.
            if is_digits(before) {
                count = unsigned(before, "lost", 0).ok();
            }
        } else if lost && is_digits(word) && before.eq_ignore_ascii_case(b"lost") {
            count = unsigned(word, "lost", 0).ok();
        }
        before = word;
    }
    (lost && things).then(|| count.unwrap_or(1))
}

/// Whether the line contains `block_NAME: MAJOR,MINOR`.
fn holds_block_event(text: &[u8]) -> bool {
    memchr::memmem::find_iter(text, b"block_").any(|at| {
        let Some(colon) = memchr::memchr(b':', &text[at..]) else { return false };
        let device = blank_separated(&text[at + colon + 1..]).next().unwrap_or(&[]);
        super::device_name(device, 0).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_counted_in_every_wording() {
        for (line, count) in [
            ("CPU:3 [LOST 17 EVENTS]", 17),
            ("CPU 10: [LOST 431 EVENTS]", 431),
            ("CPU:0 [LOST EVENTS]", 1),
            ("CPU:1 [17 EVENTS DROPPED]", 17),
            ("CPU:1 [EVENTS DROPPED]", 1),
            ("LOST 12 events!", 12),
            ("Processed 900 events and lost 5 chunks!", 5),
            ("You have 5 dropped events", 5),
            ("Possibly lost 25 samples", 25),
        ] {
            assert_eq!(FtraceNotice::of(line.as_bytes()), FtraceNotice::Lost(count), "{line}");
        }
    }

    #[test]
    fn headings_name_the_tracer_and_what_was_overwritten() {
        assert_eq!(FtraceNotice::of(b"# tracer: blk"), FtraceNotice::Tracer(b"blk"));
        assert_eq!(FtraceNotice::of(b"# entries-in-buffer/entries-written: 40/100   #P:8"), FtraceNotice::Overwritten(60));
        for line in [
            "# entries-in-buffer/entries-written: 8/8   #P:8",
            "#           TASK-PID   CPU#  ||||    TIMESTAMP  FUNCTION",
            "##### CPU 1 buffer started ####",
            "#",
            "cpus=24",
            "version = 6",
            "CPU 1 is empty",
        ] {
            assert_eq!(FtraceNotice::of(line.as_bytes()), FtraceNotice::Heading, "{line}");
        }
    }

    #[test]
    fn call_stacks_are_known_by_their_form() {
        for line in [
            "=> __schedule (ffffffc0110a0b1c)",
            " => io_schedule",
            " =>  <00007f1b2c3d4e5f>",
            "        ffffffffb12d5040 blk_mq_start_request+0xa0 ([kernel.kallsyms])",
            "            7f1b2c3d4e5f fsync+0x3f (/usr/lib/libpthread-2.31.so)",
            "                   db730 write (/lib/x86_64-linux-gnu/libc-2.24.so)",
            "        6566322d30333762 [unknown] ([unknown])",
            "        ffffffffb12d5040 blk_mq_start_request",
            "                         blk_mq_start_request ([kernel.kallsyms])",
        ] {
            assert_eq!(FtraceNotice::of(line.as_bytes()), FtraceNotice::Stack, "{line}");
        }
    }

    #[test]
    fn what_others_print_is_foreign_and_a_bad_event_is_not() {
        for line in [
            "fio-3.33",
            "  read: IOPS=256, BW=1026KiB/s (1050kB/s)(10.0MiB/9980msec)",
            "$ perf record -e block:block_rq_issue -a",
            "root@phone:/ # cat trace",
            "Run status group 0 (all jobs):",
        ] {
            assert_eq!(FtraceNotice::of(line.as_bytes()), FtraceNotice::Foreign, "{line}");
        }
        assert_eq!(FtraceNotice::of(b"x [00 1.5 block_rq_issue: 8,0 W 0 () 8 + 8 [x]"), FtraceNotice::Damaged);
    }
}
